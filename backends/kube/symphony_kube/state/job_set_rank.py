"""Compute the state of a rank in a JobSet from its Pods and its JobSet. Pure.

The controller of JobSets deletes the Jobs of an attempt, with their Pods, before it creates those
of the next one. When a JobSet has failed, it deletes the Jobs that are still active. In both cases,
the JobSet shows the state of the ranks that have no Pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from symphony.status import ENDED, ReasonCode, State
from symphony_kube.render.roster import Unit
from symphony_kube.state.job_status import JobStatus
from symphony_kube.state.observed_attempt import (
    JOB_BLOCKED_SECONDS,
    POD_DELETED,
    STOPPING,
    Containers,
    ObservedAttempt,
    await_result,
    succeeded_with_job,
)
from symphony_kube.state.pod_status import ContainerStatus, PodStatus
from symphony_kube.state.reasons import Reason, waiting_for_queue

UNIT_SUCCEEDED = Reason("the unit has succeeded without it")
# The exit codes of processes that TERM or KILL has ended.
_EXITS_BY_SIGNAL = (143, 137)


class JobSetRank(ObservedAttempt):
    """The state of a rank in its latest attempt. ``job`` is the state of its JobSet.

    ``failure`` is the failure for which the JobSet restarted before this attempt or for which it
    has failed, in words, or ``""`` if no Pod shows it any more. ``all_have_succeeded`` returns
    whether the processes of all ranks have exited with 0 in this attempt.
    """

    def __init__(
        self,
        unit: Unit,
        pods: list[PodStatus],
        job: JobStatus | None,
        deleted_pod: PodStatus | None,
        now: float,
        *,
        failure: str = "",
        all_have_succeeded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._failure = failure
        self._all_have_succeeded = all_have_succeeded
        super().__init__(unit, pods, job, deleted_pod, now)
        self.can_create_pods = job is not None and job.result is None and not job.suspended

    def _deleting(
        self, container: ContainerStatus, pod: PodStatus, deadline: float
    ) -> ContainerStatus:
        """Return the state of a process whose Pod is being deleted.

        The controller stops ranks by deleting their Pods, so an exit is the end of the rank.
        """
        if container.state in ENDED:
            return container
        return super()._deleting(container, pod, deadline)

    def _with_job(self, containers: Containers, pod: PodStatus, job: JobStatus) -> Containers:
        restarts = job.result is None and not job.retries_exhausted and not job.deleting
        result = {}
        for name, container in containers.items():
            exited = pod.containers[name]
            if exited.state in ENDED and not _is_own_exit(name, exited, pod):
                container = self._ended_by_deletion(container, pod, job)
            elif _is_being_stopped(container, job):
                container = replace(container, ready=False, cause=STOPPING)
            elif job.result is State.SUCCEEDED:
                container = succeeded_with_job(container, job)
            elif restarts and pod.has_failed and exited.state is State.FAILED:
                cause = exited.cause.text
                if exited.exit_code is not None and not exited.failed_tests:
                    cause = f"exit code {exited.exit_code}"
                container = self._restarting(exited, job, cause)
            elif self._awaits_job_set(container, pod, job, can_restart=restarts):
                container = await_result(container, job.kind)
            result[name] = container
        return result

    def _awaits_job_set(
        self, container: ContainerStatus, pod: PodStatus, job: JobStatus, *, can_restart: bool
    ) -> bool:
        """Return whether the result of a process that has exited depends on its JobSet.

        A JobSet that can restart restarts all ranks when one of them has failed. It does not finish
        while a container runs that a webhook has added to a Pod.
        """
        if job.result is not None or container.state not in ENDED:
            return False
        if not self._runs_added_container(pod):
            return True
        has_succeeded = container.state is State.SUCCEEDED and self._all_have_succeeded()
        return can_restart and not has_succeeded

    def _ended_by_deletion(
        self, container: ContainerStatus, pod: PodStatus, job: JobStatus
    ) -> ContainerStatus:
        """Return the state of a process that has exited because its Pod is being deleted.

        The rank has not ended before its JobSet, which can create another Pod.
        """
        if job.result is None:
            return self._waiting(job, pod)
        if job.result is State.SUCCEEDED:
            return _ended_with_unit(container, job)
        return replace(container, state=State.FAILED, ready=False, cause=self._unit_failed(job))

    def _job_without_pod(
        self, job: JobStatus, deleted_pod: PodStatus | None, known: Mapping[str, ContainerStatus]
    ) -> Containers:
        last = deleted_pod.containers if deleted_pod is not None else {}
        if deleted_pod is not None and deleted_pod.attempt.number != job.attempt.number:
            known, last = {}, {}
        result = {}
        for name in self.unit.processes:
            container = known.get(name, ContainerStatus())
            if job.result is State.SUCCEEDED and container.state is not State.SUCCEEDED:
                container = _ended_with_unit(container, job)
            elif job.result is State.SUCCEEDED:
                container = succeeded_with_job(container, job)
            elif job.result is State.FAILED:
                container = self._failed(container, last.get(name, container), job)
            elif container.state is State.SUCCEEDED:
                container = await_result(container, job.kind)
            else:
                container = self._waiting(job, deleted_pod)
            result[name] = container
        return result

    def _failed(
        self, container: ContainerStatus, last: ContainerStatus, job: JobStatus
    ) -> ContainerStatus:
        """Return the state of a process in a failed JobSet whose Pod was deleted.

        ``container`` is its state before the deletion was requested, and ``last`` its last one.
        """
        if container.state in ENDED:
            return container
        if last.state in ENDED and last.exit_code is not None:
            return replace(last, state=State.FAILED, ready=False, cause=self._unit_failed(job))
        is_cause = job.first_failed == self.unit.name
        cause = POD_DELETED if is_cause else self._unit_failed(job)
        return replace(
            container, state=State.FAILED, ready=False, exit_code=None, cause=cause, ended=job.ended
        )

    def _unit_failed(self, job: JobStatus) -> Reason:
        """Return the reason of a rank that was stopped because another one has failed."""
        failure = self._failure or job.reason.text
        return Reason(_with_failure("the unit failed", failure), ReasonCode.UNIT_FAILED)

    def _waiting(self, job: JobStatus, deleted_pod: PodStatus | None) -> ContainerStatus:
        """Return the state of a rank that has no Pod yet in an attempt."""
        if job.suspended and job.queue:
            return ContainerStatus(cause=waiting_for_queue(job.queue))
        if job.suspended:
            return ContainerStatus(cause=Reason("its JobSet is suspended", ReasonCode.SCHEDULING))
        if job.attempt.number > 1 and not job.attempt.restarts:
            # A restart after a disruption does not count.
            text = _with_failure("the unit restarts", self._failure)
            return ContainerStatus(cause=Reason(text, ReasonCode.DISRUPTED))
        if job.attempt.restarts:
            cause = _with_failure("the unit restarts", self._failure)
            return self._restarting(ContainerStatus(), job, cause, number=job.attempt.restarts)
        since = job.created
        if deleted_pod is not None:
            since = max(since, deleted_pod.deadline or 0.0)
        if self.now < since + JOB_BLOCKED_SECONDS:
            self.expires_at(since + JOB_BLOCKED_SECONDS)
            return ContainerStatus()
        text = (
            f"its JobSet has made no Pod: 'kubectl describe jobset {job.name}' shows why (a quota? "
            "does its controller run?)"
        )
        return ContainerStatus(cause=Reason(text, ReasonCode.NOT_PERMITTED))

    def _restarting(
        self, container: ContainerStatus, job: JobStatus, cause: str, *, number: int = 0
    ) -> ContainerStatus:
        """Return the state of a rank that waits for a restart, which is the next one unless
        ``number`` is set.
        """
        return replace(
            container,
            state=State.PENDING,
            ready=False,
            cause=Reason(cause, ReasonCode.BACKING_OFF),
            restart_number=number or job.attempt.restarts + 1,
            max_restarts=job.backoff_limit,
        )


def _is_being_stopped(container: ContainerStatus, job: JobStatus) -> bool:
    """Return whether a JobSet has ended that stops a rank which is still running."""
    if container.state in ENDED:
        return False
    return job.result is State.FAILED or (job.result is State.SUCCEEDED and job.ends_early)


def _ended_with_unit(container: ContainerStatus, job: JobStatus) -> ContainerStatus:
    """Return the state of a rank whose Pod was deleted and whose JobSet has succeeded.

    If the JobSet can succeed without the rank, its controller may have stopped the rank.
    """
    succeeded = succeeded_with_job(container, job)
    if not job.ends_early:
        return succeeded
    return replace(succeeded, exit_code=None, cause=UNIT_SUCCEEDED)


def describe_failure(pods: Iterable[PodStatus], attempt: int) -> str:
    """Return in words which rank of a JobSet failed first in an attempt, or ``""``.

    Ranks that fail because the controller deletes their Pods are not considered.
    """
    found = []
    for pod in pods:
        if pod.attempt.number != attempt:
            continue
        if pod.disrupted_since is not None:
            return f"{pod.unit} was lost ({pod.disruption})"
        for name, container in pod.containers.items():
            if container.state is State.FAILED and _is_own_exit(name, container, pod):
                is_by_signal = container.exit_code in _EXITS_BY_SIGNAL
                found.append((container.ended or 0.0, is_by_signal, name, container))
    if not found:
        return ""
    _, _, name, first = min(found, key=lambda item: item[:3])
    if first.exit_code is not None and not first.failed_tests:
        return f"{name} exited with {first.exit_code}"
    return f"{name} failed ({first.reason})" if first.reason else f"{name} failed"


def _is_own_exit(name: str, container: ContainerStatus, pod: PodStatus) -> bool:
    """Return whether a process has exited before the deletion of its Pod was requested.

    Kubernetes reports times in seconds.
    """
    if pod.delete_requested is None:
        return True
    before = (pod.before_deletion or {}).get(name)
    if before is not None:
        return before.state in ENDED
    return container.ended is not None and container.ended < pod.delete_requested


def _with_failure(text: str, failure: str) -> str:
    return f"{text}: {failure}" if failure else text
