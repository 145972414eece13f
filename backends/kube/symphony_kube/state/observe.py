"""Compute an experiment's status from its Pods, Jobs and JobSets.

Pure: the caller passes the time and the objects.

`ExperimentState` accepts lists and watch events, and recomputes only the units that have changed.
`observe` computes the state once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from symphony.plan.start_order import START, verdict
from symphony.status import ExperimentStatus, ReasonCode, State
from symphony.support.names import join_names
from symphony_kube.api.errors import one_line
from symphony_kube.record.encoded_record import EncodedRecord
from symphony_kube.record.ending import StoppedProcesses
from symphony_kube.render.roster import Roster, Unit
from symphony_kube.state.control_state import NO_CONTROL, Control
from symphony_kube.state.ending import apply_ending
from symphony_kube.state.job_status import JobStatus
from symphony_kube.state.known_units import KnownUnits
from symphony_kube.state.missing_units import MAX_CHAINED_REASON_CHARS, MissingUnits, with_problem
from symphony_kube.state.observed_objects import JOB_SETS, JOBS, PODS, ObservedObjects
from symphony_kube.state.observed_record import ObservedRecord
from symphony_kube.state.pod_status import NOT_CREATED, ContainerStatus
from symphony_kube.state.process_statuses import ProcessStatuses
from symphony_kube.state.reasons import Reason
from symphony_kube.state.unit_status import UnitStatus
from symphony_kube.state.unit_statuses import UnitStatuses

BACKEND = "kube"
# The start order does not delay these restarts.
_WITHOUT_ORDER = (ReasonCode.BACKING_OFF.value, ReasonCode.UNSCHEDULABLE.value)

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
    state = ExperimentState(experiment, roster=roster)
    state.replace(PODS, pods)
    state.replace(JOBS, jobs)
    state.replace(JOB_SETS, job_sets)
    return state.observe(now)


class ExperimentState:
    """The state of an experiment, which follows from its ``objects`` and its ``record``.

    A supervisor passes its ``roster``. It is then assumed that the supervisor will still create all
    missing units of the roster, regardless of the time that has passed, except for the units in
    ``created``, which the supervisor has created earlier. ``ended`` contains those that had ended,
    so that they are not created again if their Pods are deleted. Other callers omit the roster,
    which is then read from the Pods or Jobs. ``known_units`` are the units of the experiment.
    """

    def __init__(self, experiment: str, *, roster: Roster | None = None) -> None:
        self._experiment = experiment
        self._supervising = roster is not None
        self.created: frozenset[str] = frozenset()
        self.ended: frozenset[str] = frozenset()
        self.objects = ObservedObjects(self._note_record)
        self.record = ObservedRecord(self.objects, roster)
        supervising = self._supervising
        self.known_units = KnownUnits(self.objects, self.record, supervising=supervising)
        self._unit_statuses = UnitStatuses(self.objects, self.known_units, supervising=supervising)
        self._process_statuses = ProcessStatuses()

    def replace(self, kind: str, objects: Iterable[Object]) -> None:
        """See `ObservedObjects.replace`."""
        self.objects.replace(kind, objects)

    def apply(self, kind: str, event: str, changed: Object) -> None:
        """See `ObservedObjects.apply`."""
        self.objects.apply(kind, event, changed)

    def _note_record(self, record: EncodedRecord) -> None:
        self.record.note(record)

    # --- what is known of the experiment ---

    @property
    def units(self) -> Roster:
        """See `KnownUnits.units`."""
        return self.known_units.units

    @property
    def needs_stored_record(self) -> bool:
        """True if no Pod and no Job has the roster, which the stored record can provide."""
        return self.record.find_roster() is None

    def use_results_of_missing_jobs(self, jobs: Iterable[JobStatus]) -> None:
        """Use the results of Jobs that no longer exist."""
        self.objects.removed_jobs.update({job.unit: job for job in jobs})

    @property
    def empty(self) -> bool:
        """True if the experiment has neither Pods nor Jobs nor JobSets."""
        return self.objects.is_empty

    @property
    def may_have_missed_launch(self) -> bool:
        """True if the stored record is that of a complete launch, but none of its objects is known.

        Either all of them were deleted, or the launch created them after they had been listed and
        before the roster was read.
        """
        return self.empty and self.record.is_launched

    @property
    def has_stored_record(self) -> bool:
        """True if the stored record was used, because no Pod and no Job had one."""
        return self.record.stored is not None

    @property
    def is_known(self) -> bool:
        """True if the experiment has Pods, Jobs or a roster."""
        return not self.empty or self.has_stored_record

    # --- the state of the experiment ---

    def observe(self, now: float) -> Observation:
        """Return the state of the experiment at ``now``, a time in seconds since the epoch."""
        units = self.units
        self._unit_statuses.discard_changed(self.record.find_roster())
        ending = self.record.ending
        containers: dict[str, ContainerStatus] = {}
        missing: list[Unit] = []
        expiries: list[float] = []
        unit_statuses: dict[str, UnitStatus] = {}
        for unit in units:
            unit_status = self._unit_statuses.find(unit, now)
            if unit_status is None:
                missing.append(unit)
                containers.update(dict.fromkeys(unit.processes, NOT_CREATED))
                continue
            unit_statuses[unit.name] = unit_status
            containers.update(unit_status.containers)
            if unit_status.disruption is not None and not unit_status.exists:
                problem = self._problems().get(unit.name)
                if problem is not None:
                    containers.update(dict.fromkeys(unit.processes, problem))
            if unit_status.valid_until is not None:
                expiries.append(unit_status.valid_until)
        if missing:
            expiries += self._explain_missing(
                missing, containers, now, is_ending=ending is not None
            )
        _explain_waiting(units, unit_statuses, containers)
        if ending is not None:
            on_nodes = self.objects.processes_on_nodes()
            for unit_status in unit_statuses.values():
                if unit_status.control.start:
                    on_nodes.difference_update(unit_status.containers)
            containers = apply_ending(ending, containers, on_nodes)
        unfinished = _unfinished_commands(unit_statuses)
        return Observation(
            status=self._experiment_status(
                units, containers, unit_statuses, ending, unfinished.values()
            ),
            deleting=self.objects.are_being_deleted(),
            containers=containers,
            valid_until=min(expiries, default=None),
            deleted_units=self.objects.deleted_units,
            missing_units=frozenset(unit.name for unit in missing),
            empty=self.empty,
            unit_statuses=unit_statuses,
            unfinished=frozenset(unfinished),
            revision=self.record.revision,
        )

    def _explain_missing(
        self,
        missing: list[Unit],
        containers: dict[str, ContainerStatus],
        now: float,
        *,
        is_ending: bool,
    ) -> list[float]:
        """Record why units do not exist, and return when these reasons can change."""
        times = self.known_units.creation_times()
        times += [pod.created for pod in self.objects.deleted.values()]
        explanation = MissingUnits(
            now=now,
            supervising=self._supervising,
            created=self.created,
            ended=self.ended,
            is_launched=self.record.is_launched,
            is_ending=is_ending,
            problems=self._problems(),
            last_created=max(times, default=0.0),
        )
        return explanation.explain(missing, containers)

    def _problems(self) -> dict[str, ContainerStatus]:
        """Return the states of the units that the supervisor could not create."""
        problems = self.record.problems()
        return {unit: with_problem(problem) for unit, problem in problems.items()}

    def _experiment_status(
        self,
        units: Roster,
        containers: Mapping[str, ContainerStatus],
        unit_statuses: Mapping[str, UnitStatus],
        ending: StoppedProcesses | None,
        unfinished: Iterable[str],
    ) -> ExperimentStatus:
        problems = [*sorted(set(filter(None, unfinished))), *self.objects.log_problems()]
        note = "; ".join(problems) if ending is None else ending.reason
        if self.objects.are_being_deleted():
            note = "is being deleted"
        policies, parameters = self.record.policies()
        deadline = None
        if policies.deadline is not None and self.known_units.created is not None:
            deadline = self.known_units.created + policies.deadline
        processes = []
        for unit in units:
            group = unit.name if unit.group else None
            unit_status = unit_statuses.get(unit.name)
            pods = [] if unit_status is None else unit_status.pods
            node = pods[-1].node if pods else ""
            for name in unit.processes:
                processes.append(self._process_statuses.find(name, group, containers[name], node))
        return ExperimentStatus(
            name=self._experiment,
            backend=BACKEND,
            processes=tuple(processes),
            created=self.known_units.created,
            note=note,
            ends_with=policies.ends_with,
            deadline=deadline,
            parameters=parameters,
        )


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
