"""The state of an experiment, computed from the events that were recorded.

A supervisor applies each event to the state, and readers compute the same state from the record.
All functions are pure, except that `apply` changes the state that it receives.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from symphony.plan.disruption import UNCOUNTED_CODES
from symphony.plan.policies import Ending
from symphony.status import ENDED, ReasonCode, State
from symphony.support.data_classes import dataclass, field, fields

Event = Mapping[str, Any]

# The cause of the exit of a process that a user restarts.
RESTART_REQUESTED = "restart requested"


@dataclass(slots=True)
class Track:
    """The state of one process according to the events. Times are in seconds since the epoch.

    ``never_ready`` means that the process did not become ready in time and had never been ready
    before. ``not_ready_in_time`` means that the process did not become ready in time after its
    latest start. ``test_result`` is the last result of the readiness test of a process that is
    running and not ready. ``unhealthy`` is the reason why the latest execution is stopped, or was
    stopped and has failed, because its health tests have failed, or ``""``. ``retries`` is the
    number of restarts that the restart policy has caused since the experiment was launched or
    restarted, or a request has started the process. ``next_start`` is the time of the next start of
    a process that will be restarted. ``stopped`` means that symphony stopped the process.
    ``kill_at`` is the time at which a process that is being stopped by a request is killed.
    ``first_started`` is the time of the first start since the experiment was launched or restarted,
    or a change has restarted the process. ``log_start`` is the length of the log at the latest
    start of a process that has a readiness test. ``group`` is the number of the latest execution's
    process group. ``outdated`` means that a change of the experiment has not made the process start
    again yet. ``attempts`` is the number of recorded executions and failed starts, and therefore
    the number of the next execution. ``background`` names a program that a process which has
    succeeded has left behind, or is ``""``, and ``in_background`` means that it was running when
    this was recorded.
    """

    state: State = State.PENDING
    ready: bool = False
    was_ready: bool = False
    never_ready: bool = False
    not_ready_in_time: bool = False
    test_result: str = ""
    unhealthy: str = ""
    exit_code: int | None = None
    reason: str = ""
    reason_code: ReasonCode | None = None
    restarts: int = 0
    failures_in_row: int = 0
    retries: int = 0
    started: float | None = None
    ended: float | None = None
    stopped: bool = False
    next_start: float | None = None
    kill_at: float | None = None
    pid: int | None = None
    birth: float | None = None
    first_started: float | None = None
    log_start: int = 0
    group: int | None = None
    outdated: bool = False
    attempts: int = 0
    background: str = ""
    in_background: bool = False

    @property
    def waits_for_restart(self) -> bool:
        """True if the process starts again by itself after a delay."""
        return self.state is State.PENDING and self.next_start is not None

    def copy(self) -> Track:
        """Return a copy, faster than `dataclasses.replace`."""
        return Track(*_TRACK_VALUES(self))


@dataclass(slots=True)
class Request:
    """A request that the supervisor has accepted and that is not done yet.

    ``names`` contains the processes that the request concerns. A process that the request has
    started again is removed from it.
    """

    kind: str
    names: list[str]
    grace: float | None = None

    def copy(self) -> Request:
        """Return a copy that can be changed without an effect on this request."""
        return Request(self.kind, list(self.names), self.grace)


class Index:
    """The processes of a state in the groups that decisions ask for, so that a decision does not
    have to examine all of them.

    ``pending`` contains the processes that wait for their start, and ``live`` those that have not
    ended. ``running`` contains those that have a pid, including those that a change has removed,
    ``unready`` those of the experiment that have a pid and are not ready, and ``calm`` those that
    have a pid and are stopped neither by a request nor because they are unhealthy.
    """

    __slots__ = ("calm", "live", "pending", "running", "unready")

    def __init__(
        self,
        pending: Iterable[str] = (),
        live: Iterable[str] = (),
        running: Iterable[str] = (),
        unready: Iterable[str] = (),
        calm: Iterable[str] = (),
    ) -> None:
        self.pending = set(pending)
        self.live = set(live)
        self.running = set(running)
        self.unready = set(unready)
        self.calm = set(calm)

    def copy(self) -> Index:
        """Return a copy that can be changed without an effect on this index."""
        return Index(self.pending, self.live, self.running, self.unready, self.calm)

    def note(self, name: str, track: Track) -> None:
        """Note the present state of a process of the experiment."""
        self.forget(name)
        if track.state is State.PENDING:
            self.pending.add(name)
        if track.state not in ENDED:
            self.live.add(name)
        if track.pid is None:
            return
        self.running.add(name)
        if not track.ready:
            self.unready.add(name)
        if track.kill_at is None and not track.unhealthy:
            self.calm.add(name)

    def forget(self, name: str) -> None:
        """Forget a process."""
        self.pending.discard(name)
        self.live.discard(name)
        self.running.discard(name)
        self.unready.discard(name)
        self.calm.discard(name)


_NO_INDEX = Index()


@dataclass(slots=True)
class RunState:
    """The state of an experiment according to the events.

    Times are in seconds since the epoch. ``stopping_since`` is the time at which the stop of the
    whole experiment began, and ``together_since`` the time from which it does not follow the stop
    order any more. ``ending`` is the decision because of which the processes are stopped,
    or None if there is no such decision or the user has stopped them. While the processes are
    stopped in order to be started again, ``restarting`` is true, ``restart_at`` is the time of the
    next start, and ``restart_cause`` describes the failure. ``restarts`` is the number of restarts
    of the experiment, ``restarts_in_row`` is the number of those that determine the next delay,
    ``evictions`` is the number of those after which the system had stopped the experiment, and
    ``restarted`` is the time of the latest restart. ``launched_boot_seconds`` is the time of the
    launch in seconds since the machine was booted. ``requests`` maps numbers to the requests that
    are not done yet, and ``request_count`` is the number of all requests. ``revision`` is the
    number of changes of the experiment. ``leaving`` contains the running processes that a change
    has removed. ``replaced`` means that a supervisor was killed, so that executions can exist that
    are not recorded. ``unknown_events`` contains the events whose kinds this version does not
    support. ``index`` groups the processes; `apply` keeps it up to date.
    """

    tracks: dict[str, Track]
    created: float | None = None
    stopping_since: float | None = None
    together_since: float | None = None
    finished: bool = False
    ending: Ending | None = None
    restarting: bool = False
    restart_at: float = 0.0
    restart_cause: str = ""
    restarts: int = 0
    restarts_in_row: int = 0
    evictions: int = 0
    restarted: float | None = None
    launched_boot_seconds: float | None = None
    requests: dict[int, Request] = field(default_factory=dict)
    request_count: int = 0
    revision: int = 0
    leaving: dict[str, Track] = field(default_factory=dict)
    replaced: bool = False
    unknown_events: list[Event] = field(default_factory=list)
    index: Index = field(default=_NO_INDEX, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Group the processes, unless this is a copy of another state."""
        if self.index is _NO_INDEX:
            self.renew_index()

    def renew_index(self) -> None:
        """Group all processes again, because many of them have changed."""
        self.index = Index()
        for name, track in self.tracks.items():
            self.index.note(name, track)
        self.index.running.update(self.leaving)

    def become(self, other: RunState) -> None:
        """Take over all values of another state, which must not be used any more."""
        for name in _RUN_FIELDS:
            setattr(self, name, getattr(other, name))

    def copy(self) -> RunState:
        """Return a copy whose requests can be changed, and whose tracks can be replaced."""
        run = RunState(*_RUN_VALUES(self))
        run.index = self.index.copy()
        run.tracks, run.leaving = dict(self.tracks), dict(self.leaving)
        run.requests = {number: request.copy() for number, request in self.requests.items()}
        run.unknown_events = list(self.unknown_events)
        return run

    @property
    def stopping(self) -> bool:
        """True if the whole experiment is being stopped, or was stopped."""
        return self.stopping_since is not None

    @property
    def is_changing(self) -> bool:
        """True if a change of the experiment is in progress."""
        return any(request.kind == "change" for request in self.requests.values())

    @property
    def is_stopping_all(self) -> bool:
        """True if all processes are being stopped, either for good or for a restart."""
        return self.restarting or self.stopping_since is not None

    @property
    def waits_for_start(self) -> bool:
        """True if no process is running, and the supervisor waits for a request to start one that
        a request has stopped.
        """
        if self.index.live or self.stopping or self.finished:
            return False
        return any(track.stopped for track in self.tracks.values())


# A process stays in its groups of the index after these events.
_WITHOUT_EFFECT_ON_GROUPS = frozenset({"waiting", "tested", "not-ready", "signaled", "background"})
# These functions return all values of an instance in the order of the fields.
_TRACK_VALUES = operator.attrgetter(*(each.name for each in fields(Track)))
_RUN_FIELDS = tuple(each.name for each in fields(RunState))
_RUN_VALUES = operator.attrgetter(*_RUN_FIELDS)


def fold(processes: Iterable[str], events: Iterable[Event]) -> RunState:
    """Return the state of a run after all ``events`` have been applied."""
    run = RunState(tracks={name: Track() for name in processes})
    for event in events:
        apply(run, event)
    return run


def apply(run: RunState, event: Event) -> None:
    """Update ``run`` with one event. An event of an unknown kind is only added to
    ``unknown_events``.
    """
    change = _CHANGES.get(event["event"])
    if change is None:
        run.unknown_events.append(event)
        return
    name = event.get("process")
    if name is None:
        change(run, event)
    elif name in run.tracks:
        track = run.tracks[name]
        change(track, event)
        if event["event"] not in _WITHOUT_EFFECT_ON_GROUPS:
            run.index.note(name, track)
        if run.requests and event["event"] == "start-requested":
            _note_start(run, name)
    elif name in run.leaving:
        track = run.leaving[name]
        change(track, event)
        if track.pid is None:
            del run.leaving[name]
            run.index.forget(name)


def after(track: Track, event: Event) -> Track:
    """Return a process's state after one event of this process, without changing ``track``."""
    changed = track.copy()
    _CHANGES[event["event"]](changed, event)
    return changed


def _launched(run: RunState, event: Event) -> None:
    run.created = event["at"]
    run.launched_boot_seconds = event.get("boot_seconds")


def _supervisor_replaced(run: RunState, _event: Event) -> None:
    """The new supervisor continues in the state that the events describe."""
    run.replaced = True


def _agent_replaced(_run: RunState, _event: Event) -> None:
    """Change nothing: the new agent continues the work of the killed one."""


def _requested(run: RunState, event: Event) -> None:
    _add_request(run, event["number"], event["request"], event["names"], event.get("grace"))


def _add_request(
    run: RunState, number: int, kind: str, names: Sequence[str], grace: float | None = None
) -> None:
    if kind == "stop":
        # The other requests do not start these processes any more.
        for other in run.requests.values():
            if other.kind != "stop":
                other.names = [name for name in other.names if name not in names]
    run.request_count = max(run.request_count, number)
    run.requests[number] = Request(kind, list(names), grace)


def _request_done(run: RunState, event: Event) -> None:
    run.requests.pop(event["number"], None)


def _note_start(run: RunState, process: str) -> None:
    """Note that a request has started a process again."""
    for request in run.requests.values():
        if request.kind != "stop" and process in request.names:
            request.names.remove(process)


def _stopping(run: RunState, event: Event) -> None:
    if run.stopping_since is None:
        run.stopping_since = event["at"]
    if event.get("together"):
        run.together_since = event["at"]
    run.restarting = False


def _ending(run: RunState, event: Event) -> None:
    run.stopping_since = event["at"]
    run.restarting = False
    run.ending = Ending(
        action=event["action"],
        reason=event["reason"],
        reason_code=reason_code(event) or ReasonCode.STOPPED,
        failed=event.get("failed", ""),
        cause=event.get("cause", ""),
    )


def _restarting(run: RunState, event: Event) -> None:
    """Make every process that is not running wait for the restart of the experiment.

    A running process waits after its exit, see `_exited`. A process that a user has
    stopped remains stopped.
    """
    run.restarting = True
    run.restart_at = event["at"] + event["restarts_in"]
    run.restart_cause = event.get("cause", event["reason"])
    run.restarts_in_row = event.get("in_row", 0)
    for track in run.tracks.values():
        if track.state is not State.RUNNING and not is_stopped_by_user(track):
            _back_off(track, event)
            track.reason_code = ReasonCode.EXPERIMENT_RESTARTS
    run.renew_index()


def _restarted(run: RunState, event: Event) -> None:
    run.restarting = False
    run.restarts += 1
    run.evictions += bool(event.get("evicted"))
    run.restarted = event["at"]
    for name, track in run.tracks.items():
        if is_stopped_by_user(track):
            continue
        restarts = track.restarts + (track.started is not None)
        run.tracks[name] = Track(restarts=restarts, attempts=track.attempts)
    run.renew_index()


def is_stopped_by_user(track: Track) -> bool:
    """Return whether a user has stopped a process, which only a user starts again."""
    return track.stopped and track.state in ENDED


def _changed(run: RunState, event: Event) -> None:
    if event["revision"] <= run.revision:
        # The change was applied before it was recorded.
        return
    run.revision = event["revision"]
    _add_request(run, run.request_count + 1, "change", [*event["added"], *event["restarted"]])
    for name in event["removed"]:
        track = run.tracks.pop(name, None)
        if track is not None and track.pid is not None:
            run.leaving[name] = track
    for name in event["added"]:
        run.leaving.pop(name, None)
        run.tracks[name] = Track()
    for name in event["restarted"]:
        track = run.tracks.get(name)
        if track is not None:
            track.outdated = True
            track.first_started = None
    run.renew_index()


def _finished(run: RunState, _: Event) -> None:
    run.finished = True


def _waiting(track: Track, event: Event) -> None:
    track.reason = event["reason"]
    track.reason_code = reason_code(event) or ReasonCode.WAITING


def _started(track: Track, event: Event) -> None:
    track.attempts += 1
    if track.started is not None:
        track.restarts += 1
    track.state = State.RUNNING
    track.reason, track.reason_code = "", None
    track.started, track.ended, track.exit_code = event["at"], None, None
    if track.first_started is None:
        track.first_started = event["at"]
    track.log_start, track.group = event.get("log_start", 0), event["pid"]
    track.stopped, track.kill_at = False, None
    track.pid, track.birth = event["pid"], event["birth"]
    track.outdated = False
    track.ready, track.not_ready_in_time = event["ready"], False
    track.test_result = track.unhealthy = ""
    track.next_start = None
    track.was_ready = track.was_ready or track.ready
    track.background, track.in_background = "", False


def _start_failed(track: Track, event: Event) -> None:
    track.attempts += 1
    track.unhealthy = ""
    track.reason_code = reason_code(event)
    _back_off(track, event)


def _back_off(track: Track, event: Event) -> None:
    track.state = State.PENDING
    track.failures_in_row = event.get("in_row", 0)
    track.retries += 1
    track.next_start = event["at"] + event["restarts_in"]
    # The reason states when the process is restarted, which becomes wrong as time passes. The
    # cause does not.
    track.reason = event.get("cause", event["reason"])


def _ready(track: Track, _: Event) -> None:
    track.ready = track.was_ready = True
    track.never_ready = track.not_ready_in_time = False
    track.test_result = ""
    track.reason, track.reason_code = "", None


def _not_ready(track: Track, event: Event) -> None:
    track.never_ready, track.not_ready_in_time = not track.was_ready, True
    track.test_result = event.get("result", "")
    track.reason, track.reason_code = event["reason"], ReasonCode.NOT_READY


def _tested(track: Track, event: Event) -> None:
    track.test_result, track.reason = event["result"], event["reason"]
    if not track.not_ready_in_time:
        track.reason_code = ReasonCode.NOT_READY_YET


def _unhealthy(track: Track, event: Event) -> None:
    track.unhealthy = track.reason = event["reason"]
    track.reason_code = ReasonCode.UNHEALTHY


def _exited(track: Track, event: Event) -> None:
    track.ready, track.test_result = False, ""
    track.exit_code, track.ended = event["code"], event["at"]
    track.reason, track.reason_code = event.get("reason", ""), reason_code(event)
    track.stopped = event.get("stopped", False)
    track.pid = track.birth = track.kill_at = None
    if event.get("restarts_in") is not None:
        if track.reason_code in UNCOUNTED_CODES:
            _start_after_disruption(track, event)
        else:
            _back_off(track, event)
    else:
        track.state = _STATE_AFTER_EXIT.get(event["code"], State.FAILED)
        is_unhealthy = track.unhealthy != "" and not track.stopped
        if is_unhealthy or track.reason_code in (ReasonCode.DEADLINE_EXCEEDED, ReasonCode.EVICTED):
            # A process that exits with 0 when it is stopped has not finished its work.
            track.state = State.FAILED


def _start_after_disruption(track: Track, event: Event) -> None:
    """Make a process wait for its next start, which does not count as a restart.

    Processes that start after it wait until it runs again.
    """
    retries = track.retries
    _back_off(track, event)
    track.retries = retries
    track.started = None
    track.was_ready = False


# The exit code is None if no process observed the exit.
_STATE_AFTER_EXIT = {0: State.SUCCEEDED, None: State.UNKNOWN}


def _never(track: Track, event: Event) -> None:
    # The start can have failed.
    track.attempts += 1
    track.next_start, track.outdated = None, False
    track.state, track.ended = State.FAILED, event["at"]
    track.reason, track.reason_code = event["reason"], reason_code(event)
    track.stopped = event.get("stopped", False)


def _terminating(track: Track, event: Event) -> None:
    track.kill_at = event["kill_at"]


def _start_requested(track: Track, event: Event) -> None:
    """Reset the state, so that the start conditions of this process and of the processes that start
    after it apply again.

    If a rank that has succeeded restarts with its unit and this counts as a restart, it remains
    ready for the processes that start after it, like the other ranks.
    """
    is_counted = reason_code(event) not in UNCOUNTED_CODES
    if track.started is not None and is_counted:
        track.restarts += 1
    track.state = State.PENDING
    track.started = track.ended = track.next_start = track.exit_code = None
    # The process starts with its new description, even if it waits for other processes.
    track.stopped = track.outdated = False
    track.ready = track.never_ready = track.not_ready_in_time = False
    track.test_result = track.unhealthy = ""
    if not (event.get("unit") and is_counted):
        track.was_ready = False
    if not event.get("unit"):
        # A rank that its unit starts again has no more restarts and time left than before.
        track.failures_in_row = track.retries = 0
        track.first_started = None
    elif is_counted:
        # It counts as a restart, as for the other ranks.
        track.retries += 1
        track.failures_in_row = max(track.failures_in_row, event.get("in_row", 0))
    track.reason, track.reason_code = "", None
    track.background, track.in_background = "", False


def _background(track: Track, event: Event) -> None:
    track.background, track.in_background = event["program"], event["running"]


def _signaled(_track: Track, _event: Event) -> None:
    """Do nothing: a signal does not change the state by itself."""


def checkpoint(run: RunState, folded_bytes: int, at: float) -> Event:
    """Return the event that replaces all events that have led to a state.

    ``folded_bytes`` is the length of their lines since the beginning of the run.
    """
    state = _given_values(run)
    for key in ("tracks", "leaving"):
        tracks: dict[str, Track] = getattr(run, key)
        state[key] = {name: _given_values(track) for name, track in tracks.items()}
    if run.ending is not None:
        texts = ("action", "reason", "reason_code", "failed", "cause")
        state["ending"] = {key: getattr(run.ending, key) for key in texts}
    state["requests"] = [
        {"number": number, **_given_values(request)} for number, request in run.requests.items()
    ]
    del state["unknown_events"], state["index"]
    # Readers of the log recognize this order of the keys.
    return {"event": "checkpoint", "folded_bytes": folded_bytes, "at": at, "state": state}


def _given_values(item: Any) -> dict[str, Any]:
    """Return the fields of a dataclass instance that differ from the defaults."""
    given: dict[str, Any] = {}
    for name, default in _DEFAULTS[type(item)]:
        value = getattr(item, name)
        if value != default:
            given[name] = value
    return given


def _defaults_of(kind: type) -> list[tuple[str, Any]]:
    return [(each.name, each.default) for each in fields(kind)]


_DEFAULTS = {kind: _defaults_of(kind) for kind in (Track, Request, RunState)}


def _restore(run: RunState, event: Event) -> None:
    """Set the state to that of a checkpoint. Only the processes of ``run`` are included."""
    state = event["state"]
    for key, default in _PLAIN_RUN_FIELDS.items():
        setattr(run, key, state.get(key, default))
    # Changes have removed the other processes, or will add them.
    run.tracks = {
        name: _restored_track(data) for name, data in state["tracks"].items() if name in run.tracks
    }
    run.leaving = {name: _restored_track(data) for name, data in state["leaving"].items()}
    run.requests = {
        data["number"]: Request(data["kind"], list(data["names"]), data.get("grace"))
        for data in state["requests"]
    }
    run.ending, ending = None, state.get("ending")
    if ending is not None:
        texts = {key: ending.get(key, "") for key in ("action", "reason", "failed", "cause")}
        run.ending = Ending(reason_code=reason_code(ending) or ReasonCode.STOPPED, **texts)
    run.renew_index()


def _restored_track(data: Mapping[str, Any]) -> Track:
    track = Track(**{key: data[key] for key in _PLAIN_TRACK_FIELDS & data.keys()})
    track.reason_code = reason_code(data)
    if "attempts" not in data:
        # Another version has recorded the checkpoint.
        track.attempts = track.restarts + (track.started is not None)
    if "state" in data:
        track.state = State(data["state"])
    return track


# The fields whose values are the same in JSON, with their default values.
_OTHER_RUN_FIELDS = ("tracks", "leaving", "requests", "ending", "unknown_events", "index")
_PLAIN_RUN_FIELDS = {
    each.name: each.default for each in fields(RunState) if each.name not in _OTHER_RUN_FIELDS
}
_PLAIN_TRACK_FIELDS = {each.name for each in fields(Track)} - {"state", "reason_code"}


def reason_code(event: Event) -> ReasonCode | None:
    """Return an event's reason code, or None if the code is missing or unknown."""
    code = event.get("reason_code")
    if code is None or type(code) is ReasonCode:
        # This is the most frequent case, and converting a value takes time.
        return code
    try:
        return ReasonCode(code)
    except ValueError:
        return None


_CHANGES: dict[str, Callable[[Any, Event], None]] = {
    "launched": _launched,
    "checkpoint": _restore,
    "supervisor-replaced": _supervisor_replaced,
    "agent-replaced": _agent_replaced,
    "requested": _requested,
    "request-done": _request_done,
    "waiting": _waiting,
    "started": _started,
    "start-failed": _start_failed,
    "ready": _ready,
    "not-ready": _not_ready,
    "tested": _tested,
    "unhealthy": _unhealthy,
    "exited": _exited,
    "never": _never,
    "terminating": _terminating,
    "start-requested": _start_requested,
    "signaled": _signaled,
    "background": _background,
    "stopping": _stopping,
    "ending": _ending,
    "restarting": _restarting,
    "restarted": _restarted,
    "changed": _changed,
    "finished": _finished,
}
