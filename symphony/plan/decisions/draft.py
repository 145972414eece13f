"""The state while a decision is made: the recorded state, and the events that will be recorded."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from symphony.plan.decisions.unit_release import decide_release
from symphony.plan.observation import ABSENT, Observation, Seen, is_active
from symphony.plan.policies import Ending, RestartHistory, decide_end
from symphony.plan.state import Event, Request, RunState, Track, apply, is_stopped_by_user
from symphony.plan.unit_decision import UnitDecision, decide_unit
from symphony.plan.wish import ProcessWish, Wish
from symphony.status import ReasonCode, State

# Nothing follows for a unit of ranks from these events of a process.
_OBSERVATIONS = frozenset(
    {"waiting", "ready", "not-ready", "tested", "unhealthy", "terminating", "background"}
)


class Draft:
    """A decision in the making.

    ``state`` is the state after ``events``. It is a copy as soon as there is an event, with copies
    of the tracks that have changed, so that the state of the caller does not change. ``answers``
    maps the numbers of the requests that are done to what was not done. ``frees`` contains
    processes; see `symphony.plan.decide.Decision`. ``active`` contains those of which something is
    running or starting as far as it is observed.
    """

    __slots__ = (
        "_copied",
        "_is_copy",
        "_requested",
        "_seen",
        "_stopped_units",
        "_units",
        "active",
        "answers",
        "events",
        "frees",
        "now",
        "observation",
        "state",
        "wake_at",
        "wish",
    )

    def __init__(self, wish: Wish, state: RunState, observation: Observation, now: float) -> None:
        self.wish = wish
        self.state = state
        self.observation = observation
        self._seen = observation.processes
        self.active = _active(observation)
        self.now = now
        self.events: list[Event] = []
        self.answers: dict[int, str] = {}
        self.frees: list[str] = []
        self.wake_at: float | None = None
        self._is_copy = False
        # The processes whose tracks are copies.
        self._copied: set[str] = set()
        # The processes of the requests, because a request can concern thousands of them.
        self._requested: dict[int, set[str]] = {}
        self._units: dict[str, UnitDecision | None] = {}
        self._stopped_units: dict[str, bool] = {}

    # --- events ---

    def record(
        self, event: str, process: str | None = None, *, at: float | None = None, **details: Any
    ) -> None:
        """Add an event, and apply it to the state."""
        line: dict[str, Any] = {"event": event, "at": self.now if at is None else at}
        if process is not None:
            line["process"] = process
        line.update(details)
        if not self._is_copy:
            self.state = self.state.copy()
            self._is_copy = True
        self._copy_changed_tracks(event, process)
        apply(self.state, line)
        self.events.append(line)
        if self._requested and process is not None and event == "start-requested":
            self._note_requested_start(process)
        elif process is None:
            self._requested.clear()
        if event not in _OBSERVATIONS:
            self._units.clear()
            self._stopped_units.clear()

    def _copy_changed_tracks(self, event: str, process: str | None) -> None:
        """Copy the tracks that an event changes, because the caller has the same ones."""
        tracks = self.state.tracks
        if process is None:
            if event in ("restarting", "changed"):
                for name in tracks:
                    self._copy_track(tracks, name)
        elif process in tracks:
            self._copy_track(tracks, process)
        else:
            self._copy_track(self.state.leaving, process)

    def _copy_track(self, tracks: dict[str, Track], name: str) -> None:
        if name not in self._copied:
            self._copied.add(name)
            tracks[name] = tracks[name].copy()

    def record_ending(self, ending: Ending) -> None:
        """Record the decision to end the experiment, or to start it again."""
        details: dict[str, Any] = {
            "reason": ending.reason,
            "reason_code": ending.reason_code,
            "failed": ending.failed,
            "cause": ending.cause,
        }
        restart = ending.restart
        if restart is None:
            self.record("ending", action=ending.action, **details)
            return
        self.record("restarting", restarts_in=restart.delay, in_row=restart.in_row, **details)

    def stop_details(self, reason: str) -> dict[str, Any]:
        """Return the details of the event for a process that is stopped.

        ``reason`` is the reason if a user has stopped it.
        """
        ending = self.state.ending
        if ending is None:
            return {"stopped": True, "reason": reason, "reason_code": ReasonCode.STOPPED}
        details: dict[str, Any] = {"reason": ending.reason, "reason_code": ending.reason_code}
        return {"stopped": True, **details} if ending.stops else details

    def wake(self, time: float) -> None:
        """Decide again at a time, if nothing is observed before. This can be never: infinity."""
        if time < (math.inf if self.wake_at is None else self.wake_at):
            self.wake_at = time

    # --- processes ---

    def seen(self, name: str) -> Seen:
        """Return what is known about a process."""
        return self._seen.get(name, ABSENT)

    def is_gone(self, name: str) -> bool:
        """Return whether neither a process nor a program of its group is running or starting."""
        return name not in self.state.index.running and name not in self.active

    def present(self) -> list[str]:
        """Return the processes that are not gone."""
        others = self.state.index.running.difference(self.active)
        return [*self.active, *sorted(others)]

    def waiting(self) -> list[str]:
        """Return the processes that wait for their start, in the order of their declaration."""
        pending = self.state.index.pending
        return [name for name in self.state.tracks if name in pending] if pending else []

    def is_clear(self, name: str) -> bool:
        """Return whether it is known that no program of earlier executions of a process, which is
        not running, is running.
        """
        track = self.state.tracks.get(name)
        has_run = track is None or track.group is not None or self.state.replaced
        return not has_run or self._seen.get(name, ABSENT).cleared

    def wish_of(self, name: str) -> ProcessWish:
        """Return the description with which a process is running.

        A change can have removed it, or will start it again with another description.
        """
        previous = self.wish.previous.get(name)
        if previous is not None:
            track = self.state.tracks.get(name)
            if track is None or track.outdated:
                return previous
        return self.wish.processes.get(name) or previous or ProcessWish(name=name)

    def depth_of(self, name: str) -> int:
        """Return the position of a process in the start order."""
        return self.wish.depths.get(name, 0)

    # --- units of ranks ---

    def decide_unit(self, gang: str) -> UnitDecision | None:
        """Return the decision about a unit, or None if its ranks continue.

        A request to stop or restart one of the ranks comes first. A request to start one waits
        until the ranks that the decision stops have exited.
        """
        if gang not in self._units:
            # Every rank needs the decision, which takes time in proportion to their number.
            self._units[gang] = self._decide_unit(gang)
        return self._units[gang]

    def is_stopped_unit(self, gang: str) -> bool:
        """Return whether a user has stopped ranks of a unit, which only a user starts again."""
        if gang not in self._stopped_units:
            tracks = self.state.tracks
            known = [tracks[name] for name in self.wish.gangs[gang] if name in tracks]
            self._stopped_units[gang] = any(is_stopped_by_user(track) for track in known)
        return self._stopped_units[gang]

    def _decide_unit(self, gang: str) -> UnitDecision | None:
        state = self.state
        if state.is_stopping_all:
            return None
        ranks = self.wish.gangs[gang]
        for request in state.requests.values():
            if request.kind != "start" and not set(request.names).isdisjoint(ranks):
                return None
        tracks = state.tracks
        known = {name: tracks[name] for name in ranks if name in tracks}
        decision = decide_unit(
            {name: track for name, track in known.items() if not self._is_beginning(name, track)}
        )
        within = self.wish.processes[ranks[0]].place_within
        if decision is None and within:
            return decide_release(self, gang, within)
        return decision

    def _is_beginning(self, name: str, track: Track) -> bool:
        """Return whether a process has been started again, and its start is not recorded yet.

        The start of one rank can be known before that of another.
        """
        if track.state is not State.PENDING:
            return False
        seen = self.seen(name)
        return seen.attempt >= track.attempts and not seen.failed

    def unit_decisions(self) -> dict[str, UnitDecision]:
        """Return the decisions about the units that do not continue."""
        decisions = {gang: self.decide_unit(gang) for gang in self.wish.gangs}
        return {gang: item for gang, item in decisions.items() if item is not None}

    def is_started_by_request(self, gang: str) -> bool:
        """Return whether a request is in progress that starts ranks of a unit, for example with a
        restart.
        """
        ranks = self.wish.gangs[gang]
        started = [each for each in self.state.requests.values() if each.kind != "stop"]
        return any(not set(ranks).isdisjoint(each.names) for each in started)

    # --- the experiment ---

    def decide_end(self, tracks: Mapping[str, Track] | None = None) -> Ending | None:
        """Return the decision to end or restart the experiment.

        ``tracks`` replaces the states of the processes.
        """
        state = self.state
        launched = state.created or 0.0
        return decide_end(
            self.wish.policies,
            state.tracks if tracks is None else tracks,
            launched=launched,
            now=self.now,
            history=RestartHistory(
                restarts=state.restarts - state.evictions,
                in_row=state.restarts_in_row,
                started=state.restarted or launched,
            ),
            backoff=self.wish.backoff,
        )

    # --- requests ---

    def requests_for(self, name: str) -> list[Request]:
        """Return the requests that a process waits for."""
        requests = self.state.requests
        if not requests:
            # This is the most frequent case, and thousands of processes can exit at once.
            return []
        return [request for number, request in requests.items() if name in self._names_in(number)]

    def request_for(self, name: str, *kinds: str) -> Request | None:
        """Return the request of one of the given kinds that a process waits for, or None."""
        for request in self.requests_for(name):
            if request.kind in kinds:
                return request
        return None

    def _names_in(self, number: int) -> set[str]:
        if number not in self._requested:
            self._requested[number] = set(self.state.requests[number].names)
        return self._requested[number]

    def _note_requested_start(self, process: str) -> None:
        """Note that a process does not wait any more for the requests that start it."""
        for number, names in self._requested.items():
            if self.state.requests[number].kind != "stop":
                names.discard(process)


def _active(observation: Observation) -> Collection[str]:
    if observation.active is not None:
        return observation.active
    found = observation.processes.items()
    return dict.fromkeys(name for name, seen in found if is_active(seen))
