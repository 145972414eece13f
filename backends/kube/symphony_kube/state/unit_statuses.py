"""Compute the states of all units of an experiment, each only if it has changed. Pure."""

from __future__ import annotations

from functools import partial

from symphony.status import State
from symphony_kube.render.roster import Roster, Unit
from symphony_kube.state.job_set_rank import JobSetRank, describe_failure
from symphony_kube.state.job_status import JobStatus
from symphony_kube.state.known_units import KnownUnits
from symphony_kube.state.observed_attempt import ObservedAttempt
from symphony_kube.state.observed_objects import ObservedObjects
from symphony_kube.state.pod_status import NOT_CREATED, PodStatus
from symphony_kube.state.unit_status import UnitStatus


class UnitStatuses:
    """The states of the ``units`` of an experiment, as its ``objects`` show them.

    If ``supervising`` is true, a supervisor creates the next attempts; see `UnitStatus`.
    """

    def __init__(self, objects: ObservedObjects, units: KnownUnits, *, supervising: bool) -> None:
        self._objects = objects
        self._units = units
        self._supervising = supervising
        self._statuses: dict[str, UnitStatus] = {}
        self._roster: Roster | None = None
        self._ready_times: dict[tuple[str, str], float] = {}
        # The first failure in each attempt of a JobSet, by its UID and the number of the attempt.
        self._failures: dict[tuple[str, int], str] = {}

    def discard_changed(self, roster: Roster | None) -> None:
        """Discard the states that the objects have changed, or a new ``roster``.

        The states of ranks in JobSets can depend on the Pods of the others.
        """
        with_pods, with_jobs = self._objects.take_changes()
        if roster is not self._roster:
            self._statuses.clear()
            self._roster = roster
        for unit in with_pods | with_jobs:
            self._statuses.pop(unit, None)
        for ranks in self._units.job_sets.values():
            if not with_pods.isdisjoint(ranks):
                for rank in ranks:
                    self._statuses.pop(rank, None)

    def find(self, unit: Unit, now: float) -> UnitStatus | None:
        """Return the status of a unit, or None if the unit has not been created."""
        cached = self._statuses.get(unit.name)
        if cached is not None and (cached.valid_until is None or now < cached.valid_until):
            return cached
        if not self._units.has_existed(unit.name):
            return None
        computed = UnitStatus(self._attempt_of(unit, now), supervising=self._supervising)
        computed.remember_ready(self._ready_times)
        self._statuses[unit.name] = computed
        return computed

    def _attempt_of(self, unit: Unit, now: float) -> ObservedAttempt:
        pods, job = self._objects.latest_attempt(unit.name)
        deleted_pod = self._objects.deleted.get(unit.name)
        if not unit.job_set:
            removed_job = self._objects.removed_jobs.get(unit.name)
            return ObservedAttempt(unit, pods, job, deleted_pod, now, removed_job=removed_job)
        return JobSetRank(
            unit,
            pods,
            job,
            deleted_pod,
            now,
            failure="" if job is None else self._failure_of_job_set(unit.job_set, job),
            all_have_succeeded=partial(self._have_all_ranks_succeeded, unit.job_set),
        )

    def _failure_of_job_set(self, name: str, job: JobStatus) -> str:
        """Return the failure for which a JobSet restarted last or has failed, in words."""
        attempt = job.attempt.number if job.result is State.FAILED else job.attempt.number - 1
        pods: list[PodStatus] = []
        for rank in self._units.job_sets.get(name, {}):
            if job.result is State.FAILED and job.first_failed not in ("", rank):
                continue
            pods += self._objects.pods_of(rank)
            if rank in self._objects.deleted:
                pods.append(self._objects.deleted[rank])
        failure = describe_failure(pods, attempt)
        if failure:
            self._failures.setdefault((job.uid, attempt), failure)
        return self._failures.get((job.uid, attempt), "")

    def _have_all_ranks_succeeded(self, name: str) -> bool:
        """Return whether the processes of all ranks of a JobSet have exited with 0."""
        for rank in self._units.job_sets.get(name, {}).values():
            pods, _ = self._objects.latest_attempt(rank.name)
            containers = pods[-1].containers if pods else {}
            for process in rank.processes:
                container = containers.get(process, NOT_CREATED)
                if container.state is not State.SUCCEEDED:
                    return False
        return True
