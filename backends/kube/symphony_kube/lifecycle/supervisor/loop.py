"""The supervisor's loop: it observes the experiment, records and executes what
`symphony.plan.decide` decides.

The loop keeps nothing that another supervisor needs. If it is killed, the next supervisor reads the
record and the state of the cluster and continues. Several loops for the same run do no harm:
an object that another supervisor has already created is accepted, and a supervisor whose record is
out of date reads it again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from symphony.errors import BackendError, NotFound
from symphony.plan import start_order
from symphony.plan.actions import Answer, Finish, Kill
from symphony.plan.decide import Decision, decide
from symphony.plan.state import apply
from symphony.status import ReasonCode, State
from symphony_kube.api import error_messages
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.lifecycle.supervisor.executor import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    Executor,
)
from symphony_kube.lifecycle.supervisor.facts import Cache, Situation, describe, find_ended
from symphony_kube.lifecycle.supervisor.run import Object, SupervisedRun
from symphony_kube.lifecycle.supervisor.supervisor_record import (
    RecordBook,
    RecordChanged,
    RecordStore,
    RunGone,
)
from symphony_kube.lifecycle.supervisor.usage_recorder import UsageRecorder
from symphony_kube.lifecycle.supervisor.wishes import make_wish
from symphony_kube.render.roster import Roster, is_supervised_to_the_end
from symphony_kube.state.observe import Observation
from symphony_kube.watch.observations import ObservationStream

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

# The time within which the first Pod of a launch must exist if the Jobs cannot be listed.
FIRST_POD_SECONDS = 10.0


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
    error, the function tries again, unless the store reports that the run is abandoned. Then, the
    error is raised. ``on_started`` is called when the run has been observed for the first time.
    """
    with contextlib.closing(
        UsageRecorder(KubeExperiment(api, run.scope), partial(store.open_usage, run), on_error)
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
    failures = _Failures(store, on_error)
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
            failures.note(exc, run, supervision)
        if supervision is not None and supervision.is_started:
            on_started = None
            pause = FIRST_PAUSE_SECONDS
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


class _Failures:
    """The errors of a supervisor, after which it tries again, until the run is abandoned."""

    def __init__(self, store: RecordStore, on_error: Callable[[str], None]) -> None:
        self._store = store
        self._on_error = on_error
        self._last_message = ""
        self._last_contact = time.monotonic()

    def note(self, exc: BackendError, run: SupervisedRun, supervision: _Supervision | None) -> None:
        """Report an error if it is a new one, and raise it if the run is abandoned."""
        if str(exc) != self._last_message:
            self._on_error(str(exc))
        self._last_message = str(exc)
        now = time.monotonic()
        if supervision is not None and supervision.is_started:
            self._last_contact = now
        if self._store.is_abandoned(run, now - self._last_contact):
            raise exc


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
        self._run = run
        self._experiment = KubeExperiment(api, run.scope)
        self._store = store
        self._usage = usage
        self._on_started = on_started
        self._wish = make_wish(run.roster, run.policies, experiment=run.scope.experiment)
        self._book = RecordBook(store)
        self._cache: Cache = {}
        self._executor = Executor(self._experiment, run, owner, self._book)
        # The time on the monotonic clock at which to decide again although nothing has changed.
        self._decide_again: float | None = None
        self.is_started = False

    def run_until_finished(self) -> None:
        """Observe the run and execute decisions until nothing is left to decide."""
        with self._open_observations() as observations:
            observation = observations.first()
            if observation.empty and not self._book.record.created:
                # A user who may not list Jobs sees a launch only when the controller has created
                # the first Pod.
                observation = observations.next(FIRST_POD_SECONDS) or observation
            while not observation.empty or self._starts_again(observation):
                self._report_start()
                self._usage.update(self._run, observation.status)
                self._executor.adopt_ending(observations.ending)
                if self._advance(observation):
                    return
                observation = observations.next(self._seconds_until_retry()) or observation

    def _open_observations(self) -> ObservationStream:
        """Return the observations of the run.

        Only the units that existed before the first list call can be known to be deleted.
        """
        record = self._book.record
        return ObservationStream(
            self._experiment,
            roster=self._run.roster,
            created=record.created,
            ended=record.ended,
            reads_ready_logs=True,
        )

    def _starts_again(self, observation: Observation) -> bool:
        """Return whether the experiment has no Pods because of disruptions, and goes on."""
        if not _has_lost(self._run.roster, observation):
            return False
        return self._store.still_exists(self._run)

    def _report_start(self) -> None:
        self.is_started = True
        if self._on_started is not None:
            self._on_started()
            self._on_started = None

    def _seconds_until_retry(self) -> float | None:
        """Return when to decide again although nothing has changed, or None if never."""
        times = [] if self._decide_again is None else [self._decide_again]
        if self._executor.next_try is not None:
            times.append(self._executor.next_try)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _advance(self, observation: Observation) -> bool:
        """Decide what happens next, record it and carry it out. Return whether this was all."""
        if observation.revision > self._known_revision:
            raise _ExperimentChanged(observation.revision)
        self._note_units(observation)
        # While all Pods are being deleted, the experiment is being deleted, or disrupted.
        if observation.deleting and not self._store.still_exists(self._run):
            return False
        now = self._experiment.api.now()
        situation = self._describe(observation, now)
        decision = decide(self._wish, situation.state, situation.facts, now)
        if _changes_something(decision):
            self._check_run()
        self._executor.record(decision, observation)
        next_begun = self._executor.execute(decision, observation)
        times = [time for time in (decision.wake_at, next_begun) if time is not None]
        self._decide_again = None
        if times:
            self._decide_again = time.monotonic() + min(times) - now
        return self._is_over(decision, situation, observation)

    def _note_units(self, observation: Observation) -> None:
        """Record which units exist, and which have ended by themselves.

        A command that changes the experiment waits until its revision is recorded.
        """
        roster, record = self._run.roster, self._book.record
        existing = {unit.name for unit in roster if unit.name not in observation.missing_units}
        now_ended, others = find_ended(roster, observation.unit_statuses)
        noted = replace(
            record,
            created=record.created | existing,
            ended=(record.ended | now_ended) - others,
            revision=self._run.revision,
        )
        self._book.write(noted)

    def _describe(self, observation: Observation, now: float) -> Situation:
        return describe(
            self._run.roster,
            observation,
            record=self._book.record,
            launched=self._run.launched,
            now=now,
            creatable=self._run.units.keys(),
            cache=self._cache,
        )

    def _is_over(self, decision: Decision, situation: Situation, observation: Observation) -> bool:
        """Return whether no supervisor is necessary any more.

        If all units exist and nothing follows from their exits, this is the case before the
        experiment has finished.
        """
        run = self._run
        has_finished = any(isinstance(action, Finish) for action in decision.actions)
        is_ending = self._book.record.ending is not None
        if has_finished or is_ending or is_supervised_to_the_end(run.roster, run.policies):
            return has_finished
        return not find_later_units(run.roster, situation, decision, observation, run.units)

    def _check_run(self) -> None:
        """Make sure that decisions follow from the latest description of the run.

        The machine of this supervisor can have been asleep while another one changed the
        experiment. Raises `RecordChanged` if the description has changed, and `RunGone` if another
        supervisor has taken over.
        """
        if self._store.current_run(self._run).revision != self._run.revision:
            raise RecordChanged


def find_later_units(
    roster: Roster,
    situation: Situation,
    decision: Decision,
    observation: Observation,
    creatable: Collection[str],
) -> list[str]:
    """Return the units that do not exist and that can still be created, of those in ``creatable``.

    They can also start after processes that were not ready in time, but become ready later.
    """
    state = situation.state.copy()
    state.tracks = {name: track.copy() for name, track in state.tracks.items()}
    waiting = {name for name, track in state.tracks.items() if track.state is State.PENDING}
    for event in decision.events:
        apply(state, event)
    return [
        unit.name
        for unit in roster
        if unit.name in observation.missing_units
        and unit.name in creatable
        and not waiting.isdisjoint(unit.processes)
        and start_order.can_start_later(unit.starts_after, state.tracks)
    ]


def _has_lost(roster: Roster, observation: Observation) -> bool:
    """Return whether a unit without Pods is started again after a disruption."""
    for unit in roster:
        states = [observation.containers[name] for name in unit.processes]
        if any(item.cause.code is ReasonCode.DISRUPTED for item in states):
            return True
    return False


def _changes_something(decision: Decision) -> bool:
    """Return whether a decision is more than the repetition of what is recorded already."""
    if any(not isinstance(action, Answer | Finish | Kill) for action in decision.actions):
        return True
    return bool(decision.units) or any(
        event["event"] in ("ending", "restarting") or event.get("restarts_in") is not None
        for event in decision.events
    )
