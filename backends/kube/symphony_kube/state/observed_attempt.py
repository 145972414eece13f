"""Compute the states of an attempt's processes from its Pods and Job. Pure.

The requests for the attempt, and what follows from its end, are applied by `UnitStatus`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from symphony.events import exit_text
from symphony.plan.disruption import Disruption, DisruptionCause, lost_text
from symphony.status import ENDED, ReasonCode, State
from symphony_kube.render.roster import Unit
from symphony_kube.state.control_state import FIRST_ATTEMPT, NO_CONTROL, Attempt, Control
from symphony_kube.state.disruptions import POD_DELETED as WAS_DELETED
from symphony_kube.state.job_status import JobStatus, back_off_seconds
from symphony_kube.state.pod_status import NOT_CREATED, ContainerStatus, PodStatus
from symphony_kube.state.predictions import find_lateness
from symphony_kube.state.reasons import NO_REASON, Reason, exit_unknown, waiting_for_queue

# If a Pod still exists this long after its deadline, its node is considered lost.
OVERDUE_SECONDS = 30.0
# How long after the grace period a process in a failed Pod can still be running.
KILL_SECONDS = 5.0
# A Job that has had no Pod for this long is considered blocked. Only its events show the cause.
JOB_BLOCKED_SECONDS = 10.0

POD_DELETED = exit_unknown(WAS_DELETED)
POD_REMOVED = Disruption(cause=DisruptionCause.REMOVED, detail=WAS_DELETED)
NO_RESTART = Reason("its Pod was deleted before its restart", ReasonCode.EXITED)
STOPPING = Reason("stopping", ReasonCode.STOPPING)
POD_DELETING = Reason("its Pod is being deleted", ReasonCode.DELETING)

Containers = dict[str, ContainerStatus]


class ObservedAttempt:
    """The states of a unit's processes as the objects of an attempt to run it show them.

    ``pods`` and ``job`` are the objects of the attempt. ``known_job`` is ``job``, or the Job of the
    attempt if it has finished and no longer exists. ``pod`` is the Pod that determines the states,
    or None. ``deleted_pod`` is the latest Pod of the unit that was deleted, or None. The states are
    those at the time ``now``. If ``valid_until`` is not None, they are valid at most until this
    time. Both are in seconds since the epoch.
    """

    # True if the controller can still create Pods of an attempt that is being stopped.
    can_create_pods = False

    def __init__(
        self,
        unit: Unit,
        pods: list[PodStatus],
        job: JobStatus | None,
        deleted_pod: PodStatus | None,
        now: float,
        *,
        removed_job: JobStatus | None = None,
    ) -> None:
        self.unit = unit
        self.pods = pods
        self.job = job
        self.known_job = job or removed_job
        self.pod = _current_pod(pods, self.known_job)
        self.deleted_pod = deleted_pod
        self.now = now
        self.valid_until: float | None = None

    def containers(self) -> Containers:
        """Compute the states of the unit's processes."""
        if self.pod is not None:
            computed = self._with_pod(self.pod)
        else:
            computed = self._without_pod(self.deleted_pod)
        return {name: computed.get(name, NOT_CREATED) for name in self.unit.processes}

    def latest_attempt(self) -> tuple[Attempt, Control]:
        """Return the number of the attempt, and the requests for it."""
        if self.known_job is not None:
            return self.known_job.attempt, self.known_job.control
        if self.pod is not None:
            return self.pod.attempt, self.pod.control
        if self.deleted_pod is not None:
            return self.deleted_pod.attempt, NO_CONTROL
        return FIRST_ATTEMPT, NO_CONTROL

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
        if self.known_job is not None:
            return self._with_job(containers, pod, self.known_job)
        return containers

    def _with_readiness(
        self, name: str, container: ContainerStatus, pod: PodStatus
    ) -> ContainerStatus:
        log_matched = name in pod.ready_by_log
        checks_log = name in self.unit.logs
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
        timeout = self.unit.ready.get(name)
        if timeout is None or container.started is None:
            return container
        reason, due = find_lateness(timeout, container.started, self.now)
        if due is not None:
            self.expires_at(due)
        if not reason:
            return container
        cause = Reason(reason, ReasonCode.NOT_READY)
        return replace(container, never_ready=True, cause=cause)

    def _stopping(self, container: ContainerStatus, pod: PodStatus) -> ContainerStatus:
        """Treat a process in a failed Pod as running until shortly after the grace period ends.

        Kubernetes reports the process's exit code only at the end of the grace period.
        """
        expected_end = (pod.modified or 0.0) + pod.grace_seconds + KILL_SECONDS
        if self.now >= expected_end:
            return container
        self.expires_at(expected_end)
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
        if self.now < deadline + OVERDUE_SECONDS:
            self.expires_at(deadline + OVERDUE_SECONDS)
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
                # A Job counts an unhealthy process that has exited with 0 as successful.
                if updated.cause.code is not ReasonCode.UNHEALTHY:
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
        counted = [item for item in self.pods if not _is_ignored(item, job)]
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
            name not in self.unit.processes and other.state is State.RUNNING
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
        if container.state not in ENDED and self.now < expected_end:
            self.expires_at(expected_end)
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
        if container.cause.code is ReasonCode.UNHEALTHY:
            why = container.reason
        elif container.exit_code not in (None, 0):
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
        if self.known_job is not None:
            return self._job_without_pod(self.known_job, deleted_pod, known)
        ended = deleted_pod.deadline if deleted_pod is not None else None
        result = {}
        for name in self.unit.processes:
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
        for name in self.unit.processes:
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
        if self.now < since + JOB_BLOCKED_SECONDS:
            self.expires_at(since + JOB_BLOCKED_SECONDS)
            return NO_REASON
        text = f"its Job has made no Pod: 'kubectl describe job {job.name}' shows why (a quota?)"
        return Reason(text, ReasonCode.NOT_PERMITTED)

    def expires_at(self, time: float) -> None:
        """Note that the states are valid at most until a time, in seconds since the epoch."""
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
    if container.cause.code is ReasonCode.UNHEALTHY:
        exit_words = container.reason
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
