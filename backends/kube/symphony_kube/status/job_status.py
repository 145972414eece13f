"""Read a Job's retries and result from its API object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symphony.status import ReasonCode, State
from symphony_kube.api import labels
from symphony_kube.status import reasons
from symphony_kube.status.control_state import (
    FIRST_ATTEMPT,
    NO_CONTROL,
    Attempt,
    Control,
    decode_attempt,
    decode_control,
)
from symphony_kube.status.pod_status import deadline_exceeded, parse_time, unit_of
from symphony_kube.status.reasons import NO_REASON, Reason

Object = Mapping[str, Any]

# The first and the longest delay, in seconds, before the Job controller retries. The delay doubles
# with each failure.
FIRST_BACK_OFF_SECONDS, MAX_BACK_OFF_SECONDS = 10, 360
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
# The Job controller sets FailureTarget before Failed, while it is still terminating the Pods.
_RESULTS = {"Failed": State.FAILED, "FailureTarget": State.FAILED, "Complete": State.SUCCEEDED}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The state of a Job.

    ``result`` is `State.SUCCEEDED`, `State.FAILED`, or None while the Job is active.
    ``backoff_limit`` is the maximum number of retries, and ``processes`` contains the names of the
    containers in the Job's Pods. Times are seconds since the epoch.
    """

    name: str
    uid: str
    unit: str
    created: float = 0.0
    roster: str = ""
    problems: str = ""
    ending: str = ""
    policies: str = ""
    changes: str = ""
    attempt: Attempt = FIRST_ATTEMPT
    control: Control = NO_CONTROL
    has_manifest: bool = False
    backoff_limit: int = 6
    result: State | None = None
    reason: Reason = NO_REASON
    retries_exhausted: bool = False
    processes: tuple[str, ...] = ()
    ended: float | None = None
    suspended: bool = False
    queue: str = ""
    deleting: bool = False


def parse_job(job: Object) -> JobStatus:
    """Return the state of a Job from its API object."""
    metadata, spec, status = job["metadata"], job["spec"], job.get("status", {})
    labels_of_job = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    result, condition = _result(status)
    failed = result is State.FAILED
    containers = spec["template"]["spec"]["containers"]
    return JobStatus(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        unit=unit_of(labels_of_job) or metadata["name"],
        created=parse_time(metadata.get("creationTimestamp")) or 0.0,
        roster=annotations.get(labels.ROSTER, ""),
        problems=annotations.get(labels.PROBLEMS, ""),
        ending=annotations.get(labels.ENDING, ""),
        policies=annotations.get(labels.POLICIES, ""),
        changes=annotations.get(labels.CHANGES, ""),
        attempt=decode_attempt(annotations.get(labels.ATTEMPT)),
        control=decode_control(annotations.get(labels.CONTROL)),
        has_manifest=labels.MANIFEST in annotations,
        backoff_limit=spec.get("backoffLimit", 6),
        result=result,
        reason=_failure_reason(spec, status, condition) if failed else NO_REASON,
        retries_exhausted=failed and condition.get("reason") == BACKOFF_LIMIT_EXCEEDED,
        processes=tuple(container["name"] for container in containers),
        ended=parse_time(condition.get("lastTransitionTime")),
        suspended=bool(spec.get("suspend")),
        queue=labels_of_job.get(labels.QUEUE, ""),
        deleting="deletionTimestamp" in metadata,
    )


def back_off_seconds(failures: int) -> int:
    """Return the delay in seconds before a Job's next retry after ``failures`` failures."""
    doublings = min(max(failures - 1, 0), 64)
    return int(min(FIRST_BACK_OFF_SECONDS * 2.0**doublings, MAX_BACK_OFF_SECONDS))


def _result(status: Object) -> tuple[State | None, Object]:
    """Return a Job's result, and the condition that reports it."""
    for condition in status.get("conditions") or ():
        if condition["type"] in _RESULTS and condition["status"] == "True":
            return _RESULTS[condition["type"]], condition
    return None, {}


def _failure_reason(spec: Object, status: Object, condition: Object) -> Reason:
    reason = condition.get("reason", "")
    deadline = spec.get("activeDeadlineSeconds")
    if reason == "DeadlineExceeded":
        if deadline:
            return deadline_exceeded(deadline)
        text = reasons.with_message(reason, condition.get("message", ""))
        return Reason(text, ReasonCode.DEADLINE_EXCEEDED)
    if reason == BACKOFF_LIMIT_EXCEEDED:
        failures = status.get("failed", 0)
        text = f"{reason}: failed {failures} times" if failures > 1 else reason
        return Reason(text, ReasonCode.EXITED)
    return Reason(reasons.with_message(reason, condition.get("message", "")), ReasonCode.EXITED)
