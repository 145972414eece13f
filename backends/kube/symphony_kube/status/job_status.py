"""What the object of a Job tells: how often it tries, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symphony.status import State
from symphony_kube.api import labels
from symphony_kube.status import reasons
from symphony_kube.status.pod_status import seconds

# How long a Job waits before it tries again, in seconds; it doubles with each failure.
BACK_OFF, LONGEST_BACK_OFF = 10, 360
TRIED_OUT = "BackoffLimitExceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What a Job tells.

    ``end`` is succeeded or failed, or None while it goes on; ``limit`` is how often it tries again, ``processes``
    the containers of its Pods.
    """

    name: str
    uid: str
    unit: str
    created: float = 0.0
    roster: str = ""
    limit: int = 6
    end: State | None = None
    reason: str = ""
    processes: tuple[str, ...] = ()
    ended: float | None = None
    suspended: bool = False
    deleting: bool = False


def view(job: Mapping[str, Any]) -> JobView:
    """What there is to know of a Job."""
    meta, spec, status = job["metadata"], job["spec"], job.get("status", {})
    end, condition = _end(status)
    return JobView(
        name=meta["name"],
        uid=meta.get("uid", ""),
        unit=(meta.get("labels") or {}).get(labels.UNIT, meta["name"]),
        created=seconds(meta.get("creationTimestamp")) or 0.0,
        roster=(meta.get("annotations") or {}).get(labels.ROSTER, ""),
        limit=spec.get("backoffLimit", 6),
        end=end,
        reason=_reason(spec, status, condition) if end is State.FAILED else "",
        processes=tuple(container["name"] for container in spec["template"]["spec"]["containers"]),
        ended=seconds(condition.get("lastTransitionTime")),
        suspended=bool(spec.get("suspend")),
        deleting="deletionTimestamp" in meta,
    )


def back_off(failures: int) -> int:
    """How long a Job waits after so many failures, in seconds."""
    return int(min(BACK_OFF * 2.0 ** min(max(failures - 1, 0), 64), LONGEST_BACK_OFF))


# FailureTarget comes before Failed: while the Job still ends its Pods.
_ENDS = {"Failed": State.FAILED, "FailureTarget": State.FAILED, "Complete": State.SUCCEEDED}


def _end(status: Mapping[str, Any]) -> tuple[State | None, Mapping[str, Any]]:
    for condition in status.get("conditions") or ():
        if condition["type"] in _ENDS and condition["status"] == "True":
            return _ENDS[condition["type"]], condition
    return None, {}


def _reason(
    spec: Mapping[str, Any], status: Mapping[str, Any], condition: Mapping[str, Any]
) -> str:
    reason, deadline = condition.get("reason", ""), spec.get("activeDeadlineSeconds")
    if reason == "DeadlineExceeded" and deadline:
        return f"DeadlineExceeded: ran longer than {deadline} s"
    if reason == TRIED_OUT:
        failures = status.get("failed", 0)
        return f"{TRIED_OUT}: failed {failures} times" if failures > 1 else TRIED_OUT
    return reasons.because(reason, condition.get("message", ""))
