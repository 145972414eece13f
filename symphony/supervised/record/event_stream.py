"""The events of an experiment on this machine, from its event log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from symphony.errors import NotFound
from symphony.events import (
    EventKind,
    ExperimentEvent,
    change_text,
    exit_text,
    finish_text,
    never_text,
    ready_text,
    restart_text,
    signal_name,
    start_text,
    stop_text,
)
from symphony.plan.disruption import started_again_text
from symphony.plan.policies import Policies
from symphony.plan.restart_policy import RestartPolicy
from symphony.plan.state import RESTART_REQUESTED, Event, RunState, Track, apply, fold, reason_code
from symphony.status import ENDED, ExperimentStatus, ReasonCode, background_reason
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import EventReader
from symphony.supervised.record.status import StatusReader, compute_status

# The kind and the text of an event.
_Words = tuple[EventKind, str]


class EventTranslator:
    """A translator from the lines of an event log to the events that users see.

    The texts contain values of earlier events, such as the time of a start, so the translator must
    receive all events in order.
    """

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        names = [process["name"] for process in manifest["processes"]]
        self._state: RunState = fold(names, [])
        self.use_manifest(manifest)

    def use_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Use the settings in ``manifest`` for the events from now on."""
        self._manifest = manifest
        self._limits = {
            process["name"]: RestartPolicy.of(process.get("restart")).max_restarts
            for process in manifest["processes"]
        }

    @property
    def has_finished(self) -> bool:
        """True if the event that the experiment has finished was translated."""
        return self._state.finished

    def translate(self, event: Event) -> list[ExperimentEvent]:
        """Return the events for one line of the event log."""
        name = event.get("process")
        if name is None:
            apply(self._state, event)
            words = self._experiment_words(event)
        else:
            track = self._track(name)
            apply(self._state, event)
            words = []
            if event["event"] not in _INTERNAL_EVENTS:
                words = list(self._process_words(event, track, self._limits.get(name)))
        return [
            ExperimentEvent(
                at=event["at"],
                kind=kind,
                process=name,
                reason_code=_code_of(kind, event),
                text=text,
            )
            for kind, text in words
        ]

    def _track(self, name: str) -> Track:
        """Return the track of a process, which a change can have added or removed."""
        leaving = self._state.leaving.get(name)
        return leaving or self._state.tracks.setdefault(name, Track())

    def _experiment_words(self, event: Event) -> list[_Words]:
        kind = event["event"]
        if kind in _INTERNAL_EVENTS:
            return []
        if kind == "changed":
            return [(EventKind.CHANGED, change_text(event["changes"]))]
        if kind == "checkpoint":
            return [(EventKind.CHANGED, "earlier events were removed to limit the event log")]
        if kind == "launched":
            return [(EventKind.LAUNCHED, "launched")]
        if kind == "finished":
            created = self._state.created
            seconds = None if created is None else event["at"] - created
            return [(EventKind.FINISHED, finish_text(self._status(), seconds))]
        if kind == "stopping":
            return [(EventKind.STOPPING, "stopping on request")]
        if kind == "ending":
            return [(EventKind.STOPPING, f"stopping: {event['reason']}")]
        if kind == "restarting":
            policies = Policies.from_dict(self._manifest.get("policies", {}))
            restarts = self._state.restarts + 1
            text = restart_text(event["restarts_in"], restarts, policies.max_restarts)
            return [(EventKind.RESTARTING, f"{text}: {event.get('cause', event['reason'])}")]
        if kind == "restarted":
            return [(EventKind.STARTED, start_text(self._state.restarts))]
        return [(EventKind.CHANGED, _other_text(event))]

    def _status(self) -> ExperimentStatus:
        """Return the status of the experiment after the events so far."""
        names = {process["name"] for process in self._manifest["processes"]}
        tracks = {name: self._state.tracks.get(name, Track()) for name in names}
        return compute_status(self._manifest, replace(self._state, tracks=tracks))

    def _process_words(self, event: Event, track: Track, limit: int | None) -> Iterator[_Words]:
        describe = _PROCESS_WORDS.get(event["event"])
        yield (
            (EventKind.CHANGED, _other_text(event)) if describe is None else describe(event, track)
        )
        if event["event"] in ("exited", "start-failed") and event.get("restarts_in") is not None:
            is_own = event.get("reason_code") == ReasonCode.BACKING_OFF
            is_request = event.get("cause") == RESTART_REQUESTED
            number = track.retries if is_own and not is_request else None
            if is_own:
                yield EventKind.RESTARTING, restart_text(event["restarts_in"], number, limit)
            elif event.get("reason_code") == ReasonCode.DISRUPTED:
                yield EventKind.RESTARTING, started_again_text(event["cause"])


class EventStream:
    """An incremental reader for the events of a run. ``run`` must be pinned.

    ``status`` reads the status of the run.
    """

    def __init__(self, run: RunDirectory, status: StatusReader) -> None:
        self._run = run
        self._status = status
        self._reader = EventReader(run.events)
        self._translator = EventTranslator(run.load_manifest())

    @property
    def has_finished(self) -> bool:
        """True if the last event was read."""
        return self._translator.has_finished

    def end_check(self, names: Collection[str] | None) -> Callable[[], bool]:
        """Return a predicate that is true when no more events of the processes ``names`` will be
        recorded. If ``names`` is None, all events are considered.
        """

        def is_over() -> bool:
            if not self._run.is_current():
                return True
            try:
                status = self._status.read()
            except NotFound:
                return True
            if names is not None:
                return all(process.state in ENDED for process in status if process.name in names)
            # A supervisor also runs while it waits for a request to start a stopped process.
            return status.ended and not self._status.is_supervised()

        return is_over

    def read_new(self) -> list[ExperimentEvent]:
        """Return the events that were recorded since the previous call."""
        with self._run.report_damage(self._run.events):
            recorded = self._reader.read_new()
        events: list[ExperimentEvent] = []
        for event in recorded:
            if event["event"] == "changed":
                with contextlib.suppress(NotFound):
                    self._translator.use_manifest(self._run.load_manifest())
            events += self._translator.translate(event)
        return events


# Events of the supervisor that users do not see. The steps of a request have events of their own.
# The result of a readiness test is part of the status and of the event for its timeout.
_INTERNAL_EVENTS = ("requested", "request-done", "tested")
# The reason codes of events that are recorded without one.
_REASON_CODES = {
    EventKind.WAITING: ReasonCode.WAITING,
    EventKind.NOT_READY: ReasonCode.NOT_READY,
    EventKind.UNHEALTHY: ReasonCode.UNHEALTHY,
    EventKind.STOPPING: ReasonCode.STOPPING,
}


def _code_of(kind: EventKind, event: Event) -> ReasonCode | None:
    """Return the reason code of an event of the kind ``kind``."""
    is_exit = kind is EventKind.EXITED and event["event"] == "exited"
    if is_exit and event.get("restarts_in") is not None:
        # The recorded code describes the restart.
        return ReasonCode.KILLED if signal_name(event["code"]) else ReasonCode.EXITED
    return reason_code(event) or _REASON_CODES.get(kind)


def _exited(event: Event, _: Track) -> _Words:
    reason = event.get("reason", "")
    if event.get("restarts_in") is not None:
        # The reason describes the restart, for which there is another event.
        return EventKind.EXITED, exit_text(event["code"])
    if event.get("stopped"):
        return EventKind.STOPPED, stop_text(event["code"], reason)
    return EventKind.EXITED, exit_text(event["code"], reason, reason_code(event))


def _never(event: Event, _: Track) -> _Words:
    if event.get("stopped"):
        return EventKind.STOPPED, stop_text(None, event["reason"])
    return EventKind.NEVER_STARTED, never_text(event["reason"])


def _ready(event: Event, track: Track) -> _Words:
    seconds = None if track.started is None else event["at"] - track.started
    return EventKind.READY, ready_text(seconds)


def _terminating(event: Event, _: Track) -> _Words:
    seconds = max(0.0, event["kill_at"] - event["at"])
    purpose = " to start again" if event.get("restarts") else ""
    grace = (
        f", killed in {seconds:.3g} s if it still runs" if seconds else ", without a grace period"
    )
    return EventKind.STOPPING, f"stopping on request{purpose}{grace}"


_PROCESS_WORDS: dict[str, Callable[[Event, Track], _Words]] = {
    "waiting": lambda event, _: (EventKind.WAITING, event["reason"]),
    "started": lambda _, track: (EventKind.STARTED, start_text(track.restarts)),
    "start-failed": lambda event, _: (
        EventKind.EXITED,
        f"not started: {event.get('cause', event['reason'])}",
    ),
    "ready": _ready,
    "not-ready": lambda event, _: (EventKind.NOT_READY, event["reason"]),
    "unhealthy": lambda event, _: (EventKind.UNHEALTHY, event["reason"]),
    "exited": _exited,
    "never": _never,
    "terminating": _terminating,
    "start-requested": lambda *_: (EventKind.WAITING, "waiting for its start on request"),
    "background": lambda event, _: (
        EventKind.WARNING,
        background_reason(event["program"], event["running"]),
    ),
    "signaled": lambda event, _: (EventKind.SIGNALED, f"received {event['signal']} on request"),
}


def _other_text(event: Event) -> str:
    """Return the text for an event of a kind that this version does not support."""
    text = str(event["event"]).replace("-", " ")
    reason = event.get("reason")
    return f"{text}: {reason}" if reason else text
