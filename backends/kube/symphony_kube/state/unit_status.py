"""Compute the states of a unit's processes from its Pods and Job, without any input or output."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from symphony.events import exit_text
from symphony.plan.disruption import (
    Disruption,
    DisruptionCause,
    lost_text,
    started_again_text,
)
from symphony.plan.restart_policy import RestartPolicy
from symphony.status import ENDED, ReasonCode, State
from symphony_kube.render.roster import Unit
from symphony_kube.state.control_state import FIRST_ATTEMPT, NO_CONTROL, Attempt, Control
from symphony_kube.state.disruptions import POD_DELETED as WAS_DELETED
from symphony_kube.state.job_status import JobStatus, back_off_seconds
from symphony_kube.state.pod_status import (
    CREATING,
    NOT_CREATED,
    SCHEDULING,
    ContainerStatus,
    PodStatus,
    exit_unknown,
    waiting_for_queue,
)
from symphony_kube.state.predictions import find_lateness, find_next_start
from symphony_kube.state.reasons import NO_REASON, Reason

# If a Pod still exists this long after its deadline, its node is considered lost.
OVERDUE_SECONDS = 30.0
# How long after the grace period a process in a failed Pod can still be running.
KILL_SECONDS = 5.0
# A Job that has had no Pod for this long is considered blocked. Only its events show the cause.
JOB_BLOCKED_SECONDS = 10.0

# How long the creation of the next attempt can take.
REPLACE_SECONDS = 60.0

POD_DELETED = exit_unknown(WAS_DELETED)
POD_REMOVED = Disruption(cause=DisruptionCause.REMOVED, detail=WAS_DELETED)
NO_RESTART = Reason("its Pod was deleted before its restart", ReasonCode.EXITED)
NOT_REPLACED = exit_unknown("its new Pod does not exist; start it again")
STOPPED = Reason("stopped", ReasonCode.STOPPED)
STOPPING = Reason("stopping", ReasonCode.STOPPING)
START_REQUESTED = Reason(
    "waiting to be started on request; if the command was interrupted, repeat it",
    ReasonCode.WAITING,
)
POD_DELETING = Reason("its Pod is being deleted", ReasonCode.DELETING)

Containers = dict[str, ContainerStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A restart that the restart policy of a unit requires, and that the supervisor performs.

    ``cause`` is the exit that is the reason, and ``time`` the time of the restart in seconds since
    the epoch.
    """

    cause: str
    time: float
    in_row: int


def policy_of(unit: Unit) -> RestartPolicy:
    """Return the restart policy of a unit, whether Kubernetes or the supervisor applies it."""
    if unit.supervised_restart:
        return RestartPolicy.of(unit.supervised_restart)
    return RestartPolicy(policy=unit.restart)


class UnitStatus:
    """The states of a unit's processes in its latest attempt.

    ``containers`` maps process names to states. The states are valid until one of the unit's
    objects changes. If ``valid_until`` is not None, they are valid at most until this time, in
    seconds since the epoch. ``executions`` contains the states of the attempt alone, whatever
    follows from them. ``control`` contains the requests for the attempt. ``has_ended`` is true if
    no process of the attempt is running or can start. ``retry`` is the restart that the supervisor
    has to request, or None. ``disruption`` is what has ended the attempt, if the
    supervisor has to start the unit again because of it, or None; see `symphony.plan.disruption`.
    ``restarts`` is the number of restarts of the next attempt.
    ``pods`` and ``job`` are the objects of the attempt, of which ``pods[-1]`` is the newest. There
    are none if the Pod of the attempt was deleted. ``removed_job`` is the Job of the attempt if it
    has finished and no longer exists.

    If ``supervising`` is true, a supervisor creates the next attempt if its creation has begun, so
    the processes are pending for as long as this takes.
    """

    def __init__(
        self,
        unit: Unit,
        pods: list[PodStatus],
        job: JobStatus | None,
        deleted_pod: PodStatus | None,
        now: float,
        *,
        supervising: bool = False,
        removed_job: JobStatus | None = None,
    ) -> None:
        self._unit = unit
        self._deleted_pod = deleted_pod
        self._supervising = supervising
        self._job = job or removed_job
        self._now = now
        self._pods = self.pods = pods
        self.job = job
        self._pod = _current_pod(pods, self._job)
        self.valid_until: float | None = None
        if self._pod is not None:
            computed = self._with_pod(self._pod)
        else:
            computed = self._without_pod(deleted_pod)
        self.containers: Containers = {
            name: computed.get(name, NOT_CREATED) for name in unit.processes
        }
        self.attempt, self.control = self._latest_attempt()
        has_started = any(item.started is not None for item in self.containers.values())
        restarts = max((item.restarts for item in self.containers.values()), default=0)
        self.executions: Containers = self.containers
        self.has_ended = False
        self.retry: Retry | None = None
        self.disruption: Disruption | None = None
        self._apply_control()
        self.restarts = self.attempt.restarts + restarts
        if self.disruption is None and self.control.code != ReasonCode.DISRUPTED.value:
            self.restarts += has_started

    def remember_ready(self, ready_times: dict[tuple[str, str], float]) -> None:
        """Record which processes became ready, and restore the readiness that earlier calls
        recorded.

        ``ready_times`` maps each pair of a Pod's UID and a process name to the time at which the
        process became ready. This method updates the mapping.
        """
        if self._pod is None:
            return
        for name, container in self.containers.items():
            key = (self._pod.uid, name)
            if container.was_ready:
                since = ready_times.setdefault(key, container.ready_since or self._now)
            elif key in ready_times:
                since = ready_times[key]
                if container.never_ready:
                    # The process became ready in time and has become unready since then.
                    container = replace(container, never_ready=False, cause=NO_REASON)
            else:
                continue
            ready_since = container.ready_since or since
            if not container.was_ready or container.ready_since != ready_since:
                container = replace(container, was_ready=True, ready_since=ready_since)
            self.containers[name] = container

    @property
    def exists(self) -> bool:
        """True if the attempt has a Pod or a Job, in which requests can be recorded."""
        return bool(self.pods) or self.job is not None

    @property
    def pod_without_exits(self) -> PodStatus | None:
        """The Pod that is being stopped and whose exits Kubernetes does not report, or None.

        Kubernetes 1.20 reports at once that a Pod has failed which has exceeded its active
        deadline, and later versions when its containers have exited.
        """
        if self.has_ended or not self.control.stop or not self.pods:
            return None
        pod = self.pods[-1]
        is_running = any(ref.state == "running" for ref in pod.refs)
        return pod if pod.phase == "Failed" and is_running else None

    @property
    def waits_for_start(self) -> bool:
        """True if the next attempt is to be created, and this one has ended."""
        return bool(self.control.start) and self.has_ended and not self.control.replaced

    def is_requested_by(self, command: str, number: int) -> bool:
        """Return whether a command on attempt ``number`` of the unit was recorded, or is no longer
        necessary.
        """
        if self.attempt.number != number or self.control.replaced or not self.exists:
            return True
        if command == "start":
            return bool(self.control.start)
        if command in ("change", "restart"):
            # Some units are stopped later than others.
            return bool(self.control.start or self.control.stop)
        return bool(self.control.stop) or self.has_ended

    # --- requests ---

    def _latest_attempt(self) -> tuple[Attempt, Control]:
        if self._job is not None:
            return self._job.attempt, self._job.control
        if self._pod is not None:
            return self._pod.attempt, self._pod.control
        if self._deleted_pod is not None:
            return self._deleted_pod.attempt, NO_CONTROL
        return FIRST_ATTEMPT, NO_CONTROL

    def _apply_control(self) -> None:
        """Apply the requests for the attempt to the states of the processes."""
        control, attempt = self.control, self.attempt
        if control.stop:
            for name, container in self.containers.items():
                self.containers[name] = self._stopped(container)
        self.executions = dict(self.containers)
        self.has_ended = all(item.state in ENDED for item in self.containers.values())
        if not control.stop and not control.start:
            self.disruption = self._find_disruption()
            self.retry = self._find_retry() if self.disruption is None else None
        if attempt.restarts:
            for name, container in self.containers.items():
                restarts = container.restarts + attempt.restarts
                self.containers[name] = replace(container, restarts=restarts)
        self._wait_for_next_attempt(control)
        self._number_restarts()
        if attempt.lost:
            self._explain_new_start(attempt.lost)

    def _wait_for_next_attempt(self, control: Control) -> None:
        """Set the state of processes that have ended and will be started again."""
        if control.replaced:
            self._wait_for_replacement()
        elif control.start:
            self._set_pending(_reason_of(control), control.start, ended_only=True)
        elif self.retry is not None:
            cause = Reason(self.retry.cause, ReasonCode.BACKING_OFF)
            self._set_pending(cause, self.retry.time, ended_only=True)
        elif self.disruption is not None:
            self._wait_after_disruption(self.disruption)

    def _number_restarts(self) -> None:
        """Number the restart that the restart policy of the unit has caused."""
        is_policy = self.retry is not None or self.control.in_row > 0
        if not is_policy or not self._unit.supervised_restart:
            return
        limit = RestartPolicy.of(self._unit.supervised_restart).max_restarts
        for name, container in self.containers.items():
            if container.cause.code is ReasonCode.BACKING_OFF:
                self.containers[name] = replace(
                    container, restart_number=self.attempt.retries + 1, max_restarts=limit
                )

    def _stopped(self, container: ContainerStatus) -> ContainerStatus:
        """Return the state of a process that is stopped or being stopped."""
        control = self.control
        has_node = self._pod is not None and bool(self._pod.node)
        was_found_ended = bool(control.ended) and container.state is State.RUNNING
        if was_found_ended or (container.state is State.PENDING and not has_node):
            return replace(
                container,
                state=State.FAILED,
                ready=False,
                exit_code=None,
                cause=_stop_reason(control),
                stopped=not _unit_has_failed(control),
                ended=control.ended or control.stop,
                next_start=None,
            )
        if container.state in ENDED:
            # Kubernetes reports times in seconds.
            if container.ended is not None and container.ended < int(control.stop):
                return container
            is_stopped = not _unit_has_failed(control)
            return replace(container, cause=_stop_reason(control), stopped=is_stopped)
        if container.state is State.PENDING:
            return replace(container, cause=STOPPING, next_start=None)
        kill_at = control.kill
        if not kill_at and self._pod is not None:
            kill_at = control.stop + self._pod.grace_seconds
        return replace(container, ready=False, cause=STOPPING, kill_at=kill_at)

    def _set_pending(self, cause: Reason, start: float, *, ended_only: bool = False) -> None:
        """Set the state of processes that are about to be started again at the time ``start``."""
        for name, container in self.containers.items():
            if ended_only and container.state not in ENDED:
                continue
            self.containers[name] = ContainerStatus(
                cause=cause,
                exit_code=container.exit_code,
                restarts=container.restarts,
                ended=container.ended,
                next_start=start,
            )

    def _wait_for_replacement(self) -> None:
        expected = self.control.replaced + REPLACE_SECONDS
        if self._now < expected or self._supervising:
            if not self._supervising:
                self._expires_at(expected)
            self._set_pending(_reason_of(self.control), self.control.start)
            return
        for name, container in self.containers.items():
            self.containers[name] = replace(
                container, state=State.UNKNOWN, ready=False, cause=NOT_REPLACED, stopped=False
            )

    def _find_retry(self) -> Retry | None:
        """Return the restart after the first exit to which the unit's restart policy applies."""
        if not self.exists or not self._unit.supervised_restart:
            return None
        exits = [
            (item.ended, name, item)
            for name, item in self.containers.items()
            if item.state in ENDED and item.ended is not None and item.started is not None
        ]
        for ended, _, container in sorted(exits, key=lambda found: found[:2]):
            event = find_next_start(policy_of(self._unit), container, self.attempt, ended)
            if event is not None:
                start = ended + event["restarts_in"]
                return Retry(cause=event["cause"], time=start, in_row=event["in_row"])
        return None

    # --- disruptions ---

    def _find_disruption(self) -> Disruption | None:
        """Return what has ended the attempt, if the unit has to be started again because of it."""
        pod = self._pod or self._deleted_pod
        if not self._unit.replaced_if_lost or self._job is not None or pod is None:
            return None
        if not self.has_ended or not self._was_disrupted(pod):
            return None
        disruption = pod.disruption or POD_REMOVED
        event = find_next_start(
            policy_of(self._unit),
            next(iter(self.containers.values())),
            self.attempt,
            self._now,
            disruption=disruption,
            is_stopped=bool(pod.control.stop) and not pod.control.start,
        )
        return None if event is None else disruption

    def _was_disrupted(self, pod: PodStatus) -> bool:
        """Return whether a process of the unit has not ended by itself."""
        containers = self.containers.values()
        if self._pod is None:
            return any(
                item.state is State.UNKNOWN or item.cause is NO_RESTART for item in containers
            )
        if pod.disruption is None:
            return False
        since = pod.disrupted_since or pod.delete_requested or math.inf
        return any(
            item.cause.code in (ReasonCode.EVICTED, ReasonCode.LOST)
            or (item.ended is not None and item.ended >= since)
            for item in containers
        )

    def _wait_after_disruption(self, disruption: Disruption) -> None:
        cause = Reason(lost_text(disruption), ReasonCode.DISRUPTED)
        for name, container in self.containers.items():
            self.containers[name] = ContainerStatus(cause=cause, restarts=container.restarts)

    def _explain_new_start(self, lost: str) -> None:
        """Say why the processes are being started again, or were started again, on this node."""
        node = "" if self._pod is None else self._pod.node
        for name, container in self.containers.items():
            text = ""
            if container.state is State.RUNNING and container.cause == NO_REASON:
                text = started_again_text(lost, node)
            elif container.cause in (NO_REASON, CREATING, SCHEDULING):
                text = lost if container.state is State.PENDING else ""
            if text:
                self.containers[name] = replace(container, cause=Reason(text, ReasonCode.DISRUPTED))

    # --- with a Pod ---

    def _with_pod(self, pod: PodStatus) -> Containers:
        containers = {}
        for name, container in pod.containers.items():
            updated = self._with_readiness(name, container, pod)
            if updated.awaits_pod:
                updated = await_result(updated, "Pod")
            if updated.stopping:
                updated = self._stopping(updated, pod)
            if pod.deadline is not None:
                updated = self._deleting(updated, pod, pod.deadline)
            containers[name] = updated
        if self._job is not None:
            return self._with_job(containers, pod, self._job)
        return containers

    def _with_readiness(
        self, name: str, container: ContainerStatus, pod: PodStatus
    ) -> ContainerStatus:
        log_matched = name in pod.ready_by_log
        checks_log = name in self._unit.logs
        has_check = checks_log or name in pod.probed
        running = container.state is State.RUNNING
        if not has_check:
            has_started = container.started is not None
            if container.was_ready != has_started:
                container = replace(container, was_ready=has_started, ready_since=container.started)
        elif checks_log:
            container = replace(
                container,
                ready=running and log_matched,
                was_ready=log_matched,
                ready_since=pod.ready_by_log_at,
            )
        if has_check and running and not container.was_ready:
            return self._not_ready(name, container)
        if running and pod.node_silent:
            return replace(container, cause=Reason(f"node {pod.node} does not respond"))
        return container

    def _not_ready(self, name: str, container: ContainerStatus) -> ContainerStatus:
        """Apply the readiness timeout to the state of a process that is not ready yet."""
        timeout = self._unit.ready.get(name)
        if timeout is None or container.started is None:
            return container
        reason, due = find_lateness(timeout, container.started, self._now)
        if due is not None:
            self._expires_at(due)
        if not reason:
            return container
        cause = Reason(reason, ReasonCode.NOT_READY)
        return replace(container, never_ready=True, cause=cause)

    def _stopping(self, container: ContainerStatus, pod: PodStatus) -> ContainerStatus:
        """Treat a process in a failed Pod as running until shortly after the grace period ends.

        Kubernetes reports the process's exit code only at the end of the grace period.
        """
        expected_end = (pod.modified or 0.0) + pod.grace_seconds + KILL_SECONDS
        if self._now >= expected_end:
            return container
        self._expires_at(expected_end)
        return replace(container, state=State.RUNNING, ended=None)

    def _deleting(
        self, container: ContainerStatus, pod: PodStatus, deadline: float
    ) -> ContainerStatus:
        """Return the state of a process whose Pod is being deleted.

        An exit before the deletion request counts as the process's own result. After a later exit,
        the process is still reported as running until ``OVERDUE_SECONDS`` after the deadline.
        """
        has_ended = container.state in ENDED
        ended = math.inf if container.ended is None else container.ended
        if has_ended and ended < (pod.delete_requested or 0.0):
            return container
        if self._now < deadline + OVERDUE_SECONDS:
            self._expires_at(deadline + OVERDUE_SECONDS)
            if has_ended:
                # A container that never ran ends as well, for example if its image was missing.
                state = State.PENDING if container.started is None else State.RUNNING
                container = replace(container, state=state, exit_code=None, ended=None)
            return replace(container, ready=False, cause=POD_DELETING)
        if has_ended:
            return container
        cause = exit_unknown(f"node {pod.node} is gone") if pod.node else POD_DELETED
        return replace(container, state=State.UNKNOWN, ready=False, cause=cause)

    # --- with a Job ---

    def _with_job(self, containers: Containers, pod: PodStatus, job: JobStatus) -> Containers:
        earlier_pods, failures = self._count_failures(pod, job)
        expected_end = (job.ended or 0.0) + pod.grace_seconds
        expected_end = max(pod.deadline or 0.0, expected_end) + OVERDUE_SECONDS
        result = {}
        for name, container in containers.items():
            updated = replace(container, restarts=container.restarts + earlier_pods)
            if job.result is State.SUCCEEDED:
                updated = succeeded_with_job(updated, job)
            elif job.result is State.FAILED:
                updated = self._job_failed(updated, job, expected_end=expected_end)
            elif pod.has_failed and _is_ignored(pod, job) and _can_retry(job, failures):
                updated = ContainerStatus(cause=_lost(pod), restarts=updated.restarts)
            elif pod.has_failed and _can_retry(job, failures):
                # The exit code of a container is known before its Pod has finished.
                exited = replace(pod.containers[name], restarts=updated.restarts)
                updated = self._job_retries(exited, failures, job.backoff_limit)
            elif job.target is State.FAILED and updated.state not in ENDED:
                updated = replace(updated, ready=False, cause=job.reason)
            elif updated.state in ENDED and not self._is_kept_open(updated, pod, job, failures):
                updated = self._await_job(updated, job)
            result[name] = updated
        return result

    def _count_failures(self, pod: PodStatus, job: JobStatus) -> tuple[int, int]:
        """Return how many Pods failed before ``pod``, and how many have failed if it fails.

        The controller counts a Pod after it has failed. It does not count a failed Pod again that a
        user deletes.
        """
        counted = [item for item in self._pods if not _is_ignored(item, job)]
        failures = max(job.failures, sum(item.phase == "Failed" for item in counted))
        if _is_ignored(pod, job):
            return failures, failures
        is_counted = pod.phase == "Failed" or pod.uid in job.failed_pods or pod.deadline is not None
        if is_counted:
            return max(0, failures - 1), max(1, failures)
        return failures, failures + 1

    def _is_kept_open(
        self, container: ContainerStatus, pod: PodStatus, job: JobStatus, failures: int
    ) -> bool:
        """Return whether a Job does not finish although the process has its final result.

        A container that a webhook has added to the Pod, such as a proxy, may run forever.
        """
        if container.state is not State.SUCCEEDED and _can_retry(job, failures):
            return False
        return self._runs_added_container(pod)

    def _runs_added_container(self, pod: PodStatus) -> bool:
        """Return whether a container is running in a Pod that symphony has not added to it."""
        return any(
            name not in self._unit.processes and other.state is State.RUNNING
            for name, other in pod.containers.items()
        )

    def _await_job(self, container: ContainerStatus, job: JobStatus) -> ContainerStatus:
        """Return the state of a process that has exited in a Job that has not finished.

        The Job can start the process again. A Job that a user stops does not, and Kubernetes 1.20
        does not report its end.
        """
        if job.control.stop:
            return container
        if job.suspended and job.target is None:
            return ContainerStatus(
                cause=self._no_pod_reason(job, None), restarts=container.restarts
            )
        return await_result(container, job.kind)

    def _job_failed(
        self, container: ContainerStatus, job: JobStatus, *, expected_end: float = 0.0
    ) -> ContainerStatus:
        """Return the state of a process in a failed Job.

        Until ``expected_end``, the process can still exit, and its Pod then reports more details.
        """
        if container.state is State.SUCCEEDED:
            return container
        # A pending process can still begin to run.
        if container.state not in ENDED and self._now < expected_end:
            self._expires_at(expected_end)
            return replace(container, ready=False, cause=job.reason)
        if container.state is not State.FAILED:
            exit_code = container.exit_code if container.state is State.PENDING else None
            return replace(
                container,
                state=State.FAILED,
                ready=False,
                exit_code=exit_code,
                cause=job.reason,
                ended=job.ended or container.ended,
            )
        if job.retries_exhausted:
            return _with_last_failure(container, job)
        has_own_reason = container.reason and not container.reason.startswith("killed by")
        ended_by_job = job.ended is not None and (
            container.ended is None or container.ended >= job.ended
        )
        if has_own_reason and not ended_by_job:
            return container
        return replace(container, cause=job.reason)

    def _job_retries(
        self, container: ContainerStatus, failures: int, limit: int
    ) -> ContainerStatus:
        why = "its Pod failed"
        if container.exit_code not in (None, 0):
            why = f"exit code {container.exit_code}"
        next_start = None
        if container.ended is not None:
            next_start = container.ended + back_off_seconds(failures)
        return replace(
            container,
            state=State.PENDING,
            ready=False,
            cause=Reason(why, ReasonCode.BACKING_OFF),
            next_start=next_start,
            restart_number=failures,
            max_restarts=limit,
            awaits_pod=False,
        )

    # --- without a Pod ---

    def _without_pod(self, deleted_pod: PodStatus | None) -> Containers:
        known = _before_deletion(deleted_pod)
        if self._job is not None:
            return self._job_without_pod(self._job, deleted_pod, known)
        ended = deleted_pod.deadline if deleted_pod is not None else None
        result = {}
        for name in self._unit.processes:
            container = known.get(name, NOT_CREATED)
            if container.cause.code is ReasonCode.BACKING_OFF and container.exit_code is not None:
                # The process has failed, and Kubernetes would have started it again.
                container = replace(container, state=State.FAILED, cause=NO_RESTART)
            if container.state not in ENDED:
                container = replace(
                    container, state=State.UNKNOWN, ready=False, cause=POD_DELETED, ended=ended
                )
            result[name] = container
        return result

    def _job_without_pod(
        self, job: JobStatus, deleted_pod: PodStatus | None, known: Mapping[str, ContainerStatus]
    ) -> Containers:
        last = deleted_pod.containers if deleted_pod is not None else {}
        result = {}
        for name in self._unit.processes:
            container = known.get(name, NOT_CREATED)
            if job.result is State.SUCCEEDED:
                container = replace(container, restarts=container.restarts + job.failures)
                result[name] = succeeded_with_job(container, job)
                continue
            container = replace(container, restarts=container.restarts + max(0, job.failures - 1))
            if job.result is None:
                result[name] = self._job_awaits_pod(container, job, deleted_pod)
                continue
            if container.state is not State.SUCCEEDED and name in last:
                container = replace(last[name], restarts=container.restarts)
                if container.state is State.SUCCEEDED:
                    # The process has exited because the controller has deleted its Pod.
                    container = replace(container, state=State.FAILED, cause=job.reason)
            result[name] = self._job_failed(container, job)
        return result

    def _job_awaits_pod(
        self, container: ContainerStatus, job: JobStatus, deleted_pod: PodStatus | None
    ) -> ContainerStatus:
        """Return the state of a process whose Job has no Pod and has not finished."""
        if job.target is State.FAILED:
            return replace(await_result(container, job.kind), cause=job.reason)
        if job.target is State.SUCCEEDED:
            return await_result(container, job.kind)
        cause = self._no_pod_reason(job, deleted_pod)
        waiting = ContainerStatus(cause=cause, restarts=container.restarts)
        if cause is NO_REASON and deleted_pod is not None and _is_ignored(deleted_pod, job):
            return replace(waiting, cause=_lost(deleted_pod))
        if cause is NO_REASON and job.failures and _can_retry(job, job.failures):
            return self._job_retries(waiting, job.failures, job.backoff_limit)
        return waiting

    def _no_pod_reason(self, job: JobStatus, deleted_pod: PodStatus | None) -> Reason:
        """Return why a Job has no Pod."""
        if job.suspended and job.queue:
            return waiting_for_queue(job.queue)
        if job.suspended:
            return Reason("its Job is suspended", ReasonCode.SCHEDULING)
        since = job.created
        if deleted_pod is not None:
            since = max(since, deleted_pod.deadline or 0.0)
        if self._now < since + JOB_BLOCKED_SECONDS:
            self._expires_at(since + JOB_BLOCKED_SECONDS)
            return NO_REASON
        text = f"its Job has made no Pod: 'kubectl describe job {job.name}' shows why (a quota?)"
        return Reason(text, ReasonCode.NOT_PERMITTED)

    def _expires_at(self, time: float) -> None:
        self.valid_until = time if self.valid_until is None else min(self.valid_until, time)


def _can_retry(job: JobStatus, failures: int) -> bool:
    """Return whether a Job creates another Pod after ``failures`` failures."""
    is_finishing = job.result is not None or job.target is not None or job.deleting
    return not is_finishing and not job.suspended and failures <= job.backoff_limit


def _is_ignored(pod: PodStatus, job: JobStatus) -> bool:
    """Return whether a Job does not count a Pod as failed, because a disruption has ended it."""
    return job.ignores_disruptions and pod.disrupted_since is not None


def _lost(pod: PodStatus) -> Reason:
    return Reason(lost_text(pod.disruption or POD_REMOVED), ReasonCode.DISRUPTED)


def await_result(container: ContainerStatus, kind: str) -> ContainerStatus:
    """Return the state of a process that has exited, and whose Pod, Job or JobSet decides on the
    result and has not finished.
    """
    exit_words = exit_text(container.exit_code)
    return replace(
        container,
        state=State.RUNNING,
        ready=False,
        exit_code=None,
        ended=None,
        next_start=None,
        awaits_pod=False,
        cause=Reason(f"{exit_words}; its {kind} has not finished yet", ReasonCode.FINISHING),
    )


def succeeded_with_job(container: ContainerStatus, job: JobStatus) -> ContainerStatus:
    """Return the state of a process whose Job or JobSet has succeeded."""
    return replace(
        container,
        state=State.SUCCEEDED,
        ready=False,
        exit_code=0,
        cause=NO_REASON,
        ended=container.ended or job.ended,
    )


def _unit_has_failed(control: Control) -> bool:
    """Return whether a rank is stopped because another rank of its unit has failed."""
    return control.code == ReasonCode.UNIT_FAILED.value


def _stop_reason(control: Control) -> Reason:
    """Return the reason of a process that was stopped."""
    if _unit_has_failed(control):
        return Reason(control.reason, ReasonCode.UNIT_FAILED)
    return STOPPED


def _reason_of(control: Control) -> Reason:
    """Return why a unit is started again."""
    if not control.reason:
        return START_REQUESTED
    try:
        return Reason(control.reason, ReasonCode(control.code) if control.code else None)
    except ValueError:
        return NO_REASON


def _with_last_failure(container: ContainerStatus, job: JobStatus) -> ContainerStatus:
    """Return the state of a failed process whose Job has used up its retries."""
    if not job.backoff_limit:  # There was no retry, so the process's own reason is complete.
        return container
    text = job.reason.text
    if container.reason:
        text += f" (at last: {container.reason})"
    return replace(container, cause=Reason(text, container.cause.code or job.reason.code))


def _current_pod(pods: list[PodStatus], job: JobStatus | None) -> PodStatus | None:
    """Return the Pod that determines its unit's state, or None if there are no Pods.

    This is the newest Pod that succeeded. If there is none, it is the newest Pod that is not being
    deleted, or else the newest Pod. If a Job has not finished, it is the newest Pod that has not
    finished either, because an Indexed Job can have several Pods.
    """
    if not pods:
        return None
    staying = [pod for pod in pods if pod.deadline is None]
    unfinished: list[PodStatus] = []
    if job is not None and job.result is None:
        unfinished = [pod for pod in staying if not pod.has_finished]
    succeeded = [pod for pod in pods if pod.phase == "Succeeded"]
    candidates = unfinished or succeeded or staying or pods
    return candidates[-1]


def _before_deletion(pod: PodStatus | None) -> Mapping[str, ContainerStatus]:
    """Return the states that a deleted Pod's containers had before the deletion was requested.

    Return an empty mapping if these states are unknown.
    """
    if pod is None:
        return {}
    if pod.before_deletion is not None:
        return pod.before_deletion
    return pod.containers if pod.deadline is None else {}
