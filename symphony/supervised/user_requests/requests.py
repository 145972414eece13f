"""Send requests to a supervisor; see `symphony.supervised.supervisor.serving.request_server`."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from symphony.errors import BackendError
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.process_groups import wait_for_exit
from symphony.supervised.record.control_socket import MAX_LINE_BYTES, connect
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.handover import DESCRIPTORS_PER_MESSAGE, send_descriptors
from symphony.supervised.user_requests.stop import find_supervisor, has_finished

# The interval at which a waiting client checks that the supervisor is not suspended.
_CHECK_SECONDS = 1.0
# How long the exit of a supervisor that has closed the connection may take.
_EXIT_SECONDS = 5.0
_RECEIVE_BYTES = 65536
# The refusals of a supervisor that does not know a request, a value or a field, because its version
# is another one. Some versions report a field with the words of Python.
_OTHER_VERSION = re.compile(
    r"does not know the request|the request '\w+' has no value|unexpected keyword argument"
    r"|another version of symphony"
)


# The interval at which a request is sent again that waits for another one.
_RETRY_SECONDS = 0.1


class Busy(BackendError):
    """A request was refused, because another one concerns the same processes."""


class AddressesUnavailable(BackendError):
    """A change needs new addresses of services that are unavailable.

    ``reasons`` maps the addresses ``host:port`` to the reasons.
    """

    def __init__(self, message: str, reasons: Mapping[str, str]) -> None:
        super().__init__(message)
        self.reasons = reasons


class SupervisorLink(Protocol):
    """A connection over which programs send requests to the supervisor of a run."""

    def check(self) -> None:
        """Raise BackendError if the supervisor cannot be reached, before a request is sent."""

    def check_responsive(self) -> None:
        """Raise BackendError if the supervisor, whose answer is awaited, is suspended."""

    def connect(self) -> socket.socket:
        """Return a connection to the supervisor. Raises OSError if this is not possible."""

    def explain_end(self, consequence: str) -> str:
        """Return why the connection was closed without an answer.

        ``consequence`` is a part of the sentence that is used if the supervisor was killed.
        """


class LocalLink:
    """The link to a supervisor on this machine; see `SupervisorLink`."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._supervisor: ProcessId | None = None

    def check(self) -> None:
        """Find the supervisor; see `SupervisorLink`."""
        run = self._run
        run.check_user()
        other_host = run.other_host()
        if other_host is not None:
            raise BackendError(run.other_host_message(other_host, "run the command there"))
        self._supervisor = find_supervisor(run)
        if self._supervisor is None:
            consequence = ", so its processes cannot be controlled"
            raise BackendError(_unsupervised_message(run, consequence))
        self.check_responsive()

    def check_responsive(self) -> None:
        """Raise BackendError if the supervisor is suspended; see `SupervisorLink`."""
        suspension = self._run.suspension()
        if suspension:
            raise BackendError(f"experiment {self._run.name!r} cannot be controlled: {suspension}")

    def connect(self) -> socket.socket:
        """Return a connection to the supervisor; see `SupervisorLink`."""
        try:
            return connect(self._run)
        except FileNotFoundError as exc:
            raise BackendError(
                f"the supervisor of {self._run.name!r} accepts no requests, because it belongs to "
                f"an earlier version of symphony or sockets cannot be created in {self._run.path}; "
                "delete the experiment, and launch it again"
            ) from exc

    def explain_end(self, consequence: str) -> str:
        """Return why the connection was closed; see `SupervisorLink`."""
        if self._supervisor is not None:
            wait_for_exit(self._supervisor, _EXIT_SECONDS)
        return _unsupervised_message(self._run, consequence)


def send_request(
    run: RunDirectory,
    request: Mapping[str, Any],
    *,
    timeout: float | None = None,
    descriptors: Sequence[int] = (),
    on_sent: Callable[[], None] = lambda: None,
    link: SupervisorLink | None = None,
    waits: bool = False,
) -> None:
    """Send a request to the supervisor of a pinned run, and return when it is done.

    ``descriptors`` are file descriptors for the supervisor. ``on_sent`` is called when the request
    has been sent. From then on, it is done even if the caller is interrupted. By default, the
    supervisor runs on this machine. If ``waits`` is true, the request waits until no other one
    concerns its processes, instead of being refused.

    Raises BackendError if the supervisor cannot be reached or refuses the request, and TimeoutError
    if the request is not done within ``timeout`` seconds. After a timeout, a request that has begun
    goes on.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        try:
            with open_channel(
                run,
                request,
                timeout=timeout,
                deadline=deadline,
                descriptors=descriptors,
                on_sent=on_sent,
                link=link or LocalLink(run),
            ):
                return
        except Busy as exc:
            if not waits:
                raise
            if deadline is not None and time.monotonic() + _RETRY_SECONDS >= deadline:
                # Sent after the deadline, the request could be carried out nevertheless.
                raise TimeoutError(f"{exc} (waited {timeout:g} s)") from None
        time.sleep(_RETRY_SECONDS)


@contextlib.contextmanager
def open_channel(
    run: RunDirectory,
    request: Mapping[str, Any],
    *,
    timeout: float | None = None,
    deadline: float | None = None,
    descriptors: Sequence[int] = (),
    on_sent: Callable[[], None] = lambda: None,
    link: SupervisorLink | None = None,
) -> Iterator[tuple[socket.socket, bytes]]:
    """Send a request as `send_request` does, and yield the connection.

    The connection is blocking. Also yield the bytes that were received after the answer.
    ``deadline`` is the end of ``timeout`` on the monotonic clock, if it has begun before this call.
    """
    link = link or LocalLink(run)
    link.check()
    if deadline is None and timeout is not None:
        deadline = time.monotonic() + timeout

    def send(channel: socket.socket) -> None:
        for start in range(0, len(descriptors), DESCRIPTORS_PER_MESSAGE):
            send_descriptors(channel, descriptors[start : start + DESCRIPTORS_PER_MESSAGE])
        channel.sendall(json.dumps(request).encode() + b"\n")
        on_sent()

    with contextlib.ExitStack() as stack:
        channel, answer, rest = _exchange(run, link, stack, request, send, deadline, timeout)
        if answer is None or channel is None:
            consequence = (
                f" before the {request['request']} was done; it is completed if it had begun"
            )
            raise BackendError(link.explain_end(consequence))
        if answer.get("answer") != "done":
            message = _refusal(run, request, str(answer.get("message")))
            if answer.get("unavailable"):
                raise AddressesUnavailable(message, answer["unavailable"])
            raise Busy(message) if answer.get("busy") else BackendError(message)
        channel.settimeout(None)
        yield channel, rest


def _exchange(
    run: RunDirectory,
    link: SupervisorLink,
    stack: contextlib.ExitStack,
    request: Mapping[str, Any],
    send: Callable[[socket.socket], None],
    deadline: float | None,
    timeout: float | None,
) -> tuple[socket.socket | None, dict[str, Any] | None, bytes]:
    """Send a request, and return the connection, the answer, and what follows the answer.

    The answer is None if the supervisor exits without one. ``stack`` closes the connection.
    """
    try:
        channel = stack.enter_context(link.connect())
        send(channel)
        return channel, *_receive(link, channel, deadline)
    except ConnectionError:
        return None, None, b""
    except TimeoutError:
        raise TimeoutError(
            f"experiment {run.name!r}: the {request['request']} was not done within {timeout:g} s; "
            "it continues"
        ) from None


def _refusal(run: RunDirectory, request: Mapping[str, Any], message: str) -> str:
    """Return the error message for a request that a supervisor has refused for a reason."""
    if _OTHER_VERSION.search(message) is None:
        return f"experiment {run.name!r}: {message}"
    return (
        f"experiment {run.name!r} was launched by another version of symphony, whose supervisor "
        f"cannot carry out the request {request['request']!r}; nothing was changed: use that "
        "version, or launch the experiment again with force"
    )


def _unsupervised_message(run: RunDirectory, consequence: str) -> str:
    """Return the error message for an experiment without a running supervisor.

    ``consequence`` is used if the supervisor was killed.
    """
    if not run.is_current():
        return f"experiment {run.name!r} was deleted"
    if has_finished(run):
        return f"experiment {run.name!r} has finished; launch it again to run its processes"
    return f"the supervisor of {run.name!r} was killed{consequence}; use: symphony ps {run.name}"


def _receive(
    link: SupervisorLink, channel: socket.socket, deadline: float | None
) -> tuple[dict[str, Any] | None, bytes]:
    """Return the answer, or None if the supervisor exits without one, and what follows the answer.

    Raises TimeoutError at the time ``deadline`` on the monotonic clock.
    """
    received = b""
    while b"\n" not in received:
        pause = _CHECK_SECONDS
        if deadline is not None:
            pause = min(pause, deadline - time.monotonic())
        if pause <= 0:
            raise TimeoutError
        channel.settimeout(pause)
        try:
            data = channel.recv(_RECEIVE_BYTES)
        except TimeoutError:
            link.check_responsive()
            continue
        if not data or len(received) > MAX_LINE_BYTES:
            return None, b""
        received += data
    line, _, rest = received.partition(b"\n")
    return json.loads(line), rest
