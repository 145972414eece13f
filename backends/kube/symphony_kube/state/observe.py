"""Compute an experiment's status from its Pods, Jobs and JobSets.

Pure: the caller passes the time and the objects.

`PodObserver` accepts lists and watch events, and recomputes only the units that have changed.
`observe` computes the status once.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from symphony.plan.disruption import lost_text
from symphony.plan.policies import DEADLINE_EXCEEDED
from symphony.plan.start_order import START, verdict
from symphony.status import ENDED, ExperimentStatus, ProcessStatus, ReasonCode, State
from symphony.support.causes import group_by_cause
from symphony.support.names import join_names
from symphony_kube.api.errors import one_line
from symphony_kube.record.change_log import LoggedChange
from symphony_kube.record.copies import RecordCopies, StoredRecord
from symphony_kube.record.creation_problems import Problem
from symphony_kube.record.encoded_record import NO_RECORD, EncodedRecord
from symphony_kube.record.ending import StoppedProcesses
from symphony_kube.render.codec import revision_of
from symphony_kube.render.roster import (
    Roster,
    Unit,
    ranks_of_job_sets,
)
from symphony_kube.state.control_state import NO_CONTROL, Control, after_restarts
from symphony_kube.state.ending import apply_ending
from symphony_kube.state.job_set_rank import JobSetRank, describe_failure
from symphony_kube.state.job_status import JobStatus, is_in_job_set, parse_job, parse_job_set
from symphony_kube.state.observed_attempt import POD_DELETED, POD_REMOVED, ObservedAttempt
from symphony_kube.state.pod_status import (
    NOT_CREATED,
    ContainerRef,
    ContainerStatus,
    PodStatus,
    exit_unknown,
    parse_pod,
)
from symphony_kube.state.reasons import Reason
from symphony_kube.state.unit_status import UnitStatus, policy_of

BACKEND = "kube"
# The start order does not delay these restarts.
_WITHOUT_ORDER = (ReasonCode.BACKING_OFF.value, ReasonCode.UNSCHEDULABLE.value)
PODS, JOBS, JOB_SETS = "pods", "jobs", "jobsets"

# The kinds of objects whose state is a `JobStatus`.
_KINDS = {JOBS: "Job", JOB_SETS: "JobSet"}

# If a unit can be created but has not appeared after this time, the launcher or the supervisor is
# assumed to have exited.
CREATOR_GONE_SECONDS = 60.0
# The reason for a waiting process includes the reason for the process that it waits for, so a chain
# of waiting processes can lead to a long reason.
MAX_CHAINED_REASON_CHARS = 300
# The reason of a process whose Pod was deleted without being observed, and is created again.
LOST_POD = lost_text(POD_REMOVED)

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """An experiment's state at a point in time.

    ``containers`` maps process names to states, in the form that
    `symphony.plan.start_order.verdict` needs. ``valid_until`` is the time in seconds since the
    epoch at which the state can change without an event, or None if it cannot. ``deleted_units``
    contains the units that existed earlier but no longer exist. ``missing_units`` contains the
    units that have never been observed. ``deleting`` is true if all Pods are being deleted.
    ``empty`` is true if neither Pods nor Jobs exist. ``unit_statuses`` contains the states of the
    units that exist. ``unfinished`` contains the units in which a command is recorded that was not
    recorded in all of its units, because the client was killed. ``revision`` is the number of the
    latest change of the experiment.
    """

    status: ExperimentStatus
    containers: Mapping[str, ContainerStatus]
    valid_until: float | None = None
    deleted_units: frozenset[str] = frozenset()
    missing_units: frozenset[str] = frozenset()
    deleting: bool = False
    empty: bool = False
    unit_statuses: Mapping[str, UnitStatus] = field(default_factory=dict)
    unfinished: frozenset[str] = frozenset()
    revision: int = 0

    def is_same_as(self, other: Observation | None) -> bool:
        """Return whether all processes are in the same state as in ``other``."""
        if other is None:
            return False
        if other is self:
            return True
        if self.status != other.status or self.containers != other.containers:
            return False
        return self.revision == other.revision and self.requests() == other.requests()

    def requests(self) -> dict[str, Control]:
        """Return the requests for each unit that has any."""
        requests = {}
        for name, unit in self.unit_statuses.items():
            if unit.control is not NO_CONTROL:
                requests[name] = unit.control
        return requests


def observe(
    experiment: str,
    pods: Iterable[Object],
    jobs: Iterable[Object] = (),
    job_sets: Iterable[Object] = (),
    *,
    now: float,
    roster: Roster | None = None,
) -> Observation:
    """Return the state of an experiment, computed from its objects as the API lists them."""
    observer = PodObserver(experiment, roster=roster)
    observer.replace(PODS, pods)
    observer.replace(JOBS, jobs)
    observer.replace(JOB_SETS, job_sets)
    return observer.observe(now)


# The reason of a process that was stopped at the deadline of the experiment.
_AFTER_DEADLINE = Reason(DEADLINE_EXCEEDED, ReasonCode.DEADLINE_EXCEEDED)


class PodObserver:
    """An observer that tracks the Pods, Jobs and JobSets of an experiment.

    A supervisor passes its ``roster``. The observer then assumes that the supervisor will still
    create all missing units of the roster, regardless of the time that has passed, except for the
    units in ``created``, which the supervisor has created earlier. ``ended`` contains those that
    had ended, so that they are not created again if their Pods are deleted. Other callers omit the
    roster, and the observer reads it from the Pods or Jobs.
    """

    def __init__(self, experiment: str, *, roster: Roster | None = None) -> None:
        self._experiment = experiment
        self._supervising = roster is not None
        self._roster = roster
        self._roster_revision = 0
        self._stored: StoredRecord | None = None
        self._revision = 0
        self.created: frozenset[str] = frozenset()
        self.ended: frozenset[str] = frozenset()
        # These dictionaries map each unit to its Pods and to its Jobs by name, and to its most
        # recently deleted Pod. A JobSet is the Job of each of its ranks.
        self._pods: dict[str, dict[str, PodStatus]] = {}
        self._jobs: dict[str, dict[str, JobStatus]] = {}
        self._deleted: dict[str, PodStatus] = {}
        # The Jobs that have finished and no longer exist, by unit.
        self._removed_jobs: dict[str, JobStatus] = {}
        self._ready_times: dict[tuple[str, str], float] = {}
        # The first failure in each attempt of a JobSet, by its UID and the number of the attempt.
        self._failures: dict[tuple[str, int], str] = {}
        # These are caches. ``_units`` and ``_created`` are valid until an object is created or
        # deleted.
        self._unit_statuses: dict[str, UnitStatus] = {}
        # The ranks of each JobSet in the roster, by their names.
        self._job_sets: dict[str, dict[str, Unit]] = {}
        self._process_statuses: dict[str, tuple[ContainerStatus, ProcessStatus]] = {}
        self._units: Roster | None = None
        self._created: float | None = None
        # When logs were found to show that processes are ready, by the UID of the Pod, the process
        # and the restarts of its container.
        self._found_ready: dict[tuple[str, str, int], float] = {}
        # The processes of all Pods and Jobs that have been observed, by the UIDs of these objects.
        self._processes_by_uid: dict[str, tuple[str, ...]] = {}

    # --- input from the API ---

    def replace(self, kind: str, objects: Iterable[Object]) -> None:
        """Replace all Pods, all Jobs or all JobSets with a new list."""
        if kind in _KINDS:
            for job_status in self._current_jobs():
                if job_status.kind == _KINDS[kind]:
                    self._remove_job(job_status)
            for job in objects:
                self._put_jobs(_parse(kind, job))
            return
        listed = [parse_pod(pod) for pod in objects]
        listed_uids = {pod.uid for pod in listed}
        for pod in self._current_pods():
            if pod.uid not in listed_uids:
                self._remove_pod(pod)
        for pod in listed:
            self._put_pod(pod)

    def apply(self, kind: str, event: str, changed: Object) -> None:
        """Apply a watch event: ADDED, MODIFIED or DELETED."""
        deleted = event == "DELETED"
        if kind in _KINDS:
            jobs = _parse(kind, changed)
            if not deleted:
                self._put_jobs(jobs)
                return
            for job in jobs:
                self._remove_job(job)
            return
        pod = parse_pod(changed)
        if deleted:
            self._remove_pod(pod)
        else:
            self._put_pod(pod)

    def note_ready(self, unit: str, uid: str, process: str, restarts: int, *, now: float) -> None:
        """Note that a log shows that a process is ready; see `PodStatus.ready_by_log`.

        ``uid`` is that of the Pod of ``unit``, and ``restarts`` is the number of earlier executions
        of the container. ``now`` is in seconds since the epoch.
        """
        self._found_ready.setdefault((uid, process, restarts), now)
        for pod in list(self._pods.get(unit, {}).values()):
            if pod.uid == uid:
                self._put_pod(pod)

    def _with_found_ready(self, pod: PodStatus) -> PodStatus:
        if not self._found_ready:
            return pod
        times = {}
        for name, container in pod.containers.items():
            found = self._found_ready.get((pod.uid, name, container.restarts))
            if found is not None and name not in pod.ready_by_log:
                times[name] = found
        if not times:
            return pod
        at = pod.ready_by_log_at or min(times.values())
        return replace(pod, ready_by_log=pod.ready_by_log | set(times), ready_by_log_at=at)

    @property
    def needs_stored_record(self) -> bool:
        """True if no Pod and no Job has the roster, which `use_stored_record` can provide."""
        self._find_roster()
        return self._roster is None

    def use_stored_record(self, stored: StoredRecord | None) -> None:
        """Use the stored record if no Pod and no Job has a newer one."""
        self._stored = stored
        self._units = None
        if stored is not None:
            self._note_record(stored.record)

    @property
    def missing_jobs(self) -> list[str]:
        """The units that are Jobs and about which nothing is known."""
        return [unit.name for unit in self.units if unit.job and not self._existed(unit.name)]

    def use_results_of_missing_jobs(self, jobs: Iterable[JobStatus]) -> None:
        """Use the results of Jobs that no longer exist."""
        self._removed_jobs.update({job.unit: job for job in jobs})

    @property
    def launched(self) -> float:
        """When the oldest object was created, in seconds since the epoch, or 0 if it is unknown."""
        return 0.0 if not self.units or self._created is None else self._created

    @property
    def has_jobs(self) -> bool:
        """True if any known unit is a Job."""
        self._find_roster()
        roster = self._roster or ()
        if any(unit.job for unit in roster):
            return True
        in_job_sets = {unit.name for unit in roster if unit.job_set}
        return any(pod.job and pod.unit not in in_job_sets for pod in self._current_pods())

    @property
    def has_job_sets(self) -> bool:
        """True if any known unit is in a JobSet."""
        self._find_roster()
        return any(unit.job_set for unit in self._roster or ())

    @property
    def empty(self) -> bool:
        """True if the experiment has neither Pods nor Jobs nor JobSets."""
        return not any(self._jobs.values()) and not any(self._pods.values())

    @property
    def may_have_missed_launch(self) -> bool:
        """True if the stored record is that of a complete launch, but none of its objects is known.

        Either all of them were deleted, or the launch created them after they had been listed and
        before the roster was read.
        """
        return self.empty and self._stored is not None and not self._stored.is_changing

    @property
    def has_stored_record(self) -> bool:
        """True if the stored record was used, because no Pod and no Job had one."""
        return self._stored is not None

    @property
    def is_known(self) -> bool:
        """True if the experiment has Pods, Jobs or a roster."""
        return not self.empty or self._stored is not None

    @property
    def units(self) -> Roster:
        """The units of the roster, followed by the units that are known only from objects."""
        if self._units is None:
            self._units = self._find_units()
            times = [pod.created for pod in self._current_pods()]
            times += [job.created for job in self._current_jobs()]
            if self._stored is not None and self._stored.created is not None:
                times.append(self._stored.created)
            self._created = min(times, default=None)
        return self._units

    @property
    def container_refs(self) -> list[ContainerRef]:
        """The containers of all current Pods. The containers in the oldest Pods come first."""
        refs = [ref for pod in self._current_pods() for ref in pod.refs]
        return sorted(refs, key=lambda ref: (ref.created, ref.attempt))

    def processes_of(self, uid: str) -> tuple[str, ...]:
        """Return the processes of a Pod or Job that exists or was observed earlier."""
        return self._processes_by_uid.get(uid, ())

    def objects_of(self, unit: str) -> tuple[list[PodStatus], list[JobStatus]]:
        """Return the Pods and Jobs of all attempts to run a unit."""
        return list(self._pods.get(unit, {}).values()), list(self._jobs.get(unit, {}).values())

    def _put_pod(self, pod: PodStatus) -> None:
        pods = self._pods.setdefault(pod.unit, {})
        previous = pods.get(pod.name)
        if previous is not None and previous.uid == pod.uid:
            pod = _keep_history(previous, pod)
        else:
            self._units = None
        pods[pod.name] = self._with_found_ready(pod)
        self._processes_by_uid[pod.uid] = tuple(pod.containers)
        self._note_record(pod.record)
        deleted = self._deleted.get(pod.unit)
        if deleted is not None and deleted.attempt.number <= pod.attempt.number:
            del self._deleted[pod.unit]
        self._forget_status(pod.unit)

    def _put_jobs(self, jobs: Iterable[JobStatus]) -> None:
        processes: tuple[str, ...] = ()
        for job in jobs:
            self._put_job(job)
            processes += job.processes
            self._processes_by_uid[job.uid] = processes

    def _put_job(self, job: JobStatus) -> None:
        jobs = self._jobs.setdefault(job.unit, {})
        if job.name not in jobs:
            self._units = None
        jobs[job.name] = job
        self._removed_jobs.pop(job.unit, None)
        self._note_record(job.record)
        self._unit_statuses.pop(job.unit, None)

    def _remove_job(self, job: JobStatus) -> None:
        jobs = self._jobs.get(job.unit, {})
        if job.name in jobs and jobs[job.name].uid != job.uid:
            return
        self._units = None
        jobs.pop(job.name, None)
        if job.result is not None:
            self._removed_jobs[job.unit] = job
        self._unit_statuses.pop(job.unit, None)

    def _remove_pod(self, pod: PodStatus) -> None:
        pods = self._pods.get(pod.unit, {})
        if pod.name in pods and pods[pod.name].uid != pod.uid:
            return
        previous = pods.pop(pod.name, None)
        if previous is not None:
            last = previous if pod.deadline is None else _keep_history(previous, pod)
            earlier = self._deleted.get(pod.unit)
            if earlier is None or earlier.attempt.number <= last.attempt.number:
                self._deleted[pod.unit] = last
        self._units = None
        self._forget_status(pod.unit)

    def _forget_status(self, unit: str) -> None:
        """Discard the cached status of a unit, on which those of other ranks can depend."""
        self._unit_statuses.pop(unit, None)
        for ranks in self._job_sets.values():
            if unit in ranks:
                for rank in ranks:
                    self._unit_statuses.pop(rank, None)

    # --- the units of the experiment ---

    def _note_record(self, record: EncodedRecord) -> None:
        """Discard a roster that is older than that of ``record``, which a change has written."""
        if not record.roster:
            return
        revision = revision_of(record.roster)
        self._revision = max(self._revision, revision)
        is_newer = revision > self._roster_revision
        if is_newer and self._roster is not None and not self._supervising:
            self._roster = self._units = None

    def _find_roster(self) -> None:
        """Read the newest roster from the objects that have one."""
        if self._roster is not None:
            return
        found = self._record_copies().find_roster()
        if found is not None:
            self._roster, self._roster_revision = found
            self._unit_statuses.clear()

    def _record_copies(self) -> RecordCopies:
        """Return the record of the experiment as its objects have it, also those that are gone."""
        copies = [pod.record for pod in (*self._current_pods(), *self._deleted.values())]
        copies += [job.record for job in self._current_jobs()]
        if self._stored is not None:
            copies.append(self._stored.record)
        return RecordCopies(copies)

    @property
    def changes(self) -> tuple[LoggedChange, ...]:
        """The latest changes of the experiment, oldest first."""
        return self._record_copies().changes()

    @property
    def ending(self) -> StoppedProcesses | None:
        """The processes that the supervisor stops at the end of the experiment."""
        return self._record_copies().ending()

    @property
    def _problems(self) -> dict[str, ContainerStatus]:
        """The states of the units that the supervisor could not create."""
        objects: list[PodStatus | JobStatus] = [*self._current_pods(), *self._current_jobs()]
        units = {item.unit for item in objects if item.record is not NO_RECORD}
        copies = []
        for unit in units:
            # The supervisor does not change the record in the objects of earlier attempts.
            pods, job = self._latest_attempt(unit)
            copies += [pod.record for pod in pods]
            copies += [job.record] if job is not None else []
        if self._stored is not None:
            copies.append(self._stored.record)
        problems = RecordCopies(copies).problems()
        return {unit: _with_problem(problem) for unit, problem in problems.items()}

    def _find_units(self) -> Roster:
        self._find_roster()
        roster = self._roster or ()
        self._job_sets = {
            name: {rank.name: rank for rank in ranks}
            for name, ranks in ranks_of_job_sets(roster).items()
        }
        if self._supervising:
            return roster
        in_roster = {unit.name for unit in roster}
        names = dict.fromkeys([*self._pods, *self._jobs, *self._deleted])
        others = [name for name in names if name not in in_roster and self._is_known(name)]
        others.sort(key=self._creation_order)
        return (*roster, *(self._unit_from_objects(name) for name in others))

    def _is_known(self, unit: str) -> bool:
        if self._pods.get(unit) or self._jobs.get(unit):
            return True
        if unit not in self._deleted:
            return False
        # A change of the experiment removes units.
        is_removed = self._roster_revision > 0 and all(
            unit != item.name for item in self._roster or ()
        )
        return not is_removed

    def _existed(self, unit: str) -> bool:
        return self._is_known(unit) or unit in self._removed_jobs

    def _creation_order(self, unit: str) -> tuple[float, str]:
        times = [pod.created for pod in self._pods.get(unit, {}).values()]
        return min(times, default=0.0), unit

    def _unit_from_objects(self, name: str) -> Unit:
        """Return a unit that is not in the roster, reconstructed from its objects."""
        pods = list(self._pods.get(name, {}).values())
        if name in self._deleted:
            pods.append(self._deleted[name])
        jobs = list(self._jobs.get(name, {}).values())
        processes = tuple(pods[-1].containers) if pods else jobs[-1].processes
        is_job = bool(jobs) or any(pod.job for pod in pods)
        return Unit(name=name, group=processes != (name,), processes=processes, job=is_job)

    # --- the state of the experiment ---

    def observe(self, now: float) -> Observation:
        """Return the state of the experiment at ``now``, a time in seconds since the epoch."""
        units = self.units
        containers: dict[str, ContainerStatus] = {}
        missing: list[Unit] = []
        expiries: list[float] = []
        unit_statuses: dict[str, UnitStatus] = {}
        for unit in units:
            unit_status = self._unit_status(unit, now)
            if unit_status is None:
                missing.append(unit)
                containers.update(dict.fromkeys(unit.processes, NOT_CREATED))
                continue
            unit_statuses[unit.name] = unit_status
            containers.update(unit_status.containers)
            if unit_status.disruption is not None and not unit_status.exists:
                problem = self._problems.get(unit.name)
                if problem is not None:
                    containers.update(dict.fromkeys(unit.processes, problem))
            if unit_status.valid_until is not None:
                expiries.append(unit_status.valid_until)
        if missing:
            expiries += self._explain_missing(missing, containers, now)
        _explain_waiting(units, unit_statuses, containers)
        ending = self.ending
        if ending is not None:
            on_nodes = self._processes_on_nodes()
            for unit_status in unit_statuses.values():
                if unit_status.control.start:
                    on_nodes.difference_update(unit_status.containers)
            containers = apply_ending(ending, containers, on_nodes)
        deleted_units = [unit for unit in self._deleted if not self._pods.get(unit)]
        unfinished = _unfinished_commands(unit_statuses)
        return Observation(
            status=self._experiment_status(
                units, containers, unit_statuses, ending, unfinished.values()
            ),
            deleting=self._is_being_deleted(),
            containers=containers,
            valid_until=min(expiries, default=None),
            deleted_units=frozenset(deleted_units),
            missing_units=frozenset(unit.name for unit in missing),
            empty=self.empty,
            unit_statuses=unit_statuses,
            unfinished=frozenset(unfinished),
            revision=self._revision,
        )

    def _unit_status(self, unit: Unit, now: float) -> UnitStatus | None:
        """Return the status of a unit, or None if the unit has not been created."""
        cached = self._unit_statuses.get(unit.name)
        if cached is not None and (cached.valid_until is None or now < cached.valid_until):
            return cached
        if not self._existed(unit.name):
            return None
        pods, job = self._latest_attempt(unit.name)
        deleted_pod = self._deleted.get(unit.name)
        computed = self._compute_status(unit, pods, job, deleted_pod, now)
        computed.remember_ready(self._ready_times)
        self._unit_statuses[unit.name] = computed
        return computed

    def _compute_status(
        self,
        unit: Unit,
        pods: list[PodStatus],
        job: JobStatus | None,
        deleted_pod: PodStatus | None,
        now: float,
    ) -> UnitStatus:
        observed: ObservedAttempt
        if not unit.job_set:
            removed_job = self._removed_jobs.get(unit.name)
            observed = ObservedAttempt(unit, pods, job, deleted_pod, now, removed_job=removed_job)
        else:
            observed = JobSetRank(
                unit,
                pods,
                job,
                deleted_pod,
                now,
                failure="" if job is None else self._failure_of_job_set(unit.job_set, job),
                all_have_succeeded=partial(self._have_all_ranks_succeeded, unit.job_set),
            )
        return UnitStatus(observed, supervising=self._supervising)

    def _failure_of_job_set(self, name: str, job: JobStatus) -> str:
        """Return the failure for which a JobSet restarted last or has failed, in words."""
        attempt = job.attempt.number if job.result is State.FAILED else job.attempt.number - 1
        pods: list[PodStatus] = []
        for rank in self._job_sets.get(name, {}):
            if job.result is State.FAILED and job.first_failed not in ("", rank):
                continue
            pods += self._pods.get(rank, {}).values()
            if rank in self._deleted:
                pods.append(self._deleted[rank])
        failure = describe_failure(pods, attempt)
        if failure:
            self._failures.setdefault((job.uid, attempt), failure)
        return self._failures.get((job.uid, attempt), "")

    def _have_all_ranks_succeeded(self, name: str) -> bool:
        """Return whether the processes of all ranks of a JobSet have exited with 0."""
        for rank in self._job_sets.get(name, {}).values():
            pods, _ = self._latest_attempt(rank.name)
            containers = pods[-1].containers if pods else {}
            for process in rank.processes:
                container = containers.get(process, NOT_CREATED)
                if container.state is not State.SUCCEEDED:
                    return False
        return True

    def _latest_attempt(self, unit: str) -> tuple[list[PodStatus], JobStatus | None]:
        """Return the Pods, oldest first, and the Job of the latest attempt to run a unit.

        There are none if the Pod of the latest attempt was deleted.
        """
        pods = list(self._pods.get(unit, {}).values())
        jobs = list(self._jobs.get(unit, {}).values())
        numbers = [pod.attempt.number for pod in pods]
        numbers += [job.attempt.number for job in jobs]
        latest = max(numbers, default=1)
        deleted = self._deleted.get(unit)
        if deleted is not None and deleted.attempt.number > latest:
            return [], None
        pods = [pod for pod in pods if pod.attempt.number == latest]
        pods.sort(key=lambda pod: (pod.created, pod.name))
        for job in jobs:
            if job.attempt.number == latest:
                return pods, job
            if job.kind == "JobSet":
                # The Pods of the next attempt can be observed before the JobSet.
                restarts = latest - job.attempt.number
                return pods, replace(job, attempt=after_restarts(job.attempt, restarts))
        return pods, None

    def _explain_missing(
        self, missing: list[Unit], containers: dict[str, ContainerStatus], now: float
    ) -> list[float]:
        """Record in ``containers`` why each of the ``missing`` units has not been created.

        Return the times at which these reasons can change.
        """
        expiries = []
        last_created = self._last_created()
        problems = self._problems
        for unit in _in_start_order(missing):
            container, expiry = self._not_created(unit, containers, problems, last_created, now)
            containers.update(dict.fromkeys(unit.processes, container))
            if expiry is not None:
                expiries.append(expiry)
        return expiries

    def _not_created(
        self,
        unit: Unit,
        containers: Mapping[str, ContainerStatus],
        problems: Mapping[str, ContainerStatus],
        last_created: float,
        now: float,
    ) -> tuple[ContainerStatus, float | None]:
        """Return the state of a unit that has not been created, and the time at which it expires.

        The time is None if the state does not expire.
        """
        problem = problems.get(unit.name)
        if unit.name in self.created or self._was_created_by_launch(unit):
            return self._deleted_unseen(unit, problem), None
        if problem is not None:
            return problem, None
        conditions = {
            process: condition
            for process, condition in unit.starts_after.items()
            if process in containers
        }
        decision = verdict(conditions, containers)
        if decision.word == "never":
            text = one_line(decision.reason, limit=MAX_CHAINED_REASON_CHARS)
            cause = Reason(text, ReasonCode.NEVER_STARTED)
            # The API server can stop a process at the deadline before the supervisor has decided to
            # end the experiment. The processes that wait for it have missed the deadline, too.
            if any(containers[process].cause == _AFTER_DEADLINE for process in conditions):
                cause = _AFTER_DEADLINE
            return ContainerStatus(state=State.FAILED, cause=cause), None
        if decision is not START:
            cause = Reason(decision.reason, ReasonCode.WAITING)
            return ContainerStatus(cause=cause), None
        if self._supervising:
            return NOT_CREATED, None
        may_start_since = last_created
        for process, condition in conditions.items():
            met_since = _met_since(condition, containers[process], now)
            may_start_since = max(may_start_since, met_since)
        expiry = may_start_since + CREATOR_GONE_SECONDS
        if now < expiry:
            return NOT_CREATED, expiry
        if conditions:
            text = "never started: the supervisor of the experiment is not running"
            cause = Reason(text, ReasonCode.NEVER_STARTED)
        else:
            cause = exit_unknown(
                "its Pod does not exist: it was deleted, or the launcher exited too early"
            )
        return ContainerStatus(state=State.UNKNOWN, cause=cause), None

    def _deleted_unseen(self, unit: Unit, problem: ContainerStatus | None) -> ContainerStatus:
        """Return the state of a unit that was created, and whose Pod was deleted without being
        observed.

        Only the supervisor knows whether the processes of the unit had ended before. ``problem`` is
        the reason why the supervisor cannot create the Pod again, or None.
        """
        is_unfinished = policy_of(unit).policy == "Always"
        if self._supervising:
            is_unfinished = unit.name not in self.ended
        if not unit.replaced_if_lost or not is_unfinished or self.ending is not None:
            return ContainerStatus(state=State.UNKNOWN, cause=POD_DELETED)
        return problem or ContainerStatus(cause=Reason(LOST_POD, ReasonCode.DISRUPTED))

    def _was_created_by_launch(self, unit: Unit) -> bool:
        """Return whether the launch, which is complete, has created a unit without conditions.

        The supervisor can still create a unit again that it restarts.
        """
        if self._stored is None or self._stored.is_changing:
            return False
        return not (unit.starts_after or unit.supervised_restart or unit.rank_of)

    def _last_created(self) -> float:
        """Return when the newest object was created. Its creator was running at that time."""
        times = [pod.created for pod in (*self._current_pods(), *self._deleted.values())]
        times += [job.created for job in self._current_jobs()]
        if self._stored is not None and self._stored.created is not None:
            times.append(self._stored.created)
        return max(times, default=0.0)

    def _processes_on_nodes(self) -> set[str]:
        """Return the processes whose latest Pods have been assigned to nodes."""
        names: set[str] = set()
        for unit in self._pods:
            pods, _ = self._latest_attempt(unit)
            names.update(name for pod in pods if pod.node for name in pod.containers)
        return names

    def _current_jobs(self) -> list[JobStatus]:
        return [job for jobs in self._jobs.values() for job in jobs.values()]

    def _current_pods(self) -> list[PodStatus]:
        return [pod for pods in self._pods.values() for pod in pods.values()]

    def _experiment_status(
        self,
        units: Roster,
        containers: Mapping[str, ContainerStatus],
        unit_statuses: Mapping[str, UnitStatus],
        ending: StoppedProcesses | None,
        unfinished: Iterable[str],
    ) -> ExperimentStatus:
        problems = [*sorted(set(filter(None, unfinished))), *self._log_problems()]
        note = "; ".join(problems) if ending is None else ending.reason
        if self._is_being_deleted():
            note = "is being deleted"
        policies, parameters = self._record_copies().policies()
        deadline = None
        if policies.deadline is not None and self._created is not None:
            deadline = self._created + policies.deadline
        processes = []
        for unit in units:
            group = unit.name if unit.group else None
            unit_status = unit_statuses.get(unit.name)
            pods = [] if unit_status is None else unit_status.pods
            node = pods[-1].node if pods else ""
            for name in unit.processes:
                processes.append(self._process_status(name, group, containers[name], node))
        return ExperimentStatus(
            name=self._experiment,
            backend=BACKEND,
            processes=tuple(processes),
            created=self._created,
            note=note,
            ends_with=policies.ends_with,
            deadline=deadline,
            parameters=parameters,
        )

    def _log_problems(self) -> list[str]:
        """Return the problems of processes whose logs have not shown yet that they are ready."""
        problems = []
        for pod in self._current_pods():
            for name, message in pod.log_problems:
                container = pod.containers.get(name)
                is_running = container is not None and container.state is State.RUNNING
                if is_running and name not in pod.ready_by_log:
                    problems.append((name, message))
        return [f"{group}: {group.cause}" for group in group_by_cause(sorted(problems))]

    def _is_being_deleted(self) -> bool:
        """Return whether the experiment has Pods and all of them are being deleted.

        The controllers of Jobs and JobSets delete Pods, for example after a deadline.
        """
        if any(not job.deleting for job in self._current_jobs()):
            return False
        found = False
        for pods in self._pods.values():
            for pod in pods.values():
                if pod.deadline is None:
                    return False
                found = True
        return found

    def _process_status(
        self, name: str, group: str | None, container: ContainerStatus, node: str
    ) -> ProcessStatus:
        if container.started is None:
            node = ""
        cached = self._process_statuses.get(name)
        # The identity check avoids most comparisons in experiments with many processes.
        is_same = cached is not None and (cached[0] is container or cached[0] == container)
        if cached is not None and is_same and cached[1].node == node:
            return cached[1]
        not_ready_in_time = (
            container.state is State.RUNNING and container.never_ready and not container.ready
        )
        is_backing_off = container.state is State.PENDING and container.cause.code in (
            ReasonCode.BACKING_OFF,
            ReasonCode.EXPERIMENT_RESTARTS,
        )
        status = ProcessStatus(
            name=name,
            group=group,
            state=container.state,
            ready=container.ready,
            exit_code=container.exit_code,
            reason=container.cause.text,
            reason_code=container.cause.code,
            restarts=container.restarts,
            started=container.started,
            ended=container.ended,
            node=node,
            not_ready_in_time=not_ready_in_time,
            next_start=container.next_start if is_backing_off else None,
            stopped=container.stopped,
            kill_at=container.kill_at,
            restart_number=container.restart_number if is_backing_off else None,
            max_restarts=container.max_restarts if is_backing_off else None,
        )
        self._process_statuses[name] = (container, status)
        return status


def _parse(kind: str, body: Object) -> list[JobStatus]:
    """Return the states in a Job or a JobSet, by unit."""
    if kind == JOB_SETS:
        return parse_job_set(body)
    return [] if is_in_job_set(body) else [parse_job(body)]


def _explain_waiting(
    units: Roster,
    unit_statuses: Mapping[str, UnitStatus],
    containers: dict[str, ContainerStatus],
) -> None:
    """Record in ``containers`` for which processes each unit waits that is to be started again."""
    for unit in units:
        status = unit_statuses.get(unit.name)
        if status is None or not status.waits_for_start or not unit.starts_after:
            continue
        if status.control.code in _WITHOUT_ORDER:
            continue
        conditions = {name: word for name, word in unit.starts_after.items() if name in containers}
        decision = verdict(conditions, containers)
        if decision is START:
            continue
        text = one_line(decision.reason, limit=MAX_CHAINED_REASON_CHARS)
        state, code = State.PENDING, ReasonCode.WAITING
        if decision.word == "never":
            state, code = State.FAILED, ReasonCode.NEVER_STARTED
        for name in unit.processes:
            containers[name] = replace(
                containers[name], state=state, cause=Reason(text, code), next_start=None
            )


def _unfinished_commands(units: Mapping[str, UnitStatus]) -> dict[str, str]:
    """Return a message for each unit whose command was not recorded in all other units, or ``""``
    if the command will be recorded in them.

    A client or a supervisor records a command in one unit first. This record contains the other
    units.
    """
    unfinished = {}
    for name, unit in units.items():
        control = unit.control
        missed = []
        for other, number in control.attempts_of_others().items():
            status = units.get(other)
            if status is not None and not status.is_requested_by(control.command, number):
                missed.append(other)
        if missed:
            unfinished[name] = (
                f"{control.command} was interrupted after {name!r} and before "
                f"{join_names(missed, limit=3)}; repeat the command"
            )
            if control.code:
                # The supervisor completes its own requests.
                unfinished[name] = ""
    return unfinished


def _with_problem(problem: Problem) -> ContainerStatus:
    """Return the state of the processes of a unit that could not be created."""
    if problem.permanent:
        text = one_line(f"never started: {problem.text}", limit=MAX_CHAINED_REASON_CHARS)
        return ContainerStatus(
            state=State.FAILED, cause=Reason(text, ReasonCode.NEVER_STARTED), ended=problem.time
        )
    text = one_line(problem.text, limit=MAX_CHAINED_REASON_CHARS)
    return ContainerStatus(cause=Reason(text, ReasonCode.NOT_PERMITTED))


def _keep_history(old: PodStatus, new: PodStatus) -> PodStatus:
    """Return the new state of a Pod, completed with facts that only its old state contains.

    A kubelet can reset the status of a container that has exited.
    """
    containers = dict(new.containers)
    for name, container in new.containers.items():
        earlier = old.containers.get(name)
        if earlier is None or earlier.started is None or container.started is not None:
            continue
        if container.state in ENDED:
            restarts = max(container.restarts, earlier.restarts)
            containers[name] = replace(container, started=earlier.started, restarts=restarts)
    before_deletion = old.before_deletion
    delete_requested = new.delete_requested
    if new.deadline is not None and old.deadline is None:
        before_deletion = old.containers
    elif old.delete_requested is not None:
        # The last change before a Pod disappears contains another time.
        delete_requested = old.delete_requested
    return replace(
        new,
        containers=containers,
        before_deletion=before_deletion,
        delete_requested=delete_requested,
    )


def _met_since(condition: str, container: ContainerStatus, now: float) -> float:
    """Return when a start condition was met, or ``now`` if the time is unknown."""
    times = {
        "ready": container.ready_since,
        "started": container.started,
        "succeeded": container.ended,
    }
    return times[condition] or now


def _in_start_order(units: list[Unit]) -> list[Unit]:
    """Return the units in an order in which each unit follows the units that it waits for."""
    if not any(unit.starts_after for unit in units):
        return units
    owners = {process: unit.name for unit in units for process in unit.processes}
    graph = {}
    for unit in units:
        graph[unit.name] = {owners[name] for name in unit.starts_after if name in owners}
    by_name = {unit.name: unit for unit in units}
    try:
        return [by_name[name] for name in graphlib.TopologicalSorter(graph).static_order()]
    except graphlib.CycleError:  # `resolve` rejects cycles, so a user has edited the roster.
        return units
