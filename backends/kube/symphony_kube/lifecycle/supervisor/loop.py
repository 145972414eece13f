"""The supervisor's loop: it observes the experiment, and executes what `decisions` decides.

The loop keeps nothing that another supervisor needs. If it is killed, the next supervisor reads the
record and the state of the cluster and continues. Several loops for the same run do no harm:
an object that another supervisor has already created is accepted, and a supervisor whose record is
out of date reads it again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from symphony.errors import BackendError, NotFound
from symphony.plan.policies import Ending, RestartHistory, seconds_to_deadline
from symphony.status import ReasonCode
from symphony_kube.api import error_messages
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import ENDING, PROBLEMS
from symphony_kube.api.resources import collection_path, to_resource
from symphony_kube.lifecycle.attempts import (
    MAX_OTHERS_CHARS,
    next_attempt,
    publish,
    request,
    stop_pods_of_job,
    stop_requested,
    with_attempt,
    with_manifest,
)
from symphony_kube.lifecycle.create import Creation, NameTaken, delete_uid, in_parallel
from symphony_kube.lifecycle.exits import ExitWatcher
from symphony_kube.lifecycle.replacer import Replacer
from symphony_kube.lifecycle.supervisor.decisions import Decisions, decide
from symphony_kube.lifecycle.supervisor.lost_units import (
    find_created,
    find_ended,
    find_lost,
    next_attempt_of_lost,
)
from symphony_kube.lifecycle.supervisor.rank_decisions import (
    UnitAction,
    attempt_of_other_ranks,
    find_deleted_ranks,
)
from symphony_kube.lifecycle.supervisor.ready_logs import LOG_POLL_SECONDS, ReadyLogs
from symphony_kube.lifecycle.supervisor.record import (
    Record,
    RecordChanged,
    RecordStore,
    Round,
    RunGone,
)
from symphony_kube.lifecycle.supervisor.run import Object, SupervisedRun
from symphony_kube.lifecycle.supervisor.usage import UsageRecorder
from symphony_kube.render.deadline import with_new_deadline
from symphony_kube.render.roster import Unit, roster_unit, stop_waves_of
from symphony_kube.state.control_state import FIRST_ATTEMPT, Attempt, Control
from symphony_kube.state.creation_problems import Problem, encode_problems
from symphony_kube.state.ending import StoppedProcesses, encode_ending
from symphony_kube.state.observe import Observation
from symphony_kube.state.unit_status import UnitStatus
from symphony_kube.status.follow_status import ObservationStream

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

# The first and the longest pause after an error, for example while the server is unreachable.
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
# The time within which the first Pod of a launch must exist if the Jobs cannot be listed.
FIRST_POD_SECONDS = 10.0
# If the creation of an attempt has begun for this time, it is completed. Usually, the client or
# supervisor that began it completes it at once.
BEGUN_SECONDS = 2.0


def supervise(
    api: Api,
    run: SupervisedRun,
    store: RecordStore,
    *,
    owner: Object | None = None,
    on_error: Callable[[str], None],
    on_started: Callable[[], None] | None = None,
) -> None:
    """Supervise a run until nothing is left to decide, or until the run no longer exists.

    Created objects belong to ``owner``, an owner reference. If the owner is deleted, Kubernetes
    deletes these objects. ``on_error`` is called with the message of each new error. After an
    error, the function tries again. ``on_started`` is called when the run has been observed for the
    first time.
    """
    with contextlib.closing(
        UsageRecorder(api, run.scope, partial(store.open_usage, run), on_error)
    ) as usage:
        _supervise(api, run, store, owner, usage, on_error, on_started)


def _supervise(
    api: Api,
    run: SupervisedRun,
    store: RecordStore,
    owner: Object | None,
    usage: UsageRecorder,
    on_error: Callable[[str], None],
    on_started: Callable[[], None] | None,
) -> None:
    pause = FIRST_PAUSE_SECONDS
    last_message = ""
    known_revision = 0
    while True:
        supervision = None
        try:
            run = store.current_run(run)
            known_revision = max(known_revision, run.revision)
            supervision = _Supervision(api, run, store, owner, usage, on_started, known_revision)
            supervision.run_until_finished()
            return
        except (RunGone, NotFound):
            return
        except RecordChanged:
            continue
        except _ExperimentChanged as exc:
            known_revision = exc.revision
            continue
        except BackendError as exc:
            if isinstance(exc, ApiError) and error_messages.is_terminating(exc):
                return
            if str(exc) != last_message:
                on_error(str(exc))
            last_message = str(exc)
        if supervision is not None and supervision.is_started:
            on_started = None
            pause = FIRST_PAUSE_SECONDS
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


class _ExperimentChanged(Exception):
    """Raised if a command has changed the experiment, so that the run must be read again."""

    def __init__(self, revision: int) -> None:
        super().__init__(revision)
        self.revision = revision


class _Supervision:
    """The supervision of a run until the next error.

    ``known_revision`` is the number of the latest change of the experiment for which the run was
    read.
    """

    def __init__(
        self,
        api: Api,
        run: SupervisedRun,
        store: RecordStore,
        owner: Object | None,
        usage: UsageRecorder,
        on_started: Callable[[], None] | None,
        known_revision: int,
    ) -> None:
        self._known_revision = known_revision
        self._api = api
        self._run = run
        self._scope = run.scope
        self._store = store
        self._owner = owner
        self._usage = usage
        self._on_started = on_started
        self._record = store.read()
        self._next_try = 0.0
        self._pause = FIRST_PAUSE_SECONDS
        # The time at which to decide again although nothing has changed.
        self._decide_again: float | None = None
        self._replacer = Replacer(api, self._scope)
        self._exits = ExitWatcher(api, self._scope)
        self._ending_is_published = False
        self._unit_statuses: Mapping[str, UnitStatus] = {}
        self._observation: Observation | None = None
        self.is_started = False

    def run_until_finished(self) -> None:
        """Observe the run and execute decisions until nothing is left to decide."""
        with (
            ObservationStream(self._api, self._scope, roster=self._run.roster) as observations,
            ReadyLogs(self._api, self._scope, self._run.roster) as logs,
        ):
            # Only the units that existed before the first list call can be known to be deleted.
            observations.observer.created = self._record.created
            observations.observer.ended = self._record.ended
            observation = observations.first()
            if observation.empty and not self._record.created:
                # A user who may not list Jobs sees a launch only when the controller has created
                # the first Pod.
                observation = observations.next(FIRST_POD_SECONDS) or observation
            while not observation.empty or self._starts_again(observation):
                self._report_start()
                self._usage.update(self._run, observation.status)
                states = logs.add_ready(observation)
                self._adopt_ending(observations.observer.ending)
                if self._advance(replace(observation, containers=states)):
                    return
                # When a log shows that a process is ready, the Pod is annotated, which causes a new
                # observation. If the user is not allowed to modify Pods, no object changes, so the
                # logs are checked regularly.
                timeout = self._seconds_until_retry()
                if logs.pending:
                    timeout = LOG_POLL_SECONDS
                observation = observations.next(timeout) or observation

    def _starts_again(self, observation: Observation) -> bool:
        """Return whether the experiment has no Pods because of disruptions, and goes on."""
        if not find_created(self._run.roster, observation):
            return False
        return self._store.still_exists(self._run)

    def _adopt_ending(self, ending: StoppedProcesses | None) -> None:
        """Continue an end that a command or another supervisor has begun."""
        if ending is not None and self._record.ending is None:
            self._ending_is_published = True
            self._write_record(replace(self._record, ending=ending))

    def _report_start(self) -> None:
        self.is_started = True
        if self._on_started is not None:
            self._on_started()
            self._on_started = None

    def _seconds_until_retry(self) -> float | None:
        """Return when to decide again although nothing has changed, or None if never."""
        times = [] if self._decide_again is None else [self._decide_again]
        if any(not problem.permanent for problem in self._record.problems.values()):
            times.append(self._next_try)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _advance(self, observation: Observation) -> bool:
        """Execute the next decisions. Return whether nothing is left to decide."""
        if observation.revision > self._known_revision:
            raise _ExperimentChanged(observation.revision)
        self._observation = observation
        self._unit_statuses = observation.unit_statuses
        roster = self._run.roster
        existing = {unit.name for unit in roster if unit.name not in observation.missing_units}
        created = self._record.created | existing
        now_ended, others = find_ended(roster, observation.unit_statuses)
        ended = (self._record.ended | now_ended) - others
        # A command that changes the experiment waits until its revision is recorded.
        revision = self._run.revision
        self._write_record(replace(self._record, created=created, ended=ended, revision=revision))
        # While all Pods are being deleted, the experiment is being deleted, or disrupted.
        if observation.deleting and not self._store.still_exists(self._run):
            return False
        self._exits.watch(observation.unit_statuses.values())
        if self._record.ending is not None:
            self._stop_processes(self._record.ending, observation)
            return observation.status.ended
        if self._begin_round(observation):
            return False
        return self._execute(self._decide(observation), observation)

    def _decide(self, observation: Observation) -> Decisions:
        roster = self._run.roster
        excluded = self._record.created - find_deleted_ranks(roster, observation)
        excluded -= find_lost(roster, observation) | find_created(roster, observation)
        excluded |= {unit.name for unit in roster} - self._run.units.keys()
        for unit, problem in self._record.problems.items():
            if problem.permanent:
                excluded |= {unit}
        return decide(
            roster,
            observation,
            excluded,
            policies=self._run.policies,
            launched=self._run.launched,
            now=self._api.now(),
            history=self._restart_history(),
        )

    def _execute(self, decisions: Decisions, observation: Observation) -> bool:
        """Execute decisions. Return whether nothing is left to decide."""
        is_change = decisions.restart or decisions.ending or decisions.create
        if is_change or decisions.unit_actions or decisions.lost:
            self._check_run()
        if decisions.unit_actions:
            self._decide_again = None
            for action in decisions.unit_actions:
                self._apply_to_unit(action, observation)
            return False
        if decisions.restart is not None:
            self._restart_experiment(decisions.restart, observation)
            return False
        if decisions.ending is not None:
            # The decision is recorded first, so that another supervisor can execute it.
            self._write_record(replace(self._record, ending=decisions.ending))
            self._stop_processes(decisions.ending, observation)
            return False
        self._start_again(decisions, observation)
        if decisions.finished:
            return True
        if decisions.create and time.monotonic() >= self._next_try:
            self._create(decisions.create)
        return False

    def _check_run(self) -> None:
        """Make sure that decisions follow from the latest description of the run.

        The machine of this supervisor can have been asleep while another one changed the
        experiment. Raises `RecordChanged` if the description has changed, and `RunGone` if another
        supervisor has taken over.
        """
        if self._store.current_run(self._run).revision != self._run.revision:
            raise RecordChanged

    def _write_record(self, record: Record) -> None:
        if record != self._record:
            self._store.write(record)
            self._record = record

    # --- creation ---

    def _create(self, units: tuple[str, ...]) -> None:
        """Create units, and record which were created and why others could not be created."""
        problems = in_parallel(self._create_unit, units, threads=self._api.connections)
        found = dict(self._record.problems)
        created = set(self._record.created)
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
        self._write_problems(found, frozenset(created))

    def _write_problems(self, problems: Mapping[str, Problem], created: frozenset[str]) -> None:
        """Record the created units and those that could not be created, and publish the latter."""
        if problems != self._record.problems:
            self._publish(PROBLEMS, encode_problems(problems))
        self._write_record(replace(self._record, created=created, problems=problems))

    def _keep_time(self, unit: str, problem: Problem) -> Problem:
        """Return a problem with the time at which it was first found."""
        earlier = self._record.problems.get(unit)
        return problem if earlier is None else replace(problem, time=earlier.time)

    def _create_unit(self, unit: str) -> Problem | None:
        """Create a unit. Return why it cannot be created, or None if it was created.

        Raises `BackendError` if the server cannot be reached, and `RunGone` if the namespace is
        being deleted.
        """
        attempt = self._attempt_of_new(unit)
        body = self._run.units[unit]
        if attempt.number > 1:
            body = next_attempt(body, attempt)
        else:
            body = with_manifest(body)
            if attempt != FIRST_ATTEMPT:
                body = with_attempt(body, attempt)
        body = with_new_deadline(body, self._seconds_left())
        if self._owner is not None:
            metadata = {**body["metadata"], "ownerReferences": [self._owner]}
            body = {**body, "metadata": metadata}
        creation = Creation(self._api, self._scope, self._scope.run)
        try:
            creation.create(to_resource(body, self._scope.namespace))
        except NameTaken as exc:
            text = error_messages.name_taken(
                exc.resource.kind, exc.resource.name, self._scope, exc.found
            )
            return Problem(text=text, time=self._api.now(), permanent=True)
        except BackendError as exc:
            cause = exc.__cause__
            if not isinstance(cause, ApiError):
                raise
            if error_messages.is_terminating(cause):
                raise RunGone from exc
            is_temporary = error_messages.is_trouble(cause) or (
                error_messages.is_quota_exceeded(cause)
            )
            return Problem(text=str(exc), time=self._api.now(), permanent=not is_temporary)
        return None

    def _attempt_of_new(self, unit: str) -> Attempt:
        """Return the attempt of a unit that has no Pod. A rank joins the attempt of the others."""
        attempt = attempt_of_other_ranks(unit, self._run.roster, self._unit_statuses)
        if attempt is None and self._observation is not None:
            attempt = next_attempt_of_lost(unit, self._run.roster, self._observation)
        return replace(
            attempt or FIRST_ATTEMPT,
            round=self._record.round.number,
            revision=self._run.revision,
        )

    def _seconds_left(self) -> float | None:
        run = self._run
        return seconds_to_deadline(run.policies, launched=run.launched, now=self._api.now())

    def _publish(self, annotation: str, value: str) -> None:
        """Annotate the object with the roster; see `publish`.

        If the user is not allowed to modify the object, only this supervisor knows the value.
        """
        roster, statuses = self._run.roster, self._unit_statuses
        try:
            publish(self._api, self._scope, roster, statuses, {annotation: value})
        except ApiError as exc:
            if exc.status not in (403, 404):
                raise

    # --- the end of the experiment ---

    def _stop_processes(self, ending: StoppedProcesses, observation: Observation) -> None:
        """Stop the next wave of processes, and keep their Pods, which contain their logs.

        If the active deadline of a Pod has passed, its node sends TERM to the processes, and KILL
        after the grace period. The Pod remains.
        """
        self._publish_ending(ending)
        stopped = set(ending.processes)
        units = {}
        for unit in self._run.roster:
            status = observation.unit_statuses.get(unit.name)
            if status is None or not stopped.intersection(unit.processes):
                continue
            if not status.control.replaced and not (status.has_ended and status.retry is None):
                units[unit.name] = (unit, status)
        waves = stop_waves_of(self._run.roster, units)
        if waves:
            wave = [units[name] for name in waves[0]]
            in_parallel(self._stop_unit, wave, threads=self._api.connections)

    def _publish_ending(self, ending: StoppedProcesses) -> None:
        if not self._ending_is_published:
            self._publish(ENDING, encode_ending(ending))
            self._ending_is_published = True

    def _stop_unit(self, item: tuple[Unit, UnitStatus]) -> None:
        unit, status = item
        has_node = any(pod.node for pod in status.pods)
        is_first = unit == roster_unit(self._run.roster)
        if not has_node and status.job is None and status.pods and not is_first:
            # A Pod without a node has no deadline and no logs.
            pod = status.pods[-1]
            path = f"{collection_path('Pod', self._scope.namespace)}/{pod.name}"
            delete_uid(self._api, path, pod.uid, grace_seconds=0)
            return
        if not status.control.stop or status.control.start:
            self._request(status, lambda control: stop_requested(control, self._api.now()))
        elif status.job is not None:
            stop_pods_of_job(self._api, self._scope, status)

    def _request(self, status: UnitStatus, change: Callable[[Control], Control]) -> None:
        request(self._api, self._scope, status, change)

    # --- restarts ---

    def _start_again(self, decisions: Decisions, observation: Observation) -> None:
        """Request the restarts that policies require, and create the attempts that can start."""
        self._request_retries(decisions.retry, observation)
        self._request_after_disruptions(decisions.lost, observation)
        now = self._api.now()
        begun, next_begun = _begun_replacements(observation, now)
        next_start = self._replacer.replace(
            self._run.roster, observation, now=now, round=self._record.round.number, begun=begun
        )
        times = []
        if decisions.seconds is not None:
            times.append(time.monotonic() + decisions.seconds)
        for start in (next_start, next_begun):
            if start is not None:
                times.append(time.monotonic() + start - now)
        self._decide_again = min(times, default=None)

    def _request_retries(self, units: tuple[str, ...], observation: Observation) -> None:
        """Request the restarts that follow from the restart policies of units."""

        def request_retry(unit: str) -> None:
            status = observation.unit_statuses[unit]
            retry = status.retry
            if retry is None:
                return

            def change(control: Control) -> Control:
                if control.stop or control.start:
                    return control
                # The other members of a group are stopped, because they share its Pod.
                stop = 0.0 if status.has_ended else self._api.now()
                return replace(
                    control,
                    stop=stop,
                    start=retry.time,
                    reason=retry.cause,
                    code=ReasonCode.BACKING_OFF.value,
                    in_row=retry.in_row,
                )

            self._request(status, change)

        in_parallel(request_retry, units, threads=self._api.connections)

    def _request_after_disruptions(
        self, units: Mapping[str, str], observation: Observation
    ) -> None:
        """Request that units are started again whose Pods remain after a disruption."""
        now = self._api.now()

        def request_start(unit: str) -> None:
            def change(control: Control) -> Control:
                if control.stop or control.start:
                    return control
                code = ReasonCode.DISRUPTED.value
                return replace(control, start=now, reason=units[unit], code=code)

            self._request(observation.unit_statuses[unit], change)

        in_parallel(request_start, units, threads=self._api.connections)

    def _apply_to_unit(self, action: UnitAction, observation: Observation) -> None:
        """Request that the ranks of a unit are stopped, and started again if they are to be."""
        statuses = [observation.unit_statuses[name] for name in action.ranks]
        names = list(action.ranks)
        now = self._api.now()
        if action.is_new:
            others = " ".join(
                f"{name}:{status.attempt.number}"
                for name, status in zip(names[1:], statuses[1:], strict=True)
            )
            if len(others) > MAX_OTHERS_CHARS:
                others = ""
            recorded = request(
                self._api,
                self._scope,
                statuses[0],
                lambda old: _with_action(old, action, now, others),
            )
            if recorded is None or recorded.others != others:
                # A user has stopped or started the unit in the meantime.
                return
            del statuses[0]
        in_parallel(
            lambda status: self._request(status, lambda old: _with_action(old, action, now)),
            statuses,
            threads=self._api.connections,
        )
        if action.never_start:
            problem = Problem(text=action.reason, time=now, permanent=True)
            problems = {**self._record.problems, **dict.fromkeys(action.never_start, problem)}
            self._write_problems(problems, self._record.created)

    def _restart_history(self) -> RestartHistory | None:
        current = self._record.round
        started = current.start or self._run.launched
        return RestartHistory(restarts=current.number, in_row=current.in_row, started=started)

    def _restart_experiment(self, ending: Ending, observation: Observation) -> None:
        """Record the decision to start the experiment again, and stop its processes."""
        if ending.restart is None:
            return
        begun = Round(
            number=self._record.round.number + 1,
            start=self._api.now() + ending.restart.delay,
            in_row=ending.restart.in_row,
            reason=ending.cause,
        )
        # The decision is recorded first, so that another supervisor can execute it.
        self._write_record(replace(self._record, round=begun, problems={}))
        self._publish(PROBLEMS, encode_problems({}))
        self._begin_round(observation)

    def _begin_round(self, observation: Observation) -> bool:
        """Request the restart of the units of the previous round. Return whether there are any."""
        current = self._record.round
        code = ReasonCode.EXPERIMENT_RESTARTS.value
        old = []
        for status in observation.unit_statuses.values():
            is_requested = status.control.code == code and status.control.start >= current.start
            is_old = status.attempt.round < current.number
            exists = bool(status.pods) or status.job is not None
            if exists and is_old and not is_requested and not status.control.replaced:
                old.append(status)

        def change(control: Control) -> Control:
            stopped = stop_requested(control, self._api.now())
            return replace(stopped, start=current.start, reason=current.reason, code=code)

        in_parallel(
            lambda status: self._request(status, change), old, threads=self._api.connections
        )
        return bool(old)


def _begun_replacements(observation: Observation, now: float) -> tuple[list[str], float | None]:
    """Return the units in which the creation of the next attempt has begun some time ago.

    The client or supervisor that began it may have been killed. Also return the time at which the
    next such unit is to be considered, or None.
    """
    begun, times = [], []
    for name, status in observation.unit_statuses.items():
        due = status.control.replaced + BEGUN_SECONDS
        if status.control.replaced and due <= now:
            begun.append(name)
        elif status.control.replaced:
            times.append(due)
    return begun, min(times, default=None)


def _with_action(control: Control, action: UnitAction, now: float, others: str = "") -> Control:
    """Return the requests for a rank; see `UnitAction`. Requests of a user take precedence."""
    if control.stop or control.start:
        return control
    return replace(
        control,
        stop=now,
        start=action.start,
        reason=action.reason,
        code=action.code.value,
        in_row=action.in_row,
        command="restart" if others else "",
        others=others,
    )
