"""Requests to a running supervisor, such as to stop or restart processes.

A client sends one JSON object per line, for example::

    {"request": "restart", "names": ["agent-0", "agent-1"], "grace": 5.0}

The supervisor answers each line when the request is done: ``{"answer": "done"}``. If a request is
not valid, or cannot be done now, the answer is ``{"answer": "error", "message": ...}``. The answer
to a change can also contain the addresses that are ``"unavailable"``, and the reasons. If another
request has to be done first, the answer contains ``"busy": true``. The event log contains
the changes that a request has made. The next line of a connection is read after the answer.

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
                                  see `symphony.supervised.supervisor.terminal_server`
usage                             the connection receives samples; see
                                  `symphony.supervised.supervisor.serving.record_usage`
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
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from symphony.errors import shown
from symphony.plan.requests import RESTART, START, STOP, Busy, Refused
from symphony.supervised.record.control_socket import MAX_GRACE_SECONDS, MAX_LINE_BYTES
from symphony.support.data_classes import dataclass, field
from symphony.support.directories.private import user_name
from symphony.support.names import did_you_mean

if TYPE_CHECKING:
    from symphony.supervised.supervisor.event_loop import EventLoop
    from symphony.supervised.supervisor.serving.requested_steps import RequestedSteps

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


class RequestServer:
    """The requests to one supervisor.

    ``on_request`` is called when a request is recorded, which `symphony.plan.decide` continues.
    """

    def __init__(
        self, steps: RequestedSteps, loop: EventLoop, on_request: Callable[[], None]
    ) -> None:
        self._steps = steps
        self._loop = loop
        self._on_request = on_request
        self._connections: list[_Connection] = []
        # The replies to the recorded requests that are not done yet, by their numbers.
        self._replies: dict[int, Reply] = {}
        # The parts of them that another request has prevented.
        self._prevented: dict[int, str] = {}
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
            kind = _find_kind(request)
            self._descriptors = descriptors
            number = kind.handle(self, request)
        except RequestRefused as exc:
            reply(_error(str(exc), exc.unavailable))
            return
        except Busy as exc:
            reply({**_error(str(exc)), "busy": True})
            return
        except Refused as exc:
            reply(_error(str(exc)))
            return
        except Exception as exc:
            reply(_error(f"an internal error occurred in the supervisor: {exc}"))
            raise
        finally:
            _close_all(descriptors)
        if number is None:
            reply({"answer": "done"})
        else:
            self._replies[number] = reply
        self._on_request()

    def answer(self, number: int, error: str) -> None:
        """Answer a recorded request, which is done. ``error`` is what was not done, or ``""``."""
        reply = self._replies.pop(number, None)
        prevented = self._prevented.pop(number, "")
        error = error or prevented
        if reply is not None:
            reply(_error(error) if error else {"answer": "done"})

    def _stop(self, request: Mapping[str, Any]) -> int:
        return self._accept(STOP, request, _grace(request))

    def _start(self, request: Mapping[str, Any]) -> int:
        return self._accept(START, request, None)

    def _restart(self, request: Mapping[str, Any]) -> int:
        return self._accept(RESTART, request, _grace(request))

    def _accept(self, kind: str, request: Mapping[str, Any], grace: float | None) -> int:
        accepted = self._steps.accept(kind, _names(request), grace)
        self._prevented.update(accepted.prevented)
        return accepted.number

    def _signal(self, request: Mapping[str, Any]) -> None:
        names, number = _names(request), _signal(request)
        problems = self._steps.send_signal(names, number, force=request.get("force") is True)
        if problems:
            name, problem = next(iter(problems.items()))
            others = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
            raise RequestRefused(f"no signal was sent: process {name!r}{others}: {problem}")

    def _change(self, request: Mapping[str, Any]) -> int:
        """Change the experiment. From the replacement of the manifest on, nothing is refused."""
        change = self._steps.prepare_change(request)
        return self._steps.begin_change(change, request, self._descriptors)

    def _finish(self, _request: Mapping[str, Any]) -> None:
        self._steps.finish()

    def _attach(self, request: Mapping[str, Any]) -> None:
        names = self._steps.check_attach(_names(request))
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

    def _usage(self, _request: Mapping[str, Any]) -> None:
        connection = self._requesting
        if connection is not None:
            self._connections.remove(connection)
            self._send(connection, {"answer": "done"})
            self._steps.show_usage(connection.socket)


# A function that handles a request, and returns its number if it is recorded and not done yet.
_Handler = Callable[[RequestServer, Mapping[str, Any]], int | None]


class _Kind(NamedTuple):
    """A kind of request: its function, and the names of its values."""

    handle: _Handler
    values: frozenset[str] = frozenset()


_KINDS: dict[str, _Kind] = {
    "stop": _Kind(RequestServer._stop, frozenset({"names", "grace"})),
    "start": _Kind(RequestServer._start, frozenset({"names"})),
    "restart": _Kind(RequestServer._restart, frozenset({"names", "grace"})),
    "signal": _Kind(RequestServer._signal, frozenset({"names", "signal", "force"})),
    "change": _Kind(RequestServer._change, frozenset({"directory", "keep_holds", "accepted"})),
    "finish": _Kind(RequestServer._finish),
    "attach": _Kind(RequestServer._attach, frozenset({"names"})),
    "usage": _Kind(RequestServer._usage),
}


def _peer_uid(client: socket.socket) -> int:
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(credentials)[1]
    return uid


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    descriptors.clear()


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


def _names(request: Mapping[str, Any]) -> list[str]:
    names = request.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RequestRefused("'names' must be a list of process names")
    return names


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
