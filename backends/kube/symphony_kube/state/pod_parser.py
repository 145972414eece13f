"""Derive the states of a Pod's containers from the Pod's API object.

All functions are pure, and their results do not depend on the current time.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodStatus describes
the fields. The field values of Kubernetes 1.20 and all later versions are supported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from symphony.plan.policies import DEADLINE_EXCEEDED
from symphony.status import ENDED, ReasonCode, State, unhealthy_reason
from symphony_kube.api import labels
from symphony_kube.api.labels import unit_of
from symphony_kube.api.resources import parse_time
from symphony_kube.record.encoded_record import NO_RECORD, record_in
from symphony_kube.render.container_scripts import STOPPED_MESSAGE
from symphony_kube.render.pod_parts.deadline import SHORTEST_DEADLINE_SECONDS
from symphony_kube.render.pod_parts.disruption_rules import CONDITION
from symphony_kube.state import reasons
from symphony_kube.state.control_state import (
    Attempt,
    after_restarts,
    decode_attempt,
    decode_control,
)
from symphony_kube.state.disruptions import find_disruption
from symphony_kube.state.log_results import decode_log_problems, decode_ready
from symphony_kube.state.pod_status import (
    DEFAULT_GRACE_SECONDS,
    FINISHED_PHASES,
    ContainerRef,
    ContainerStatus,
    PodStatus,
    UnhealthyEnd,
)
from symphony_kube.state.reasons import (
    CREATING,
    NO_REASON,
    SCHEDULING,
    Reason,
    deadline_exceeded,
    exit_unknown,
    waiting_for_queue,
)

Object = Mapping[str, Any]
# The reason of a container that the kubelet has lost.
_LOST = "ContainerStatusUnknown"
_RESULTS = (State.SUCCEEDED, State.FAILED)
# The exit codes of a container that was terminated by SIGKILL or SIGTERM.
_EXIT_CODES_OF_STOPPED = (137, 143)
# The number of failures in a row after which a probe has failed, if the probe does not set it.
_PROBE_FAILURES = 3
_UNFINISHED_PHASES = ("Pending", "Running")
# The reasons for which a Pod is not ready because its node has decided that it finishes.
_FINISHING_REASONS = ("PodCompleted", "PodFailed")
_NO_CONDITION: Object = {}
_NO_STATUS: Object = {}
_NO_NAMES: frozenset[str] = frozenset()


def parse_pod(pod: Object) -> PodStatus:
    """Parse a Pod's API object, and return the Pod's state.

    The result takes up about one hundredth of the API object's memory.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    status = pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    parser = _PodParser(pod)
    conditions = parser.conditions
    deadline = parse_time(metadata.get("deletionTimestamp"))
    delete_requested = None
    if deadline is not None:
        delete_requested = deadline - (metadata.get("deletionGracePeriodSeconds") or 0)
    # When a node stops reporting, the node controller sets the Ready condition of the node's Pods
    # to False. The kubelet always sets Ready and ContainersReady together, whereas a readiness gate
    # changes only Ready.
    ready = conditions.get("Ready", _NO_CONDITION)
    node_silent = (
        ready.get("status") == "False"
        and conditions.get("ContainersReady", _NO_CONDITION).get("status") == "True"
        and not spec.get("readinessGates")
    )
    active_deadline = spec.get("activeDeadlineSeconds")
    unit, job, attempt = _unit(metadata), _job_of(metadata), _attempt(metadata)
    created = parse_time(metadata.get("creationTimestamp")) or 0.0
    containers = parser.containers()
    return PodStatus(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        unit=unit,
        node=spec.get("nodeName", ""),
        job=job,
        created=created,
        modified=_modified(metadata),
        deadline=deadline,
        delete_requested=delete_requested,
        grace_seconds=spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS),
        phase=status.get("phase", ""),
        node_silent=node_silent,
        is_being_stopped=ready.get("reason") == "PodFailed",
        disruption=find_disruption(pod, conditions, node_silent=node_silent),
        disrupted_since=parse_time(
            conditions.get(CONDITION, _NO_CONDITION).get("lastTransitionTime")
        ),
        scheduled=_scheduled(metadata, conditions),
        attempt=attempt,
        is_stopped=active_deadline == SHORTEST_DEADLINE_SECONDS,
        probed=_probed(spec),
        refs=_container_refs(
            pod,
            parser.statuses,
            unit=unit,
            created=created,
            of_job=bool(job),
            attempt=attempt.number,
        ),
        containers=containers,
        **_parse_annotations(metadata, annotations, active_deadline, containers),
    )


def find_unhealthy_end(pod: Object, name: str, terminated: Object) -> UnhealthyEnd | None:
    """Return the end of an execution of the container ``name`` if it was stopped because it was
    unhealthy. ``terminated`` is its termination.
    """
    if STOPPED_MESSAGE not in (terminated.get("message") or ""):
        return None
    containers = {container["name"]: container for container in pod["spec"]["containers"]}
    return _PodParser(pod).unhealthy_end(containers.get(name, {}), terminated)


def _scheduled(metadata: Object, conditions: Mapping[str, Object]) -> float | None:
    """Return when the Pod of a rank was assigned to a node, or None. For other Pods, return None,
    because only units of ranks have a time limit for this.
    """
    condition = conditions.get("PodScheduled", _NO_CONDITION)
    if labels.RANK_OF not in (metadata.get("labels") or {}) or condition.get("status") != "True":
        return None
    return parse_time(condition.get("lastTransitionTime"))


def _parse_annotations(
    metadata: Object,
    annotations: Object,
    active_deadline: int | None,
    containers: Mapping[str, ContainerStatus],
) -> dict[str, Any]:
    """Return the fields of `PodStatus` that follow from the annotations of symphony.

    Most Pods have few of them.
    """
    found: dict[str, Any] = {}
    record = record_in(annotations)
    if record is not NO_RECORD:
        found["record"] = record
    if labels.CONTROL in annotations:
        found["control"] = decode_control(annotations[labels.CONTROL])
    if labels.MANIFEST in annotations:
        found["has_manifest"] = True
    if labels.DEADLINE in annotations:
        found["time_limit"] = active_deadline
    if labels.READY in annotations:
        found["ready_by_log"] = _ready_by_log(annotations[labels.READY], containers)
        found["ready_by_log_at"] = _modified(metadata, labels.READY)
    if labels.LOG_PROBLEMS in annotations:
        problems = decode_log_problems(annotations[labels.LOG_PROBLEMS])
        found["log_problems"] = tuple(problems.items())
    return found


def _ready_by_log(value: str, containers: Mapping[str, ContainerStatus]) -> frozenset[str]:
    """Return the containers that are ready according to the annotation `READY`.

    A container that was restarted later is not ready.
    """
    results = decode_ready(value)
    return frozenset(
        name for name, container in containers.items() if results.get(name) == container.restarts
    )


def _probed(spec: Object) -> frozenset[str]:
    """Return the names of the containers that have a readiness probe."""
    names = [item["name"] for item in spec["containers"] if "readinessProbe" in item]
    return frozenset(names) if names else _NO_NAMES


def _container_refs(
    pod: Object,
    statuses: Mapping[str, Object],
    *,
    unit: str,
    created: float,
    of_job: bool,
    attempt: int,
) -> tuple[ContainerRef, ...]:
    """Return a Pod's containers, except for its init containers.

    ``statuses`` contains their statuses by name.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    status = pod.get("status") or {}
    has_finished = status.get("phase") in FINISHED_PHASES
    refs = []
    for container in spec["containers"]:
        reported = statuses.get(container["name"], _NO_STATUS)
        state = next(iter(reported.get("state") or ()), "")
        restarts = int(reported.get("restartCount") or 0)
        has_run_before = restarts > 0 or bool(reported.get("lastState"))
        finished = has_finished or (state == "terminated" and _is_final(reported, pod))
        ref = ContainerRef(
            process=container["name"],
            unit=unit,
            pod=metadata["name"],
            uid=metadata.get("uid", ""),
            created=created,
            of_job=of_job,
            host=status.get("hostIP") or "",
            state=state,
            restarts=restarts,
            has_log=state in ("running", "terminated") or has_run_before,
            finished=finished,
            deleting="deletionTimestamp" in metadata,
            attempt=attempt,
            tty=bool(container.get("tty")),
        )
        refs.append(ref)
    return tuple(refs)


def _unit(metadata: Object) -> str:
    return unit_of(metadata.get("labels") or {}) or str(metadata["name"])


def _job_of(metadata: Object) -> str:
    """Return the name of the Job to which a Pod belongs, or ``""``."""
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("kind") == "Job":
            return str(owner.get("name"))
    return ""


def _attempt(metadata: Object) -> Attempt:
    attempt = decode_attempt((metadata.get("annotations") or {}).get(labels.ATTEMPT))
    restarts = (metadata.get("labels") or {}).get(labels.JOB_SET_RESTARTS, "")
    return after_restarts(attempt, int(restarts)) if restarts.isdecimal() else attempt


def _is_final(reported: Object, pod: Object) -> bool:
    """Return True if the kubelet will not restart a terminated container."""
    policy = pod["spec"].get("restartPolicy", "Always")
    exit_code: int | None = reported["state"]["terminated"].get("exitCode")
    if policy == "Never" or "deletionTimestamp" in pod["metadata"]:
        return True
    return bool(policy == "OnFailure" and exit_code == 0)


def _modified(metadata: Object, field_name: str = "") -> float | None:
    """Return when an object was last modified, or None if the time is unknown.

    If ``field_name`` is set, consider only the entries in ``managedFields`` that contain it.
    """
    times = []
    for entry in metadata.get("managedFields") or ():
        if not field_name or field_name in str(entry.get("fieldsV1")):
            time = parse_time(entry.get("time"))
            if time is not None:
                times.append(time)
    return max(times, default=None)


def _status_modified(metadata: Object) -> float | None:
    """Return when the status of an object was last modified, or None if the time is unknown.

    Later requests, which are annotations, do not change this time.
    """
    entries = metadata.get("managedFields") or ()
    of_status = [entry for entry in entries if entry.get("subresource") == "status"]
    return _modified({"managedFields": of_status or entries})


def _by_name(statuses: Sequence[Object] | None) -> dict[str, Object]:
    return {status["name"]: status for status in statuses or ()}


class _PodParser:
    """A parser that derives the state of each container in one Pod."""

    def __init__(self, pod: Object) -> None:
        self._metadata, self._spec = pod["metadata"], pod["spec"]
        self._status = pod.get("status") or {}
        self._phase = self._status.get("phase", "")
        self._queue = (self._metadata.get("labels") or {}).get(labels.QUEUE, "")
        self.conditions: Mapping[str, Object] = {
            item["type"]: item for item in self._status.get("conditions") or ()
        }
        self.statuses = _by_name(self._status.get("containerStatuses"))

    def containers(self) -> dict[str, ContainerStatus]:
        """Return a mapping from container names to states."""
        blocked = self._blocked_by_init_container()
        containers = {
            container["name"]: self._container(container, blocked)
            for container in self._spec["containers"]
        }
        if self._phase not in _UNFINISHED_PHASES:
            return containers
        if not any(container.state in _RESULTS for container in containers.values()):
            return containers
        is_finishing = all(container.state in ENDED for container in containers.values())
        if not is_finishing:
            is_finishing = self._condition("Ready").get("reason") in _FINISHING_REASONS
        for name, container in containers.items():
            if container.state not in _RESULTS:
                continue
            if is_finishing or self._has_reached_deadline(container.ended):
                containers[name] = replace(container, awaits_pod=True)
        return containers

    def _condition(self, kind: str) -> Object:
        return self.conditions.get(kind, _NO_CONDITION)

    # --- one container ---

    def _container(self, container: Object, blocked: ContainerStatus | None) -> ContainerStatus:
        status = self.statuses.get(container["name"], {})
        state = status.get("state") or {}
        restarts = status.get("restartCount", 0)
        if "terminated" in state:
            return self._terminated(container, status, state["terminated"])
        if self._phase == "Unknown" or self._status.get("reason") == "NodeLost":
            cause = exit_unknown(self._node_gone())
            return ContainerStatus(state=State.UNKNOWN, cause=cause, restarts=restarts)
        if self._phase == "Failed":
            return self._failed_with_pod(status, state, blocked)
        if self._phase == "Succeeded":
            ended = _status_modified(self._metadata)
            return ContainerStatus(state=State.SUCCEEDED, exit_code=0, ended=ended)
        if "running" in state:
            return self._running(container, status, state["running"])
        return blocked or self._waiting(container, status, state.get("waiting") or {})

    def _running(self, container: Object, status: Object, running: Object) -> ContainerStatus:
        started = parse_time(running.get("startedAt"))
        is_ready, ready_since = True, started
        if "readinessProbe" in container:
            is_ready = bool(status.get("ready"))
            ready_since = self._ready_since() if is_ready else None
        # A kubelet starts such a container again before it reports its exit.
        last = (status.get("lastState") or {}).get("terminated")
        return ContainerStatus(
            state=State.RUNNING,
            ready=is_ready,
            was_ready=is_ready,
            restarts=status.get("restartCount", 0),
            started=started,
            ready_since=ready_since,
            unhealthy_end=None if last is None else self.unhealthy_end(container, last),
        )

    def _ready_since(self) -> float | None:
        """Return when all containers became ready, or None if they are not."""
        condition = self._condition("ContainersReady")
        if condition.get("status") != "True":
            return None
        return parse_time(condition.get("lastTransitionTime"))

    def _lost_readiness(self, started: float) -> bool:
        """Return whether all containers were ready at a time after ``started``, and are not now.

        The condition of a Pod whose containers were never ready is older than their start.
        """
        condition = self._condition("ContainersReady")
        changed = parse_time(condition.get("lastTransitionTime"))
        return condition.get("status") == "False" and changed is not None and changed > started

    def _terminated(self, container: Object, status: Object, terminated: Object) -> ContainerStatus:
        exit_code: int | None = terminated.get("exitCode", 0)
        if not exit_code and terminated.get("signal"):
            exit_code = 128 + terminated["signal"]
        started = parse_time(terminated.get("startedAt"))
        ended = parse_time(terminated.get("finishedAt")) or _status_modified(self._metadata)
        end = self.unhealthy_end(container, terminated)
        state, cause = self._result(container, terminated, exit_code or 0, ended, end)
        is_lost = state is not State.PENDING and terminated.get("reason") == _LOST
        if terminated.get("reason") in reasons.START_FAILURE_REASONS:
            # The exit code and start time that the runtime reports are placeholders.
            exit_code = started = None
        elif is_lost:
            exit_code = None
            waited = _execution_before_end(status) if state is State.FAILED else None
            if waited is not None and _start_failure(waited) is None:
                exit_code = waited.get("exitCode")
                started = parse_time(waited.get("startedAt"))
                ended = parse_time(waited.get("finishedAt"))
        is_probed = "readinessProbe" in container
        restarts = status.get("restartCount", 0)
        next_start = None
        if cause.code is ReasonCode.BACKING_OFF and ended is not None:
            # A kubelet can report the delay itself many seconds later, or not at all.
            ran_seconds = ended - (ended if started is None else started)
            next_start = ended + reasons.crash_loop_seconds(restarts, ran_seconds)
        return ContainerStatus(
            state=state,
            was_ready=started is not None and (not is_probed or self._lost_readiness(started)),
            ready_since=None if is_probed else started,
            exit_code=exit_code,
            cause=cause,
            restarts=restarts,
            started=started,
            ended=ended,
            next_start=next_start,
            unhealthy_end=end,
        )

    def _result(
        self,
        container: Object,
        terminated: Object,
        exit_code: int,
        ended: float | None,
        unhealthy_end: UnhealthyEnd | None,
    ) -> tuple[State, Reason]:
        """Return the state and its reason of a process whose container has terminated."""
        has_failed = exit_code != 0 or unhealthy_end is not None
        if self._is_restarted(container, has_failed=has_failed):
            cause = Reason(_restart_cause(exit_code, unhealthy_end), ReasonCode.BACKING_OFF)
            return State.PENDING, _start_failure(terminated) or cause
        if terminated.get("reason") == _LOST:
            return self._lost(terminated)
        if unhealthy_end is not None:
            # The exit code only says how the process reacts to its stop.
            text = unhealthy_reason("", unhealthy_end.failed_tests)
            return State.FAILED, Reason(text, ReasonCode.UNHEALTHY)
        if exit_code:
            return State.FAILED, self._failure(container, terminated, exit_code)
        if self._was_stopped_with_pod(ended):
            # A process that exits with 0 when it is stopped has not finished its work.
            return State.FAILED, self._pod_reason() or NO_REASON
        return State.SUCCEEDED, NO_REASON

    def _was_stopped_with_pod(self, ended: float | None) -> bool:
        """Return whether a process exited because its Pod exceeded its deadline or was evicted.

        Pods that symphony stops on request have the shortest deadline.
        """
        if self._phase != "Failed":
            return False
        if self._status.get("reason") == "DeadlineExceeded":
            is_stopped = _is_stopped_on_request(self._spec)
            return not is_stopped and self._has_reached_deadline(ended)
        disruption = self._condition(CONDITION)
        since = parse_time(disruption.get("lastTransitionTime"))
        if disruption.get("status") != "True" or since is None:
            return False
        return ended is not None and ended >= since

    def unhealthy_end(self, container: Object, terminated: Object) -> UnhealthyEnd | None:
        """Return the end of an execution if it was stopped because it was unhealthy, or None.

        The status of a Pod does not contain this. However, it contains that the kubelet has stopped
        the container, whose reason is the liveness probe unless the status shows another one.
        """
        probe = container.get("livenessProbe")
        if probe is None or STOPPED_MESSAGE not in (terminated.get("message") or ""):
            return None
        ended = parse_time(terminated.get("finishedAt"))
        if ended is None or terminated.get("reason") == "OOMKilled":
            return None
        if _is_stopped_on_request(self._spec):
            # The deadline, and the reason of the Pod, are those of the request.
            has_ended_with_pod = False
        else:
            has_ended_with_pod = self._has_reached_deadline(ended) or self._pod_reason() is not None
        if has_ended_with_pod or ended >= _stop_time(self._metadata, self._spec):
            return None
        started = parse_time(terminated.get("startedAt"))
        failures = int(probe.get("failureThreshold", _PROBE_FAILURES))
        return UnhealthyEnd(failures, terminated.get("exitCode"), started, ended)

    def _has_reached_deadline(self, ended: float | None) -> bool:
        """Return whether a process exited after the active deadline of its Pod."""
        limit: int | None = self._spec.get("activeDeadlineSeconds")
        started = parse_time(self._status.get("startTime"))
        if limit is None or started is None or ended is None:
            return False
        return ended >= started + limit

    def _failure(self, container: Object, terminated: Object, exit_code: int) -> Reason:
        if terminated.get("reason") == "OOMKilled":
            resources = container.get("resources") or {}
            limit = (resources.get("limits") or {}).get("memory")
            text = f"OOMKilled: more than its memory limit of {limit}" if limit else "OOMKilled"
            return Reason(text, ReasonCode.OUT_OF_MEMORY)
        pod_reason = self._pod_reason()
        if pod_reason is not None and exit_code in _EXIT_CODES_OF_STOPPED:
            return pod_reason
        return _start_failure(terminated) or reasons.exited(exit_code)

    def _lost(self, terminated: Object) -> tuple[State, Reason]:
        """Return the state and its reason of a process whose container the kubelet has lost.

        The exit code that the kubelet reports for such a container is a placeholder.
        """
        pod_reason = self._pod_reason()
        if pod_reason is not None:
            return State.FAILED, pod_reason
        if self._was_disrupted_by("DeletionByPodGC"):
            why = self._node_gone()
        else:
            why = reasons.shorten(terminated.get("message", "")).lower()
        return State.UNKNOWN, exit_unknown(why or "its container was lost")

    def _failed_with_pod(
        self, status: Object, state: Object, blocked: ContainerStatus | None
    ) -> ContainerStatus:
        """Return the state of a container that has not terminated although its Pod has failed."""
        pod_reason = self._pod_reason()
        if blocked is not None and pod_reason is None:
            cause = replace(blocked.cause, code=ReasonCode.NEVER_STARTED)
            return replace(blocked, state=State.FAILED, cause=cause)
        running = "running" in state
        parsed = ContainerStatus(
            restarts=status.get("restartCount", 0),
            started=parse_time((state.get("running") or {}).get("startedAt")),
            ended=_status_modified(self._metadata),
        )
        if self._was_disrupted_by("DeletionByPodGC") or (running and pod_reason is None):
            return replace(parsed, state=State.UNKNOWN, cause=exit_unknown(self._node_gone()))
        never_started = Reason("never started: its Pod failed", ReasonCode.NEVER_STARTED)
        cause = pod_reason or never_started
        return replace(parsed, state=State.FAILED, cause=cause, stopping=running)

    def _is_restarted(self, container: Object, *, has_failed: bool) -> bool:
        """Return whether the kubelet restarts a container that has exited."""
        if self._phase in FINISHED_PHASES or "deletionTimestamp" in self._metadata:
            return False
        pod_policy = self._spec.get("restartPolicy", "Always")
        policy = container.get("restartPolicy") or pod_policy
        return policy == "Always" or (policy == "OnFailure" and has_failed)

    # --- the Pod ---

    def _pod_reason(self) -> Reason | None:
        """Return why Kubernetes terminated the entire Pod, or None if it did not."""
        reason = self._status.get("reason", "")
        deadline = self._spec.get("activeDeadlineSeconds")
        if reason == "DeadlineExceeded" and deadline:
            if labels.DEADLINE in (self._metadata.get("annotations") or {}):
                return Reason(DEADLINE_EXCEEDED, ReasonCode.DEADLINE_EXCEEDED)
            return deadline_exceeded(deadline)
        if reason and self._phase == "Failed":
            return reasons.pod_ended(reason, self._status.get("message", ""))
        disruption = self._condition(CONDITION)
        if disruption.get("status") == "True" and disruption.get("reason"):
            return reasons.pod_ended(disruption["reason"], disruption.get("message", ""))
        return None

    def _was_disrupted_by(self, reason: str) -> bool:
        return self._condition(CONDITION).get("reason") == reason

    def _node_gone(self) -> str:
        node = self._spec.get("nodeName")
        return f"node {node} is gone" if node else "its node is gone"

    # --- not started yet ---

    def _waiting(self, container: Object, status: Object, waiting: Object) -> ContainerStatus:
        last = (status.get("lastState") or {}).get("terminated") or {}
        exit_code = last.get("exitCode")
        started = parse_time(last.get("startedAt"))
        if _start_failure(last) is not None:
            exit_code, started = None, None
        cause = self._waiting_reason(container, status, waiting, last)
        return ContainerStatus(
            cause=cause,
            exit_code=exit_code,
            restarts=status.get("restartCount", 0),
            started=started,
            ended=parse_time(last.get("finishedAt")),
            next_start=_next_start(cause, waiting, last),
            unhealthy_end=self.unhealthy_end(container, last),
        )

    def _waiting_reason(
        self, container: Object, status: Object, waiting: Object, last: Object
    ) -> Reason:
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if not reason:
            return self._scheduling_reason()
        if reason in ("ContainerCreating", "PodInitializing"):
            return self._creating_reason(container, status)
        if reason in reasons.IMAGE_REASONS:
            text = reasons.image_unavailable(reason, container.get("image", ""), message)
            return Reason(text, ReasonCode.IMAGE_UNAVAILABLE)
        if reason == "CrashLoopBackOff":
            why = _restart_cause(last.get("exitCode"), self.unhealthy_end(container, last))
            text = f"CrashLoopBackOff, {why}"
            return _start_failure(last) or Reason(text, ReasonCode.BACKING_OFF)
        if reason in reasons.START_FAILURE_REASONS:
            return Reason(reasons.start_failure(message), ReasonCode.CANNOT_START)
        # For example, the reason is CreateContainerConfigError if the environment refers to a
        # missing Secret.
        return Reason(reasons.with_message(reason, message), ReasonCode.CANNOT_START)

    def _scheduling_reason(self) -> Reason:
        """Return why the Pod has no node, or `CREATING` if its node is setting the Pod up."""
        scheduled = self._condition("PodScheduled")
        if scheduled.get("status") != "False":
            return CREATING if self._spec.get("nodeName") else SCHEDULING
        reason, message = scheduled.get("reason", ""), scheduled.get("message", "")
        if reason == "SchedulingGated" and self._queue:
            return waiting_for_queue(self._queue)
        if reason == "Unschedulable":
            return Reason(reasons.unschedulable(message), ReasonCode.UNSCHEDULABLE)
        return Reason(reasons.with_message(reason, message), ReasonCode.SCHEDULING)

    def _creating_reason(self, container: Object, status: Object) -> Reason:
        """Return what a container waits for while it is being created.

        Since version 1.29, Kubernetes reports whether the Pod's sandbox is ready. Once the sandbox
        is ready, the container waits only for its image.
        """
        sandbox = self._condition("PodReadyToStartContainers")
        if sandbox.get("status") == "True" and not status.get("imageID"):
            return Reason(f"pulling image {container.get('image', '')}", ReasonCode.PULLING_IMAGE)
        return CREATING

    def _blocked_by_init_container(self) -> ContainerStatus | None:
        """Return the state of containers that wait for an init container, or None if none wait."""
        statuses = _by_name(self._status.get("initContainerStatuses"))
        for container in self._spec.get("initContainers") or ():
            status = statuses.get(container["name"])
            if status is None:
                return None
            state = status.get("state") or {}
            sidecar = container.get("restartPolicy") == "Always"
            if "terminated" in state and state["terminated"].get("exitCode") == 0:
                continue
            if sidecar and status.get("started"):
                continue
            return self._init_container(container, status, state)
        return None

    def _init_container(self, container: Object, status: Object, state: Object) -> ContainerStatus:
        """Return the state of the containers that wait for the init container ``container``."""
        subject = f"init container {container['name']!r}"
        terminated = state.get("terminated")
        if terminated is not None:
            ended = parse_time(terminated.get("finishedAt"))
            return ContainerStatus(cause=_init_failure(subject, terminated), ended=ended)
        if "running" in state:
            return ContainerStatus(cause=Reason(f"{subject} is running", ReasonCode.CREATING))
        waiting = state.get("waiting") or {}
        last = (status.get("lastState") or {}).get("terminated") or {}
        reason = self._waiting_reason(container, status, waiting, last)
        if reason not in (CREATING, SCHEDULING):
            reason = replace(reason, text=f"{subject}: {reason.text}")
        return ContainerStatus(cause=reason, next_start=_next_start(reason, waiting, last))


def _execution_before_end(status: Object) -> Object | None:
    """Return how the latest execution of a container ended that waited for its restart when its Pod
    ended, or None if it ran.

    A kubelet reports that it does not know the state of such a container.
    """
    last: Object | None = (status.get("lastState") or {}).get("terminated")
    identifier = status.get("containerID")
    return last if last and identifier and last.get("containerID") == identifier else None


def _is_stopped_on_request(spec: Object) -> bool:
    """Return whether symphony has stopped a Pod on request."""
    return bool(spec.get("activeDeadlineSeconds") == SHORTEST_DEADLINE_SECONDS)


def _stop_time(metadata: Object, spec: Object) -> float:
    """Return the time in seconds since the epoch at which a Pod was requested to stop.

    It is infinity if there is no request, and 0 if the time is not known any more.
    """
    times = [math.inf]
    if _is_stopped_on_request(spec):
        annotations = metadata.get("annotations") or {}
        # Kubernetes reports times in whole seconds.
        times.append(math.floor(decode_control(annotations.get(labels.CONTROL)).stop))
    deadline = parse_time(metadata.get("deletionTimestamp"))
    if deadline is not None:
        # The kubelet sets this to 0 when it removes the Pod.
        grace = metadata.get("deletionGracePeriodSeconds") or 0
        times.append(deadline - grace if grace else 0.0)
    return min(times)


def _restart_cause(exit_code: int | None, unhealthy_end: UnhealthyEnd | None) -> str:
    """Return why a container is restarted."""
    if unhealthy_end is not None:
        return unhealthy_reason("", unhealthy_end.failed_tests)
    return f"exit code {'unknown' if exit_code is None else exit_code}"


def _next_start(reason: Reason, waiting: Object, last: Object) -> float | None:
    """Return the earliest time at which a container that backs off is restarted.

    ``last`` is its latest termination. Return None if the container does not back off.
    """
    ended = parse_time(last.get("finishedAt"))
    if reason.code is not ReasonCode.BACKING_OFF or ended is None:
        return None
    return ended + reasons.restart_delay_seconds(waiting.get("message", ""))


def _init_failure(subject: str, terminated: Object) -> Reason:
    start_failure = _start_failure(terminated)
    if start_failure is not None:
        return replace(start_failure, text=f"{subject} {start_failure.text}")
    text = f"{subject} failed with exit code {terminated.get('exitCode')}"
    text = reasons.with_message(text, terminated.get("message", ""))
    return Reason(text, ReasonCode.CANNOT_START)


def _start_failure(terminated: Object) -> Reason | None:
    """Return why a container's command did not start, or None if the command started."""
    if terminated.get("reason") not in reasons.START_FAILURE_REASONS:
        return None
    text = reasons.start_failure(terminated.get("message", ""))
    return Reason(text, ReasonCode.CANNOT_START)
