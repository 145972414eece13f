"""What the object of a Pod tells of its containers, whatever the time is. Pure.

The fields are those of https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodStatus;
of the values, those of 1.20 to the newest are known.
"""

from __future__ import annotations

import calendar
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from symphony.status import State
from symphony_kube.api import labels as names
from symphony_kube.status import reasons

Object = Mapping[str, Any]

GONE = "nobody saw its end"
CREATING = "ContainerCreating"
SCHEDULING = "being scheduled"

_KILLED = (137, 143)
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What is known of one process; an `symphony.plan.start_order.Awaited`. Times are seconds since the epoch.

    ``ready_since`` is None where nobody knows. ``dying`` says that it was told to end and has not yet.
    """

    state: State = State.PENDING
    ready: bool = False
    was_ready: bool = False
    never_ready: bool = False
    exit_code: int | None = None
    reason: str = ""
    restarts: int = 0
    started: float | None = None
    ended: float | None = None
    ready_since: float | None = None
    dying: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """What a Pod tells. ``noted`` are those who were seen ready by the log.

    ``deleting`` is when it should be gone, ``asked`` when somebody asked for that, ``grace`` what its processes get
    to end, in seconds.
    ``probed`` are the containers that Kubernetes tests for being ready. ``before`` is how its containers were
    before it was to be deleted, where that was seen. ``silent`` says that its node does not answer.
    """

    name: str
    uid: str
    unit: str
    node: str = ""
    of_job: bool = False
    created: float = 0.0
    written: float | None = None
    deleting: float | None = None
    asked: float | None = None
    grace: float = 30.0
    phase: str = ""
    silent: bool = False
    roster: str = ""
    noted: frozenset[str] = frozenset()
    noted_at: float | None = None
    probed: frozenset[str] = frozenset()
    containers: Mapping[str, Track] = field(default_factory=dict)
    before: Mapping[str, Track] | None = None


def view(pod: Object) -> PodView:
    """What there is to know of a Pod, and none of the rest: an object of the API takes a hundred times the memory."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    annotations = meta.get("annotations") or {}
    labels = meta.get("labels") or {}
    ready = _condition(status, "Ready")
    deleting = seconds(meta.get("deletionTimestamp"))
    silent = (
        ready.get("status") == "False"
        and _condition(status, "ContainersReady").get("status") == "True"
    )
    return PodView(
        name=meta["name"],
        uid=meta.get("uid", ""),
        unit=labels.get(names.UNIT, meta["name"]),
        node=spec.get("nodeName", ""),
        of_job=any(owner.get("kind") == "Job" for owner in meta.get("ownerReferences") or ()),
        created=seconds(meta.get("creationTimestamp")) or 0.0,
        written=_written(meta),
        deleting=deleting,
        asked=None
        if deleting is None
        else deleting - (meta.get("deletionGracePeriodSeconds") or 0),
        grace=spec.get("terminationGracePeriodSeconds", 30),
        phase=status.get("phase", ""),
        silent=silent and not spec.get("readinessGates"),
        roster=annotations.get(names.ROSTER, ""),
        noted=frozenset(filter(None, annotations.get(names.READY, "").split(","))),
        noted_at=_written(meta, names.READY) if names.READY in annotations else None,
        probed=frozenset(
            container["name"] for container in spec["containers"] if "readinessProbe" in container
        ),
        containers=_Pod(meta, spec, status).tracks(),
    )


@functools.lru_cache(maxsize=4096)
def seconds(time: str | None) -> float | None:
    """A time of the API in seconds since the epoch. Its zero stands for a thing that never happened."""
    if not time:
        return None
    try:
        parts = [
            int(time[begin:end])
            for begin, end in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))
        ]
    except ValueError:
        return None
    return float(calendar.timegm((*parts, 0, 0, 0))) or None


def _written(meta: Object, what: str = "") -> float | None:
    """When the object, or a part of its metadata, was last written."""
    entries = meta.get("managedFields") or ()
    times = (
        seconds(entry.get("time"))
        for entry in entries
        if not what or what in str(entry.get("fieldsV1"))
    )
    return max((time for time in times if time), default=None)


def _condition(status: Object, kind: str) -> Object:
    return next((item for item in status.get("conditions") or () if item["type"] == kind), {})


def _by_name(statuses: Sequence[Object] | None) -> dict[str, Object]:
    return {status["name"]: status for status in statuses or ()}


class _Pod:
    """One reading of a Pod."""

    def __init__(self, meta: Object, spec: Object, status: Object) -> None:
        self.meta = meta
        self.spec = spec
        self.status = status
        self.phase = status.get("phase", "")
        self.over = self.phase in _OVER
        self.policy = spec.get("restartPolicy", "Always")
        self.known = _by_name(status.get("containerStatuses"))

    def tracks(self) -> dict[str, Track]:
        """Each container by its name."""
        held_up = self._held_up()
        since = None
        ready = _condition(self.status, "ContainersReady")
        if ready.get("status") == "True":
            since = seconds(ready.get("lastTransitionTime"))
        return {
            container["name"]: replace(track, ready_since=since) if track.ready and since else track
            for container in self.spec["containers"]
            for track in [self._track(container, held_up)]
        }

    # --- one container ---

    def _track(self, container: Object, held_up: Track | None) -> Track:
        status = self.known.get(container["name"], {})
        state = status.get("state") or {}
        if "terminated" in state:
            return self._terminated(container, status, state["terminated"])
        if self.phase == "Unknown" or self.status.get("reason") == "NodeLost":
            return Track(
                state=State.UNKNOWN,
                reason=f"{GONE}: {self._lost()}",
                restarts=status.get("restartCount", 0),
            )
        if self.phase == "Failed":
            return self._failed_with_pod(status, state, held_up)
        if self.phase == "Succeeded":
            return Track(state=State.SUCCEEDED, exit_code=0, ended=_written(self.meta))
        if "running" in state:
            return Track(
                state=State.RUNNING,
                ready=bool(status.get("ready")),
                restarts=status.get("restartCount", 0),
                started=seconds(state["running"].get("startedAt")),
            )
        return held_up or self._waiting(container, status, state.get("waiting") or {})

    def _terminated(self, container: Object, status: Object, end: Object) -> Track:
        code = end.get("exitCode", 0) or (128 + end["signal"] if end.get("signal") else 0)
        track = Track(
            exit_code=code,
            restarts=status.get("restartCount", 0),
            started=seconds(end.get("startedAt")),
            ended=seconds(end.get("finishedAt")) or _written(self.meta),
        )
        if end.get("reason") in reasons.CANNOT_START:
            track = replace(track, exit_code=None, started=None)
        if self._again(container, code):
            return replace(track, reason=_cannot_start(end) or reasons.restarts(track.exit_code))
        if end.get("reason") == "ContainerStatusUnknown":
            return self._unseen(track, end)
        if code == 0:
            return replace(track, state=State.SUCCEEDED)
        return replace(track, state=State.FAILED, reason=self._end_reason(container, end, code))

    def _end_reason(self, container: Object, end: Object, code: int) -> str:
        of_pod = self._pod_reason()
        if of_pod and code in _KILLED and end.get("reason") != "OOMKilled":
            return of_pod
        if end.get("reason") == "OOMKilled":
            limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
            return f"OOMKilled: more than its memory limit of {limit}" if limit else "OOMKilled"
        return _cannot_start(end) or reasons.exit_reason(code)

    def _unseen(self, track: Track, end: Object) -> Track:
        """A container of which the kubelet found no trace: the exit code is made up."""
        reason = self._pod_reason()
        if reason:
            return replace(track, state=State.FAILED, exit_code=None, reason=reason)
        why = (
            self._lost()
            if self._disrupted("DeletionByPodGC")
            else reasons.short(end.get("message", "")).lower()
        )
        return replace(
            track,
            state=State.UNKNOWN,
            exit_code=None,
            reason=f"{GONE}: {why or 'its container was lost'}",
        )

    def _failed_with_pod(self, status: Object, state: Object, held_up: Track | None) -> Track:
        """A container that has no end of its own in a Pod that failed."""
        if held_up is not None and not self._pod_reason():
            return replace(held_up, state=State.FAILED)
        track = Track(
            restarts=status.get("restartCount", 0),
            started=seconds((state.get("running") or {}).get("startedAt")),
            ended=_written(self.meta),
        )
        reason = self._pod_reason()
        if self._disrupted("DeletionByPodGC") or ("running" in state and not reason):
            return replace(track, state=State.UNKNOWN, reason=f"{GONE}: {self._lost()}")
        reason = reason or "never started: its Pod failed"
        return replace(track, state=State.FAILED, reason=reason, dying="running" in state)

    def _again(self, container: Object, code: int) -> bool:
        """Whether a container that ended with ``code`` is started again."""
        policy = container.get("restartPolicy") or self.policy
        stays = self.over or "deletionTimestamp" in self.meta
        return not stays and (policy == "Always" or (policy == "OnFailure" and code != 0))

    # --- the Pod ---

    def _pod_reason(self) -> str:
        """Why the Pod as a whole was ended, or ``""``."""
        reason = self.status.get("reason", "")
        deadline = self.spec.get("activeDeadlineSeconds")
        if reason == "DeadlineExceeded" and deadline:
            return f"DeadlineExceeded: ran longer than {deadline} s"
        if reason and self.phase == "Failed":
            return reasons.because(reason, self.status.get("message", ""))
        target = _condition(self.status, "DisruptionTarget")
        if target.get("status") == "True":
            return reasons.because(target.get("reason", ""), target.get("message", ""))
        return ""

    def _disrupted(self, reason: str) -> bool:
        return _condition(self.status, "DisruptionTarget").get("reason") == reason

    def _lost(self) -> str:
        node = self.spec.get("nodeName")
        return f"node {node} is gone" if node else "its node is gone"

    # --- not started yet ---

    def _waiting(self, container: Object, status: Object, waiting: Object) -> Track:
        last = (status.get("lastState") or {}).get("terminated") or {}
        cannot = last.get("reason") in reasons.CANNOT_START
        code = None if cannot or not last else last.get("exitCode")
        return Track(
            reason=self._wait_reason(container, status, waiting, last),
            exit_code=code,
            restarts=status.get("restartCount", 0),
            started=None if cannot else seconds(last.get("startedAt")),
            ended=seconds(last.get("finishedAt")),
        )

    def _wait_reason(self, container: Object, status: Object, waiting: Object, last: Object) -> str:
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if not reason:
            return self._placing()
        if reason in ("ContainerCreating", "PodInitializing"):
            return self._creating(container, status)
        if reason in reasons.IMAGE:
            return reasons.image(reason, container.get("image", ""), message)
        if reason == "CrashLoopBackOff":
            return _cannot_start(last) or reasons.restarts(last.get("exitCode"), message)
        if reason in reasons.CANNOT_START:
            return reasons.cannot_start(message)
        return reasons.because(reason, message)

    def _placing(self) -> str:
        """Why a Pod is on no node, or how it gets ready there."""
        scheduled = _condition(self.status, "PodScheduled")
        if scheduled.get("status") == "False":
            reason, message = scheduled.get("reason", ""), scheduled.get("message", "")
            return (
                reasons.unschedulable(message)
                if reason == "Unschedulable"
                else reasons.because(reason, message)
            )
        return CREATING if self.spec.get("nodeName") else SCHEDULING

    def _creating(self, container: Object, status: Object) -> str:
        """What a container that is being created waits for; from 1.29 on the Pod tells when its sandbox is there."""
        there = _condition(self.status, "PodReadyToStartContainers").get("status") == "True"
        return (
            f"pulling image {container.get('image', '')}"
            if there and not status.get("imageID")
            else CREATING
        )

    def _held_up(self) -> Track | None:
        """How the first init container that is not done holds up the others, or None."""
        known = _by_name(self.status.get("initContainerStatuses"))
        for container in self.spec.get("initContainers") or ():
            status = known.get(container["name"])
            if status is None:
                return None
            state = status.get("state") or {}
            sidecar = container.get("restartPolicy") == "Always"
            if "terminated" in state and state["terminated"].get("exitCode") == 0:
                continue
            if sidecar and status.get("started"):
                continue
            return self._init(container, status, state)
        return None

    def _init(self, container: Object, status: Object, state: Object) -> Track:
        who = f"init container {container['name']!r}"
        end = state.get("terminated")
        if end is not None:
            why = _cannot_start(end) or f"failed with exit code {end.get('exitCode')}"
            reason = reasons.because(
                f"{who} {why}", end.get("message", "") if "failed" in why else ""
            )
            return Track(reason=reason, ended=seconds(end.get("finishedAt")))
        if "running" in state:
            return Track(reason=f"{who} runs")
        waiting = state.get("waiting") or {}
        last = (status.get("lastState") or {}).get("terminated") or {}
        reason = self._wait_reason(container, status, waiting, last)
        return Track(reason=reason if reason in (CREATING, SCHEDULING) else f"{who}: {reason}")


def _cannot_start(end: Object) -> str:
    if end.get("reason") in reasons.CANNOT_START:
        return reasons.cannot_start(end.get("message", ""))
    return ""
