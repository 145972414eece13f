"""Requests to a running supervisor, such as to stop or restart processes.

A client sends one JSON object per line, for example::

    {"request": "restart", "names": ["agent-0", "agent-1"], "grace": 5.0}

The supervisor answers each line when the request is done: ``{"answer": "done"}``. If a request is
not valid, or cannot be done now, the answer is ``{"answer": "error", "message": ...}``. The answer
to a change can also contain the addresses that are ``"unavailable"``, and the reasons. What a
request has changed is in the event log. The next line of a connection is read after the answer.

========== ====================== ============================================================
Request    Values                 Done when
========== ====================== ============================================================
stop       names, grace           no process of the groups is running
start      names                  each process has started, or waits for its start conditions
restart    names, grace           as for stop, and then as for start
signal     names, signal, force   the signal was sent
change     directory, keep_holds, removed processes are gone, and the others as for restart
           accepted
finish                            the experiment, which must be stopped, begins to finish
attach     names                  the connection has joined the terminal of the only process;
                                  see `symphony.host.supervisor.terminal`
usage                             the connection receives samples; see
                                  `symphony.host.supervisor.usage`
========== ====================== ============================================================

A request goes on if its client disconnects. Only one request at a time can start a process, and
others are refused. A request to stop a process is always accepted: it replaces a restart, and can
shorten the grace period of an earlier stop.

A request to stop, start or restart processes is recorded before it begins and when it is done. The
record of a change begins when the new manifest is in place. If the supervisor is killed in between,
a new supervisor completes the request.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from symphony.errors import shown
from symphony.host.run.control_socket import MAX_GRACE_SECONDS, MAX_LINE_BYTES
from symphony.names import did_you_mean, join_names
from symphony.plan.state import Request
from symphony.private_directories import user_name
from symphony.status import State

if TYPE_CHECKING:
    from symphony.host.processes.spec import ProcessSpec
    from symphony.host.supervisor.change import Change
    from symphony.host.supervisor.event_loop import EventLoop
    from symphony.host.supervisor.requested_steps import RequestedSteps

MAX_CONNECTIONS = 64
# The key of a recorded request's number. Clients cannot send it.
_NUMBER = "number"
# The interval at which descendants are polled that have left their process groups.
_CHECK_SECONDS = 0.05
_RECEIVE_BYTES = 65536
# Linux accepts at most 253 descriptors in one message.
_MAX_DESCRIPTORS = 253
_ROOT_UID = 0
# struct ucred: pid, uid and gid; see unix(7).
_CREDENTIALS = struct.Struct("iII")

Answer = Mapping[str, Any]
Reply = Callable[[Answer], None]


class RequestRefused(Exception):
    """A request is not valid, or cannot be done now. The message is for the user.

    ``unavailable`` maps the addresses that a change needs to the reasons why they are unavailable.
    """

    def __init__(self, message: str, unavailable: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.unavailable = unavailable or {}


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection to a client. ``is_busy`` is true while a request of it is in progress."""

    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    descriptors: list[int] = field(default_factory=list)
    is_busy: bool = False
    has_ended: bool = False


@dataclass(slots=True, eq=False)
class _Operation:
    """A request that is in progress.

    ``awaited`` contains the processes that must exit completely. ``waves`` contains those of them
    that are not being stopped yet, in the order in which this happens, and ``wave`` those of the
    present wave. ``grace`` is the grace period of the request in seconds, or None for that of each
    process. ``to_start`` contains the processes that the request will start. When the processes of
    ``stopped`` have exited, their descendants that have left their process groups are stopped, and
    killed from ``kill_time`` on the monotonic clock on. ``restarted`` contains the processes whose
    start has been requested; the request is done when none of them waits for programs that its
    previous execution has left behind.
    ``change`` is the requested change of the experiment, if any. ``error`` is the reason why a part
    of the request was not done. ``number`` is that of the recorded request, or None if the request
    is not recorded.
    """

    reply: Reply
    number: int | None = None
    awaited: set[str] = field(default_factory=set)
    waves: list[list[str]] = field(default_factory=list)
    wave: frozenset[str] = frozenset()
    grace: float | None = None
    to_start: dict[str, None] = field(default_factory=dict)
    restarted: set[str] = field(default_factory=set)
    stopped: frozenset[str] = frozenset()
    change: Change | None = None
    kill_time: float = 0.0
    is_scheduled: bool = False
    error: str = ""


class Control:
    """The requests to one supervisor."""

    def __init__(self, steps: RequestedSteps, loop: EventLoop) -> None:
        self._steps = steps
        self._loop = loop
        self._connections: list[_Connection] = []
        self._operations: list[_Operation] = []
        # The connection whose request is being handled.
        self._requesting: _Connection | None = None
        # The descriptors that belong to the request that is being handled.
        self._descriptors: list[int] = []

    # --- connections ---

    def accept(self, listener: socket.socket) -> None:
        """Accept a connection from a client of this user or of root."""
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        client.setblocking(False)
        connection = _Connection(client)
        if _peer_uid(client) not in (_ROOT_UID, os.geteuid()):
            owner = user_name(os.geteuid())
            self._send(connection, _error(f"the experiment belongs to {owner}"))
            client.close()
            return
        if not self._make_room():
            self._send(connection, _error("too many requests are in progress; try again later"))
            client.close()
            return
        self._connections.append(connection)
        self._watch(connection)

    def _make_room(self) -> bool:
        """Close the oldest connection without a request if there are too many connections.

        Return False if all of them have requests.
        """
        if len(self._connections) < MAX_CONNECTIONS:
            return True
        for connection in self._connections:
            if not connection.is_busy:
                self._close(connection)
                return True
        return False

    def _watch(self, connection: _Connection) -> None:
        self._loop.watch(connection.socket.fileno(), lambda: self._receive(connection))

    def _close(self, connection: _Connection) -> None:
        self._loop.unwatch(connection.socket.fileno())
        self._connections.remove(connection)
        connection.socket.close()
        _close_all(connection.descriptors)

    def _receive(self, connection: _Connection) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(
                connection.socket, _RECEIVE_BYTES, _MAX_DESCRIPTORS
            )
            connection.descriptors += descriptors
            for descriptor in descriptors:
                # Otherwise, the processes would inherit the leases. The function ignores the flag
                # MSG_CMSG_CLOEXEC.
                os.set_inheritable(descriptor, False)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        connection.received += data
        # A client can close its direction of the connection and still wait for the answer.
        connection.has_ended = not data
        self._handle_lines(connection)

    def _handle_lines(self, connection: _Connection) -> None:
        """Handle the received lines until a request is in progress."""
        while not connection.is_busy:
            line, newline, rest = connection.received.partition(b"\n")
            if len(line) > MAX_LINE_BYTES:
                self._send(connection, _error("the request is too long"))
                self._close(connection)
                return
            if not newline:
                if connection.has_ended:
                    self._close(connection)
                return
            connection.received = rest
            # Until the answer is sent, nothing is read, so a client cannot send without limit.
            connection.is_busy = True
            self._loop.unwatch(connection.socket.fileno())
            self._requesting = connection
            descriptors, connection.descriptors = connection.descriptors, []
            self._handle(bytes(line), descriptors, functools.partial(self._answer, connection))

    def _answer(self, connection: _Connection, answer: Answer) -> None:
        if connection not in self._connections:
            # The connection has joined a terminal.
            return
        self._send(connection, answer)
        connection.is_busy = False
        self._watch(connection)
        # The next request is handled after the current step, which can concern several requests.
        self._loop.post(lambda: self._continue(connection))

    def _continue(self, connection: _Connection) -> None:
        if connection in self._connections and not connection.is_busy:
            self._handle_lines(connection)

    def _send(self, connection: _Connection, answer: Answer) -> None:
        # A client that has disconnected, or that does not read, loses the answer.
        with contextlib.suppress(OSError):
            connection.socket.send(json.dumps(answer).encode() + b"\n", socket.MSG_NOSIGNAL)

    # --- requests ---

    def _handle(self, line: bytes, descriptors: list[int], reply: Reply) -> None:
        """Do the request in ``line``. ``reply`` is called once, now or later.

        ``descriptors`` are those that the client has sent. The request closes them, or uses them.
        """
        try:
            request = _decode(line)
            self._descriptors = descriptors
            operation = self._begin(_find_kind(request), request, reply)
        except RequestRefused as exc:
            reply(_error(str(exc), exc.unavailable))
            return
        except Exception as exc:
            reply(_error(f"an internal error occurred in the supervisor: {exc}"))
            raise
        finally:
            _close_all(descriptors)
        self._advance(operation)

    def resume(self, number: int, request: Request) -> None:
        """Complete a request that a supervisor had accepted before it was killed."""
        names = [name for name in request.names if name in self._steps.processes.present]
        if request.kind == "change":
            self._resume_change(number, names)
            return
        values = {"names": names, "grace": request.grace, _NUMBER: number}
        try:
            operation = self._begin(_KINDS[request.kind], values, lambda _: None)
        except (RequestRefused, KeyError):
            # Another request has replaced this one, or another version recorded it.
            self._steps.record.add_request_done(number)
            return
        self._advance(operation)

    def _resume_change(self, number: int, to_start: Sequence[str]) -> None:
        """Complete a change. Even if the experiment is being stopped or restarted, the removed
        processes must be stopped.
        """
        change = self._steps.resume_change(to_start)
        operation = self._begin_change(change, number, to_start, lambda _: None)
        self._operations.append(operation)
        self._advance(operation)

    def _begin(self, kind: _Kind, request: Mapping[str, Any], reply: Reply) -> _Operation:
        if not kind.observes:
            self._refuse_while_stopping()
        operation = kind.handle(self, request, reply)
        self._operations.append(operation)
        return operation

    def _refuse_while_stopping(self) -> None:
        state = self._steps.state
        if state.stopping or state.finished:
            raise RequestRefused("the experiment is being stopped")
        if state.restarting:
            raise RequestRefused(
                "the experiment is being restarted after a failure; try again when it runs"
            )

    def _number(self, kind: str, request: Mapping[str, Any], names: list[str]) -> int:
        """Record a request before it begins, and return its number."""
        number: int | None = request.get(_NUMBER)
        if number is not None:
            return number
        return self._steps.record.add_request(kind, names, _grace(request))

    def _stop(self, request: Mapping[str, Any], reply: Reply) -> _Operation:
        names, grace = self._names_of_units(request), _grace(request)
        number = self._number("stop", request, names)
        operation = _Operation(reply, number, stopped=frozenset(names), grace=grace)
        for name in names:
            self._cancel_start(name)
            if self._track_state(name) is State.PENDING:
                self._steps.stop_pending(name)
        self._await_exits(operation, names)
        return operation

    def _await_exits(self, operation: _Operation, names: Iterable[str]) -> None:
        """Stop processes in waves, and wait until they have exited."""
        running = [name for name in names if not self._steps.processes.is_gone(name)]
        for name in running:
            self._steps.announce_stop(name, restarts=name in operation.to_start)
        operation.awaited.update(running)
        is_at_once = operation.grace == 0
        operation.waves = [running] if is_at_once else self._steps.processes.stop_waves(running)
        self._stop_next_wave(operation)

    def _stop_next_wave(self, operation: _Operation) -> None:
        """Stop the next wave, if no process of the present one is running any more."""
        while operation.waves and operation.wave.isdisjoint(operation.awaited):
            wave = operation.waves.pop(0)
            operation.wave = frozenset(wave)
            graces = [self._steps.processes[name].spec.grace for name in wave]
            longest = max(graces, default=0.0) if operation.grace is None else operation.grace
            operation.kill_time = time.monotonic() + longest
            for name in wave:
                if name in operation.awaited:
                    restarts = name in operation.to_start
                    self._steps.request_stop(name, operation.grace, restarts=restarts)

    def _cancel_start(self, name: str) -> None:
        for other in self._operations:
            if name in other.to_start:
                del other.to_start[name]
                self._steps.cancel_starts([name])
                other.error = f"another request stopped {name!r}"

    def _start(self, request: Mapping[str, Any], reply: Reply) -> _Operation:
        names = self._names_of_units(request)
        self._refuse_busy(names)
        operation = _Operation(reply, self._number("start", request, names))
        for name in names:
            track = self._steps.state.tracks[name]
            is_backing_off = track.next_start is not None
            if track.state is State.RUNNING:
                continue
            if track.state is State.PENDING and not is_backing_off:
                continue
            operation.to_start[name] = None
            if not self._steps.processes.is_gone(name):
                operation.awaited.add(name)
        return operation

    def _restart(self, request: Mapping[str, Any], reply: Reply) -> _Operation:
        names, grace = self._names_of_units(request), _grace(request)
        self._refuse_busy(names)
        operation = _Operation(reply, self._number("restart", request, names), grace=grace)
        operation.to_start.update(dict.fromkeys(names))
        self._await_exits(operation, names)
        return operation

    def _signal(self, request: Mapping[str, Any], reply: Reply) -> _Operation:
        names = self._names(request)
        number = _signal(request)
        idle = [name for name in names if self._track_state(name) is not State.RUNNING]
        if idle:
            raise RequestRefused(
                f"no signal was sent, because these processes are not running: {join_names(idle)}"
            )
        problems = self._steps.send_signal(names, number, force=request.get("force") is True)
        if problems:
            name, problem = next(iter(problems.items()))
            others = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
            raise RequestRefused(f"no signal was sent: process {name!r}{others}: {problem}")
        return _Operation(reply)

    def _change(self, request: Mapping[str, Any], reply: Reply) -> _Operation:
        """Change the experiment. From the replacement of the manifest on, nothing is refused."""
        if self._steps.state.is_changing:
            raise RequestRefused("another program is changing the experiment; try again")
        change = self._steps.prepare_change(request)
        self._refuse_busy([*change.added, *change.removed, *change.restarted])
        number = self._steps.begin_change(change, request, self._descriptors)
        return self._begin_change(change, number, [*change.added, *change.restarted], reply)

    def _begin_change(
        self, change: Change, number: int, to_start: Sequence[str], reply: Reply
    ) -> _Operation:
        """Stop the removed processes, and those that will be started again.

        ``to_start`` contains the added and restarted processes that have not been started yet.
        """
        operation = _Operation(
            reply,
            number,
            to_start=dict.fromkeys(to_start),
            stopped=frozenset(change.removed),
            change=change,
        )
        restarted = [name for name in change.restarted if name in operation.to_start]
        self._await_exits(operation, [*change.removed, *restarted])
        return operation

    def _finish(self, _request: Mapping[str, Any], reply: Reply) -> _Operation:
        if not self._steps.state.waits_for_start:
            raise RequestRefused("processes of the experiment are running")
        self._steps.stop()
        return _Operation(reply)

    def _attach(self, request: Mapping[str, Any], reply: Reply) -> _Operation:
        names = self._names(request)
        connection = self._requesting
        if len(names) != 1 or connection is None:
            raise RequestRefused("'names' must contain one process")
        terminal = self._steps.terminal(names[0])
        if terminal is None:
            raise RequestRefused(f"process {names[0]!r} is not running, or has no terminal")
        self._connections.remove(connection)
        self._send(connection, {"answer": "done"})
        problem = terminal.join(connection.socket, bytes(connection.received))
        if problem:
            connection.socket.close()
        return _Operation(reply)

    def _usage(self, _request: Mapping[str, Any], reply: Reply) -> _Operation:
        connection = self._requesting
        if connection is not None:
            self._connections.remove(connection)
            self._send(connection, {"answer": "done"})
            self._steps.show_usage(connection.socket)
        return _Operation(reply)

    def _names(self, request: Mapping[str, Any]) -> list[str]:
        names = request.get("names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise RequestRefused("'names' must be a list of process names")
        for name in names:
            if name not in self._steps.processes.present:
                hint = did_you_mean(name, self._steps.processes.present)
                raise RequestRefused(f"there is no process {shown(name)}{hint}")
        return list(dict.fromkeys(names))

    def _names_of_units(self, request: Mapping[str, Any]) -> list[str]:
        """Return the names of a request, and the other ranks of the units that it contains."""
        names: dict[str, None] = {}
        for name in self._names(request):
            names.update(dict.fromkeys(self._steps.processes.ranks_with(name) or [name]))
        return list(names)

    def _refuse_busy(self, names: Iterable[str]) -> None:
        """Raise RequestRefused if another request stops or starts one of the processes."""
        busy: set[str] = set()
        for operation in self._operations:
            busy |= operation.awaited | operation.stopped
            busy.update(operation.to_start)
        conflicts = [name for name in names if name in busy]
        if conflicts:
            raise RequestRefused(
                f"another request is stopping or restarting {join_names(conflicts)}; "
                "try again when it is done"
            )

    def _track_state(self, name: str) -> State:
        return self._steps.state.tracks[name].state

    # --- progress ---

    def handle_gone(self, name: str) -> None:
        """Continue the requests that wait until ``name`` has exited completely."""
        for operation in list(self._operations):
            if name not in operation.awaited:
                continue
            operation.awaited.discard(name)
            self._stop_next_wave(operation)
            if operation.to_start and not self._steps.state.is_stopping_all:
                self._advance_soon(operation)
            else:
                self._advance(operation)

    def _advance_soon(self, operation: _Operation) -> None:
        """Continue after the current step, so that processes that exit together start together."""
        if operation.is_scheduled:
            return
        operation.is_scheduled = True

        def advance() -> None:
            operation.is_scheduled = False
            self._advance(operation)

        self._loop.post(advance)

    def _advance(self, operation: _Operation) -> None:
        """Do the next steps of a request that are possible now, and answer when it is done."""
        try:
            self._do_next_steps(operation)
        except Exception as exc:
            # Otherwise, the client would wait forever, and its processes would count as busy.
            if operation in self._operations:
                message = f"an internal error occurred in the supervisor: {exc}"
                self._end(operation, _error(message))
            raise

    def _do_next_steps(self, operation: _Operation) -> None:
        state = self._steps.state
        if state.is_stopping_all and operation.to_start:
            self._steps.cancel_starts(operation.to_start)
            operation.to_start.clear()
            verb = "restarted after a failure" if state.restarting else "stopped"
            operation.error = f"the experiment is being {verb}"
        startable = self._startable(operation)
        leased = [name for name in startable if self._steps.lease_gpus(name)]
        for name in startable:
            del operation.to_start[name]
            if name not in leased:
                self._steps.cancel_starts([name])
                operation.error = f"another experiment has leased the GPUs of {name!r}"
        if leased:
            operation.restarted.update(leased)
            self._steps.start_again(leased)
        if operation.awaited or operation.to_start or operation not in self._operations:
            return
        has_leftovers = any(map(self._steps.waits_for_leftovers, operation.restarted))
        if not has_leftovers and operation.stopped:
            has_leftovers = self._steps.stop_strays_of(operation.stopped, operation.kill_time)
        if has_leftovers:
            self._loop.after(_CHECK_SECONDS, lambda: self._advance(operation))
            return
        self._end(operation, _error(operation.error) if operation.error else {"answer": "done"})

    def _end(self, operation: _Operation, answer: Answer) -> None:
        """Record and answer a request that is done."""
        self._operations.remove(operation)
        try:
            if operation.change is not None:
                # A client can use the released resources as soon as the end is recorded.
                self._steps.end_change(operation.change)
        finally:
            if operation.number is not None:
                self._steps.record.add_request_done(operation.number)
            operation.reply(answer)

    def _startable(self, operation: _Operation) -> list[str]:
        """Return the processes that can be started, in declaration order.

        A process cannot be started before the processes of the request for which it waits have
        exited, because it would start while these are still ready from before.
        """
        blocked = set(operation.awaited)
        processes = self._steps.processes.present
        # The ports that are in use until other processes have exited.
        old_specs = {} if operation.change is None else operation.change.old_specs
        used = {port: name for name in blocked for port in _ports(old_specs, name)}
        remaining = [
            name
            for name in processes
            if name in operation.to_start
            and all(used.get(port, name) == name for port in processes[name].spec.releases)
        ]
        blocked.update(set(operation.to_start) - set(remaining))
        while True:
            free = [
                name
                for name in remaining
                if name not in blocked and blocked.isdisjoint(processes[name].spec.starts_after)
            ]
            if len(free) == len(remaining):
                return free
            blocked.update(set(remaining) - set(free))
            remaining = free


_Handler = Callable[[Control, Mapping[str, Any], Reply], _Operation]


class _Kind(NamedTuple):
    """A kind of request: its function, and the names of its values.

    A request that only observes the experiment is possible until the experiment has finished.
    """

    handle: _Handler
    values: frozenset[str] = frozenset()
    observes: bool = False


_KINDS: dict[str, _Kind] = {
    "stop": _Kind(Control._stop, frozenset({"names", "grace"})),
    "start": _Kind(Control._start, frozenset({"names"})),
    "restart": _Kind(Control._restart, frozenset({"names", "grace"})),
    "signal": _Kind(Control._signal, frozenset({"names", "signal", "force"})),
    "change": _Kind(Control._change, frozenset({"directory", "keep_holds", "accepted"})),
    "finish": _Kind(Control._finish),
    "attach": _Kind(Control._attach, frozenset({"names"})),
    "usage": _Kind(Control._usage, observes=True),
}


def _peer_uid(client: socket.socket) -> int:
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(credentials)[1]
    return uid


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    descriptors.clear()


def _ports(specs: Mapping[str, ProcessSpec], name: str) -> tuple[int, ...]:
    return specs[name].releases if name in specs else ()


def _error(message: str, unavailable: Mapping[str, str] | None = None) -> Answer:
    answer = {"answer": "error", "message": message}
    return {**answer, "unavailable": dict(unavailable)} if unavailable else answer


def _decode(line: bytes) -> Mapping[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise RequestRefused("the request is not valid JSON") from None
    if not isinstance(request, dict):
        raise RequestRefused("the request is not a JSON object")
    return request


def _find_kind(request: Mapping[str, Any]) -> _Kind:
    """Return the kind of a request. Raises RequestRefused if it is unknown."""
    name = request.get("request")
    if not isinstance(name, str) or name not in _KINDS:
        hint = did_you_mean(name, _KINDS) if isinstance(name, str) else ""
        raise RequestRefused(f"the supervisor does not know the request {shown(name)}{hint}")
    kind = _KINDS[name]
    for key in request:
        if key != "request" and key not in kind.values:
            raise RequestRefused(f"the request {name!r} has no value {shown(key)}")
    return kind


def _signal(request: Mapping[str, Any]) -> signal.Signals:
    number = request.get("signal")
    if isinstance(number, int) and not isinstance(number, bool):
        with contextlib.suppress(ValueError):
            return signal.Signals(number)
    raise RequestRefused(f"'signal' must be the number of a signal, not {shown(number)}")


def _grace(request: Mapping[str, Any]) -> float | None:
    grace = request.get("grace")
    if grace is None:
        return None
    is_number = isinstance(grace, (int, float)) and not isinstance(grace, bool)
    if not is_number or not math.isfinite(grace) or not 0 <= grace <= MAX_GRACE_SECONDS:
        raise RequestRefused(f"'grace' must be a number of seconds, not {shown(grace)}")
    return float(grace)
