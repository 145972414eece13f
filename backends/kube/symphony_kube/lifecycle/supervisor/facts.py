"""The state and the facts of an experiment on Kubernetes, for `symphony.plan.decide`. Pure.

The objects of the API server are the record: a Pod or a Job is one attempt, and its annotations are
the requests for it. The state is therefore computed again from each observation. The
steps of the platform have already happened: the restart of a container, the retry of a Job or a
JobSet, and the end of a Pod whose active deadline has passed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from symphony.plan.observation import Observation as Facts
from symphony.plan.observation import Seen
from symphony.plan.policies import Ending
from symphony.plan.state import Request, RunState, Track
from symphony.status import ENDED, ReasonCode, State
from symphony_kube.lifecycle.supervisor.supervisor_record import EMPTY_RECORD, Record, Round
from symphony_kube.record.ending import StoppedProcesses
from symphony_kube.render.roster import Roster, Unit, units_of_ranks
from symphony_kube.state.control_state import NO_CONTROL, Attempt
from symphony_kube.state.observe import Observation
from symphony_kube.state.observed_attempt import POD_REMOVED
from symphony_kube.state.pod_status import ContainerStatus
from symphony_kube.state.predictions import PID, exit_of, track_before_exit, track_of
from symphony_kube.state.unit_status import UnitStatus

# The codes of the requests with which a supervisor itself starts units again.
RESTART_CODES = (
    ReasonCode.BACKING_OFF.value,
    ReasonCode.UNSCHEDULABLE.value,
    ReasonCode.DISRUPTED.value,
)
LAUNCHER = "the launcher"
# The descriptions of running processes, with what they were computed from.
Cache = dict[str, tuple[UnitStatus, ContainerStatus, Track, Seen]]


class Situation(NamedTuple):
    """The state of an experiment and the facts about it, for `symphony.plan.decide.decide`."""

    state: RunState
    facts: Facts


def describe(
    roster: Roster,
    observation: Observation,
    *,
    record: Record | None = None,
    launched: float = 0.0,
    now: float = 0.0,
    creatable: Collection[str] | None = None,
    cache: Cache | None = None,
) -> Situation:
    """Return the situation of an experiment.

    ``record`` is that of the supervisor, or None for a client, which creates no missing units.
    ``launched`` and ``now`` are in seconds since the epoch. ``creatable`` contains the units that
    the supervisor can create, or is None if these are all units. ``cache`` contains the parts of
    earlier results that are still valid, and is updated. Do not change the result then.
    """
    cache = {} if cache is None else cache
    return _Description(roster, observation, record, launched, now, creatable, cache).situation()


def find_earlier_round(observation: Observation, current: Round) -> list[str]:
    """Return the units of an earlier round of the experiment, which the restart of the experiment
    starts again. Those that a user has stopped are not included.
    """
    names = []
    for name, status in observation.unit_statuses.items():
        is_old = status.attempt.round < current.number and not status.control.replaced
        if is_old and (status.exists or status.disruption) and not is_stopped_by_user(status):
            names.append(name)
    return names


def is_restart_requested(status: UnitStatus, current: Round) -> bool:
    """Return whether a unit will start again because of the present round of the experiment."""
    is_restart = status.control.code == ReasonCode.EXPERIMENT_RESTARTS.value
    return is_restart and status.control.start >= current.start


def is_stopped_by_user(status: UnitStatus) -> bool:
    """Return whether a user has stopped a unit, which is not started again by itself."""
    control = status.control
    has_failed = control.code == ReasonCode.UNIT_FAILED.value
    return bool(control.stop) and not control.start and not has_failed


def latest_number(ranks: Collection[Unit], observation: Observation) -> int:
    """Return the number of the latest attempt of a unit of ranks, or 0 if no rank has a Pod."""
    statuses = observation.unit_statuses
    known = [statuses[rank.name] for rank in ranks if rank.name in statuses]
    return max((status.attempt.number for status in known if status.exists), default=0)


@dataclass(slots=True)
class _Description:
    """The computation of one situation."""

    roster: Roster
    observation: Observation
    record: Record | None
    launched: float
    now: float
    creatable: Collection[str] | None
    cache: Cache
    tracks: dict[str, Track] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    restarted: list[str] = field(default_factory=list)
    earlier: frozenset[str] = frozenset()
    latest: dict[str, int] = field(default_factory=dict)
    is_restarting: bool = False

    @property
    def known(self) -> Record:
        return self.record or EMPTY_RECORD

    def situation(self) -> Situation:
        current = self.known.round
        statuses = self.observation.unit_statuses
        if self.known.ending is None and current.number:
            self.earlier = frozenset(find_earlier_round(self.observation, current))
            is_running = any(not statuses[name].has_ended for name in self.earlier)
            self.is_restarting = is_running or self.now < current.start
        gangs = units_of_ranks(self.roster)
        self.latest = {name: latest_number(gang, self.observation) for name, gang in gangs.items()}
        for unit in self.roster:
            status = statuses.get(unit.name)
            if status is None:
                self._add_missing(unit)
            else:
                self._add_existing(unit, status)
        for ranks in gangs.values():
            self._extend_requests([rank.name for rank in ranks])
        return Situation(self._state(), Facts(self.seen))

    def _state(self) -> RunState:
        current, ending = self.known.round, self.known.ending
        state = RunState(
            tracks=self.tracks,
            created=self.launched,
            restarts=current.number,
            restarts_in_row=current.in_row,
            restarted=current.start or None,
            restarting=self.is_restarting,
            restart_at=current.start,
            restart_cause=current.reason,
        )
        if ending is not None:
            state.stopping_since, state.ending = ending.time, _ending(ending)
        elif not self.is_restarting:
            requests = {"stop": self.stopped, "restart": self.restarted}
            given = [Request(kind, names) for kind, names in requests.items() if names]
            state.requests = dict(enumerate(given, 1))
        return state

    def _extend_requests(self, ranks: list[str]) -> None:
        """Let a request for a rank concern all ranks of its unit."""
        for names in (self.stopped, self.restarted):
            if not set(names).isdisjoint(ranks):
                names += [name for name in ranks if name not in names]
                return

    # --- units that have not been created, or that are known only from the record ---

    def _add_missing(self, unit: Unit) -> None:
        for name in unit.processes:
            self.tracks[name] = self._missing(unit, self.observation.containers[name], name)

    def _missing(self, unit: Unit, container: ContainerStatus, name: str) -> Track:
        problem = self.known.problems.get(unit.name)
        if problem is not None and problem.permanent:
            return _ended(container, state=State.FAILED)
        if container.cause.code is ReasonCode.DISRUPTED:
            if self.latest.get(unit.rank_of, 0) > 1:
                # The others have been started again already.
                return Track(attempts=1)
            self.seen[name] = Seen(attempt=0, disruption=POD_REMOVED, since=self.now)
            return Track(state=State.RUNNING, attempts=1, pid=PID)
        # Whether a process never starts follows from the states of the others.
        is_decided = container.cause.code is not ReasonCode.NEVER_STARTED or self.record is None
        if container.state in ENDED and is_decided and self.known.ending is None:
            has_succeeded = bool(unit.rank_of) and unit.name in self.known.ended
            return _ended(container, state=State.SUCCEEDED if has_succeeded else container.state)
        if self.creatable is not None and unit.name not in self.creatable:
            self.seen[name] = Seen(starting=True, done_by=LAUNCHER)
        return Track()

    # --- units that exist, or whose Pods were deleted ---

    def _add_existing(self, unit: Unit, status: UnitStatus) -> None:
        latest = self.latest.get(unit.rank_of, 0)
        is_stale = status.attempt.number < latest and (status.has_ended or not status.exists)
        is_plain = status.control is NO_CONTROL
        for name in unit.processes:
            container = self.observation.containers[name]
            cached = self.cache.get(name)
            if cached is not None and cached[0] is status and cached[1] is container:
                self.tracks[name], self.seen[name] = cached[2], cached[3]
            elif is_stale and unit.name not in self.known.problems:
                # A rank joins the others, which have been started again.
                self.tracks[name] = self._waiting(status)
            else:
                self.tracks[name] = self._existing(unit, status, name)
                if is_plain and status.executions[name].state not in ENDED:
                    # Nothing but its own state determines what is known about it.
                    self.cache[name] = (status, container, self.tracks[name], self.seen[name])

    def _existing(self, unit: Unit, status: UnitStatus, name: str) -> Track:
        own, is_ending = status.executions[name], self.known.ending is not None
        if self.observation.containers[name].was_ready and not own.was_ready:
            # Only the log has shown it.
            own = replace(own, was_ready=True)
        self.seen[name] = Seen(attempt=status.attempt.number - 1, exit_code=own.exit_code)
        problem = self.known.problems.get(unit.name)
        if problem is not None and problem.permanent and not status.exists:
            return _ended(self.observation.containers[name], state=State.FAILED)
        if status.control.replaced:
            self.seen[name] = self.seen[name]._replace(starting=not is_ending)
            return self._waiting(status)
        if own.state not in ENDED:
            return self._running(status, name)
        if unit.name in self.earlier:
            track = self._waiting(status)
            track.next_start = self.known.round.start if self.is_restarting else None
            return track
        if status.control.start:
            return self._requested(unit, status, own, name)
        if is_stopped_by_user(status):
            self.stopped.append(name)
        if not status.control.stop and self._is_supervised(unit, status, own):
            return self._exited(status, own, name)
        return _ended(own, attempts=status.attempt.number)

    def _waiting(self, status: UnitStatus) -> Track:
        """Return the state of a process for whose next start only the start order counts."""
        return Track(attempts=status.attempt.number)

    def _running(self, status: UnitStatus, name: str) -> Track:
        """Return the state of a process whose attempt exists and has not ended."""
        control, container = status.control, self.observation.containers[name]
        track = track_of(container, status.attempt)
        track.state, track.pid = State.RUNNING, PID
        created = [pod.created for pod in status.pods]
        is_placed = status.job is not None or any(pod.node for pod in status.pods)
        since = max(created, default=None)
        scheduled = [pod.scheduled for pod in status.pods if pod.scheduled is not None]
        seen = self.seen[name]._replace(
            running=True,
            since=since,
            placed=is_placed,
            placed_since=max(scheduled, default=None),
        )
        signaled_at = control.stop
        if self.record is not None:
            # The command that starts it again stops it before, when its turn comes.
            signaled_at = control.stop or control.start
        # If no request has set a time, its node kills the process.
        kill_at = control.kill or math.inf
        # The end of the experiment cancels a start.
        if signaled_at and not (control.start and self.known.ending is not None):
            seen = seen._replace(signaled_at=signaled_at, kill_at=kill_at)
        self.seen[name] = seen
        if is_stopped_by_user(status):
            track.kill_at = kill_at
            self.stopped.append(name)
        if control.start:
            # Other processes wait until it runs again.
            track.was_ready = track.ready = False
            track.started = None
            if control.code not in RESTART_CODES:
                track.kill_at = kill_at if signaled_at else None
                self.restarted.append(name)
        return track

    def _requested(self, unit: Unit, status: UnitStatus, own: ContainerStatus, name: str) -> Track:
        """Return the state of a process that has exited and will be started again."""
        control = status.control
        is_held = not status.has_ended or unit.name in self.observation.unfinished
        if is_held and self.known.ending is None:
            # Other processes in its Pod are running, or the request is not complete.
            self.seen[name] = self.seen[name]._replace(starting=True)
        if control.code not in RESTART_CODES:
            self.restarted.append(name)
            return _ended(own, attempts=status.attempt.number)
        track = track_of(own, status.attempt)
        track.state, track.next_start = State.PENDING, control.start
        track.reason, track.reason_code = control.reason, ReasonCode(control.code)
        track.started, track.was_ready = None, False
        if control.in_row:
            track.failures_in_row, track.retries = control.in_row, track.retries + 1
        return track

    def _is_supervised(self, unit: Unit, status: UnitStatus, own: ContainerStatus) -> bool:
        """Return whether something can follow from an exit that Kubernetes does not do itself."""
        if status.disruption is not None:
            return True
        has_run = own.started is not None and own.ended is not None
        return bool(unit.supervised_restart) and status.exists and has_run

    def _exited(self, status: UnitStatus, own: ContainerStatus, name: str) -> Track:
        """Return the state of a process whose exit is new."""
        # It starts again when the other processes in its Pod have exited.
        seen = exit_of(own, status.attempt, status.disruption, self.now)
        self.seen[name] = seen._replace(starting=not status.has_ended)
        return track_before_exit(own, status.attempt)


def _ended(container: ContainerStatus, *, state: State | None = None, attempts: int = 0) -> Track:
    track = track_of(container, Attempt(number=attempts))
    track.state = container.state if state is None else state
    track.stopped, track.ready = container.stopped, False
    return track


def _ending(stopped: StoppedProcesses) -> Ending:
    return Ending(
        action="deadline" if stopped.failed else "stop",
        reason=stopped.reason,
        reason_code=ReasonCode(stopped.code),
    )


def find_ended(roster: Roster, statuses: Mapping[str, UnitStatus]) -> tuple[set[str], set[str]]:
    """Return the units that have ended by themselves, and those that run or will run.

    Only units that are started again after a disruption are considered. Without this knowledge, a
    later supervisor would start a unit again whose Pod is deleted after its end.
    """
    ended, others = set(), set()
    for unit in roster:
        status = statuses.get(unit.name)
        if not unit.replaced_if_lost or status is None:
            continue
        starts = status.retry or status.disruption or status.control.start
        if status.has_ended and not starts and not status.control.replaced:
            ended.add(unit.name)
        else:
            others.add(unit.name)
    return ended, others
