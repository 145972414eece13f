"""Carry out what `symphony.plan.decide` has decided about an experiment on Kubernetes.

The events of a decision are recorded first: in the record of the supervisor, and as requests in the
Pods and Jobs that they concern. If a process starts again, this request is recorded before the next
attempt is created, so that any other supervisor or client can continue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from symphony.errors import BackendError
from symphony.plan.actions import Start, Stop
from symphony.plan.decide import Decision
from symphony.plan.policies import seconds_to_deadline
from symphony.plan.state import Event
from symphony.plan.unit_decision import FAIL_UNIT, UnitDecision
from symphony.status import ReasonCode
from symphony_kube.api import error_messages
from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import collection_path, to_resource
from symphony_kube.lifecycle.attempts import (
    MAX_OTHERS_CHARS,
    annotated,
    next_attempt,
    request,
    stop_pods_of_job,
    stop_requested,
    with_attempt,
    with_manifest,
)
from symphony_kube.lifecycle.create import Creation, NameTaken, delete_uid, in_parallel
from symphony_kube.lifecycle.replacer import Replacer
from symphony_kube.lifecycle.supervisor.facts import (
    RESTART_CODES,
    find_earlier_round,
    is_restart_requested,
)
from symphony_kube.lifecycle.supervisor.new_attempts import attempt_of_new, find_losses
from symphony_kube.lifecycle.supervisor.run import Object, SupervisedRun
from symphony_kube.lifecycle.supervisor.supervisor_record import RecordBook, Round, RunGone
from symphony_kube.record.creation_problems import Problem
from symphony_kube.record.encoded_record import EncodedRecord, record_of_ending, record_of_problems
from symphony_kube.record.ending import StoppedProcesses
from symphony_kube.record.publish import publish
from symphony_kube.render.pod_parts.deadline import with_new_deadline
from symphony_kube.render.roster import Unit, roster_unit, units_by_object, units_of_ranks
from symphony_kube.state.control_state import FIRST_ATTEMPT, Control
from symphony_kube.state.ending import find_never_started, processes_to_stop
from symphony_kube.state.observe import Observation
from symphony_kube.state.unit_status import UnitStatus

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

# The first and the longest pause after an error, for example while the server is unreachable.
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
# If the creation of an attempt has begun for this time, it is completed. Usually, the client or
# supervisor that began it completes it at once.
BEGUN_SECONDS = 2.0
# More problems are not copied to a new object, because all annotations of an object together have
# at most 256 KiB.
MAX_PROBLEMS_CHARS = 64 << 10


class Executor:
    """The executor of one run. Created objects belong to ``owner``, or have no owner."""

    def __init__(
        self,
        experiment: KubeExperiment,
        run: SupervisedRun,
        owner: Object | None,
        book: RecordBook,
    ) -> None:
        self._experiment = experiment
        self._run = run
        self._owner = owner
        self._book = book
        self._units = {unit.name: unit for unit in run.roster}
        self._unit_of = {name: unit for unit in run.roster for name in unit.processes}
        self._gangs = units_of_ranks(run.roster)
        self._first_units = {
            unit.name: first
            for first, units in units_by_object(run.roster).items()
            for unit in units
        }
        self._replacer = Replacer(experiment)
        self._next_try = 0.0
        self._pause = FIRST_PAUSE_SECONDS
        self._ending_is_published = False

    # --- deciding again ---

    @property
    def next_try(self) -> float | None:
        """When to try again to create units, on the monotonic clock, or None."""
        problems = self._book.record.problems.values()
        return self._next_try if any(not problem.permanent for problem in problems) else None

    def begun_starts(self, observation: Observation) -> tuple[list[str], float | None]:
        """Return the units in which the creation of the next attempt has begun some time ago.

        The client or supervisor that began it may have been killed. Also return the time at which
        the next such unit is to be considered, or None.
        """
        begun, times = [], []
        now = self._experiment.api.now()
        for name, status in observation.unit_statuses.items():
            due = status.control.replaced + BEGUN_SECONDS
            if status.control.replaced and due <= now:
                begun.append(name)
            elif status.control.replaced:
                times.append(due)
        return begun, min(times, default=None)

    # --- events ---

    def record(self, decision: Decision, observation: Observation) -> None:
        """Record the events of a decision, and what it says about units of ranks."""
        for event in decision.events:
            if event["event"] == "ending":
                self._record_ending(event, observation)
            elif event["event"] == "restarting":
                self._record_restart(event, observation)
        if self._book.record.ending is not None:
            return
        self._request_restarts(decision.events, observation)
        self._record_problems(decision, observation)
        failed = self._failed_units(decision)
        for gang, unit_decision in decision.units.items():
            self._record_unit_decision(gang, unit_decision, observation, failed)

    def adopt_ending(self, ending: StoppedProcesses | None) -> None:
        """Continue an end that a command or another supervisor has begun."""
        if ending is not None and self._book.record.ending is None:
            self._ending_is_published = True
            self._book.write(replace(self._book.record, ending=ending))

    def _record_ending(self, event: Event, observation: Observation) -> None:
        """Record which processes are stopped, so that another supervisor can stop them, too."""
        ending = StoppedProcesses(
            processes=tuple(processes_to_stop(observation.status)),
            reason=event["reason"],
            code=ReasonCode(event["reason_code"]).value,
            time=event["at"],
            failed=event["action"] == "deadline",
            never_started=find_never_started(observation.status),
        )
        self._book.write(replace(self._book.record, ending=ending))

    def _record_restart(self, event: Event, observation: Observation) -> None:
        """Record the decision to start the experiment again, so that another supervisor can execute
        it.
        """
        begun = Round(
            number=self._book.record.round.number + 1,
            start=event["at"] + event["restarts_in"],
            in_row=event["in_row"],
            reason=event["cause"],
        )
        self._book.write(replace(self._book.record, round=begun, problems={}))
        self._publish(record_of_problems({}), observation.unit_statuses)

    def _request_restarts(self, events: Iterable[Event], observation: Observation) -> None:
        """Request the restarts that follow from the exits of processes that are no ranks.

        The other members of a group are stopped, because they share its Pod.
        """
        exits: dict[str, Event] = {}
        for event in events:
            is_restart = event["event"] == "exited" and event.get("restarts_in") is not None
            if is_restart and event["reason_code"] is not ReasonCode.EXPERIMENT_RESTARTS:
                unit = self._unit_of[event["process"]]
                status = observation.unit_statuses.get(unit.name)
                # If the Pod is gone, the next attempt is created at once.
                if not unit.rank_of and status is not None and status.exists:
                    exits.setdefault(unit.name, event)

        def request_restart(unit: str) -> None:
            status, event = observation.unit_statuses[unit], exits[unit]
            stop = 0.0 if status.has_ended else self._experiment.api.now()
            is_lost = event["reason_code"] is ReasonCode.DISRUPTED

            def change(control: Control) -> Control:
                if control.stop or control.start:
                    return control
                return replace(
                    control,
                    stop=stop,
                    start=event["at"] + event["restarts_in"],
                    reason=event["cause"],
                    code=ReasonCode(event["reason_code"]).value,
                    in_row=0 if is_lost else event["in_row"],
                )

            self._request(status, change)

        in_parallel(request_restart, exits, threads=self._experiment.api.connections)

    def _record_problems(self, decision: Decision, observation: Observation) -> None:
        """Record the ranks that are never created because their unit has failed."""
        found, record = {}, self._book.record
        for event in decision.events:
            if event.get("reason_code") is not ReasonCode.UNIT_FAILED:
                continue
            name = self._unit_of[event["process"]].name
            if name not in observation.unit_statuses and name not in record.problems:
                reason = event["reason"]
                found[name] = Problem(text=reason, time=self._experiment.api.now(), permanent=True)
        if found:
            problems = {**record.problems, **found}
            self._write_problems(problems, record.created, observation.unit_statuses)

    # --- units of ranks ---

    def _failed_units(self, decision: Decision) -> set[str]:
        """Return the ranks that are stopped, or do not start again, because their units fail."""
        names = {action.process for action in decision.actions if isinstance(action, Stop)}
        for event in decision.events:
            if event.get("reason_code") is ReasonCode.UNIT_FAILED:
                names.add(event["process"])
        return {self._unit_of[name].name for name in names}

    def _record_unit_decision(
        self, gang: str, decision: UnitDecision, observation: Observation, failed: Collection[str]
    ) -> None:
        """Request that the ranks of a unit are stopped, and are started again if it restarts.

        ``failed`` contains the ranks that fail if their units do. If the unit restarts, one rank
        records the names of the others. Therefore, no rank starts again before all have been
        stopped, even if this supervisor is killed.
        """
        names = [rank.name for rank in self._gangs[gang]]
        known = {name: observation.unit_statuses.get(name) for name in names}
        existing = {name: item for name, item in known.items() if item is not None and item.exists}
        wanted = {name: item for name, item in existing.items() if _can_be_requested(item)}
        if decision.action == FAIL_UNIT:
            request_ = _failure(decision, self._experiment.api.now())
            wanted = {name: item for name, item in wanted.items() if name in failed}
        else:
            request_ = _restart(decision, self._experiment.api.now())
            begun = [item.control for item in existing.values() if _is_restarted(item.control)]
            if begun:
                # A killed supervisor has not recorded the restart in all ranks.
                request_ = replace(begun[0], stop=self._experiment.api.now(), command="", others="")
            elif wanted:
                first = decision.rank if decision.rank in wanted else next(iter(wanted))
                if not self._request_first(first, wanted, request_):
                    # A user has stopped or started the unit in the meantime.
                    return
                del wanted[first]
        in_parallel(
            lambda status: self._request(status, lambda old: _with(old, request_)),
            list(wanted.values()),
            threads=self._experiment.api.connections,
        )

    def _request_first(
        self, first: str, units: Mapping[str, UnitStatus], request_: Control
    ) -> bool:
        """Record a request for a rank, and the names of the others that follow."""
        others = " ".join(
            f"{name}:{status.attempt.number}" for name, status in units.items() if name != first
        )
        if len(others) > MAX_OTHERS_CHARS:
            others = ""
        command = "restart" if others else ""
        wanted = replace(request_, command=command, others=others)
        recorded = request(self._experiment, units[first], lambda old: _with(old, wanted))
        return recorded is not None and recorded.others == others

    # --- actions ---

    def execute(self, decision: Decision, observation: Observation) -> float | None:
        """Carry out the actions of a decision.

        Return the time at which an attempt is completed that another program has begun to create,
        in seconds since the epoch, or None.
        """
        stopped = [action.process for action in decision.actions if isinstance(action, Stop)]
        if self._book.record.ending is not None:
            self._stop_for_good(stopped, observation)
            return None
        if self._book.record.round.number:
            self._restart_earlier_round(stopped, observation)
        started = [action.process for action in decision.actions if isinstance(action, Start)]
        units = list(dict.fromkeys(self._unit_of[name].name for name in started))
        begun, next_begun = self.begun_starts(observation)
        self._replacer.replace(
            observation,
            units,
            now=self._experiment.api.now(),
            round=self._book.record.round.number,
            begun=begun,
        )
        self._create(self._units_to_create(units, decision, observation), decision, observation)
        return next_begun

    def _request(self, status: UnitStatus, change: Callable[[Control], Control]) -> None:
        request(self._experiment, status, change)

    # --- the restart of the experiment ---

    def _restart_earlier_round(self, stopped: Sequence[str], observation: Observation) -> None:
        """Request that units of an earlier round start again: those that have ended, and those that
        are stopped now.
        """
        current = self._book.record.round
        stopping = {self._unit_of[name].name for name in stopped}
        found = []
        for name in find_earlier_round(observation, current):
            status = observation.unit_statuses[name]
            is_due = name in stopping or status.has_ended
            if is_due and status.exists and not is_restart_requested(status, current):
                found.append(status)

        def change(control: Control) -> Control:
            code = ReasonCode.EXPERIMENT_RESTARTS.value
            requested = stop_requested(control, self._experiment.api.now())
            return replace(requested, start=current.start, reason=current.reason, code=code)

        in_parallel(
            lambda status: self._request(status, change),
            found,
            threads=self._experiment.api.connections,
        )

    # --- creation ---

    def _units_to_create(
        self, units: Iterable[str], decision: Decision, observation: Observation
    ) -> list[str]:
        """Return those of the units that start which have no Pods, by their objects.

        If ranks of a unit have Pods and start again, the others join their next attempt.
        """
        names: dict[str, None] = {}
        statuses = observation.unit_statuses
        existing = {name for name, status in statuses.items() if status.exists}
        for name in units:
            gang = self._units[name].rank_of
            ranks = {rank.name for rank in self._gangs.get(gang, ())}
            is_joining = gang in decision.units and not existing.isdisjoint(ranks)
            if name not in existing and not is_joining:
                names[self._first_units[name]] = None
        return [name for name in names if name in self._run.units]

    def _create(self, units: Sequence[str], decision: Decision, observation: Observation) -> None:
        """Create units, and record which were created and why others could not be created."""
        if not units or time.monotonic() < self._next_try:
            return
        lost = find_losses(decision, self._run.roster)
        problems = in_parallel(
            lambda unit: self._create_unit(unit, lost, observation),
            units,
            threads=self._experiment.api.connections,
        )
        record = self._book.record
        found = dict(record.problems)
        created = set(record.created)
        for unit, problem in zip(units, problems, strict=True):
            found.pop(unit, None)
            if problem is None:
                created.add(unit)
            else:
                found[unit] = self._keep_time(unit, problem)
        self._next_try = 0.0
        if any(not problem.permanent for problem in found.values()):
            self._next_try = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        self._write_problems(found, frozenset(created), observation.unit_statuses)

    def _write_problems(
        self,
        problems: Mapping[str, Problem],
        created: frozenset[str],
        statuses: Mapping[str, UnitStatus],
    ) -> None:
        """Record the created units and those that could not be created, and publish the latter."""
        if problems != self._book.record.problems:
            self._publish(record_of_problems(problems), statuses)
        self._book.write(replace(self._book.record, created=created, problems=problems))

    def _keep_time(self, unit: str, problem: Problem) -> Problem:
        """Return a problem with the time at which it was first found."""
        earlier = self._book.record.problems.get(unit)
        return problem if earlier is None else replace(problem, time=earlier.time)

    def _create_unit(
        self, unit: str, lost: Mapping[str, str], observation: Observation
    ) -> Problem | None:
        """Create a unit. Return why it cannot be created, or None if it was created.

        Raises `BackendError` if the server cannot be reached, and `RunGone` if the namespace is
        being deleted.
        """
        attempt = replace(
            attempt_of_new(unit, self._run.roster, observation, lost),
            round=self._book.record.round.number,
            revision=self._run.revision,
        )
        body = self._run.units[unit]
        if attempt.number > 1:
            body = next_attempt(body, attempt)
        else:
            body = with_manifest(body)
            if attempt != FIRST_ATTEMPT:
                body = with_attempt(body, attempt)
        if unit == roster_unit(self._run.roster).name:
            body = self._with_problems(body)
        body = with_new_deadline(body, self._seconds_left())
        if self._owner is not None:
            metadata = {**body["metadata"], "ownerReferences": [self._owner]}
            body = {**body, "metadata": metadata}
        creation = Creation(self._experiment, self._experiment.scope.run)
        try:
            creation.create(to_resource(body, self._experiment.namespace))
        except NameTaken as exc:
            text = error_messages.name_taken(
                exc.resource.kind, exc.resource.name, self._experiment.scope, exc.found
            )
            return Problem(text=text, time=self._experiment.api.now(), permanent=True)
        except BackendError as exc:
            cause = exc.__cause__
            if not isinstance(cause, ApiError):
                raise
            if error_messages.is_terminating(cause):
                raise RunGone from exc
            is_temporary = error_messages.is_trouble(cause) or (
                error_messages.is_quota_exceeded(cause)
            )
            return Problem(
                text=str(exc), time=self._experiment.api.now(), permanent=not is_temporary
            )
        return None

    def _with_problems(self, body: Object) -> Object:
        """Return the object with the roster, in which readers find the record once it exists."""
        problems = self._book.record.problems
        copy = record_of_problems(problems)
        if not problems or len(copy.problems) > MAX_PROBLEMS_CHARS:
            return body
        return annotated(body, copy.annotations())

    def _seconds_left(self) -> float | None:
        run = self._run
        now = self._experiment.api.now()
        return seconds_to_deadline(run.policies, launched=run.launched, now=now)

    def _publish(self, record: EncodedRecord, statuses: Mapping[str, UnitStatus]) -> None:
        """Publish entries of the record; see `publish`.

        If the user is not allowed to modify the object, or if its annotations are too large, the
        copy does not have them.
        """
        try:
            publish(self._experiment, self._run.roster, statuses, record)
        except ApiError as exc:
            if exc.status not in (403, 404, 422):
                raise

    # --- the end of the experiment ---

    def _stop_for_good(self, stopped: Sequence[str], observation: Observation) -> None:
        """Stop processes, and keep their Pods, which contain their logs.

        If the active deadline of a Pod has passed, its node sends TERM to the processes, and KILL
        after the grace period. The Pod remains.
        """
        ending = self._book.record.ending
        if ending is not None and not self._ending_is_published:
            statuses = observation.unit_statuses
            self._publish(record_of_ending(ending), statuses)
            self._ending_is_published = True
        wave = dict.fromkeys(self._unit_of[name].name for name in stopped)
        for name, status in observation.unit_statuses.items():
            if status.has_ended and status.retry is not None:
                # It does not start again.
                wave[name] = None
            elif status.job is not None and status.control.stop and not status.has_ended:
                # The Job can have created another Pod in the meantime.
                wave[name] = None
        in_parallel(
            lambda name: self._stop_unit(self._units[name], observation.unit_statuses[name]),
            [name for name in wave if name in self._units],
            threads=self._experiment.api.connections,
        )

    def _stop_unit(self, unit: Unit, status: UnitStatus) -> None:
        has_node = any(pod.node for pod in status.pods)
        is_first = unit == roster_unit(self._run.roster)
        if not has_node and status.job is None and status.pods and not is_first:
            # A Pod without a node has no deadline and no logs.
            pod = status.pods[-1]
            path = f"{collection_path('Pod', self._experiment.namespace)}/{pod.name}"
            delete_uid(self._experiment.api, path, pod.uid, grace_seconds=0)
            return
        if not status.control.stop or status.control.start:
            api = self._experiment.api
            self._request(status, lambda control: stop_requested(control, api.now()))
        elif status.job is not None:
            stop_pods_of_job(self._experiment, status)


def _can_be_requested(status: UnitStatus) -> bool:
    control = status.control
    return not (control.stop or control.start or control.replaced)


def _is_restarted(control: Control) -> bool:
    return bool(control.start) and control.code in RESTART_CODES and not control.replaced


def _restart(decision: UnitDecision, now: float) -> Control:
    return Control(
        stop=now,
        start=decision.next_start,
        reason=decision.reason,
        code=decision.reason_code.value,
        in_row=decision.in_row if decision.reason_code is ReasonCode.BACKING_OFF else 0,
    )


def _failure(decision: UnitDecision, now: float) -> Control:
    return Control(stop=now, reason=decision.reason, code=ReasonCode.UNIT_FAILED.value)


def _with(control: Control, wanted: Control) -> Control:
    """Return the requests for a rank. Requests of a user take precedence."""
    if control.stop or control.start:
        return control
    return replace(
        control,
        stop=wanted.stop,
        start=wanted.start,
        reason=wanted.reason,
        code=wanted.code,
        in_row=wanted.in_row,
        command=wanted.command,
        others=wanted.others,
    )
