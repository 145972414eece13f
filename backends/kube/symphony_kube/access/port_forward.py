"""Reach services from outside the cluster through a load balancer, a node port or a forwarded port.

Each connection to a forwarded port has its own WebSocket and its own thread. If the Pod can no
longer be reached, the process's Pod is looked up again, because the Pod may have been replaced. If
the process is not running, the connection waits for up to `UNAVAILABLE_SECONDS`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symphony.cluster import Tunnel
from symphony.errors import NotFound, SpecError, SymphonyError, Unreachable, Unsupported, shown
from symphony.support.names import join_names
from symphony_kube.access.exec_stream import ExecStream, Message
from symphony_kube.access.external_services import (
    external_address,
    find_service,
    list_services,
    service_name,
)
from symphony_kube.api import labels
from symphony_kube.api.errors import ApiError, one_line
from symphony_kube.api.streams.channels import PROTOCOL_4
from symphony_kube.state.pod_status import ContainerRef
from symphony_kube.status.find_pod import find_container, list_containers, pod_path
from symphony_kube.status.permission_errors import missing_right

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]
OnError = Callable[[str], None]

LOOPBACK = "127.0.0.1"
# The channels of a forwarded port. The data on each channel begins with the port number as two
# bytes.
DATA, ERROR = 0, 1
_PORT_BYTES = 2
# How long a connection waits for a process that is not running, and the pause between attempts to
# reach the process.
UNAVAILABLE_SECONDS, RETRY_SECONDS = 30.0, 0.3
# After the client has sent all its data, the connection is closed if the process sends no data for
# this long.
LINGER_SECONDS = 10.0
# How long to try an external address before falling back to a forwarded port.
EXTERNAL_TIMEOUT_SECONDS = 2.0
# How long to wait for each connection's thread when a tunnel is closed.
CLOSE_TIMEOUT_SECONDS = 5.0
_READ_BYTES = 1 << 16
_WRITE_BYTES = 1 << 18
# No more data is received from the process while this many bytes are waiting to be sent to the
# client.
_MAX_UNREAD_BYTES = 1 << 20
# If a client sends more bytes than this before the process answers, the connection is not retried.
_MAX_REPLAY_BYTES = 1 << 16


def visit(experiment: KubeExperiment, service: str, *, on_error: OnError | None = None) -> Tunnel:
    """Return a tunnel to a service.

    If the service's external address accepts connections, the tunnel uses this address. Otherwise,
    the tunnel uses a forwarded port.
    """
    with contextlib.suppress(NotFound, Unsupported):
        address = external_address(experiment, service)
        host, _, port = address.rpartition(":")
        endpoint = (host.strip("[]"), int(port))
        with contextlib.suppress(OSError):
            socket.create_connection(endpoint, timeout=EXTERNAL_TIMEOUT_SECONDS).close()
            return Tunnel(address)
    resource = find_service(experiment, service, list_services(experiment))
    return _open_tunnel(experiment, _service_target(resource, None), None, on_error)


# --- forwarded ports ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardTarget:
    """A port in the Pod of a process or of a unit."""

    name: str
    port: int
    process: str | None = None
    unit: str | None = None


def port_forward(
    experiment: KubeExperiment,
    name: str,
    port: int | None = None,
    local_port: int | None = None,
    *,
    on_error: OnError | None = None,
) -> Tunnel:
    """Forward a local port to a process or a service until the tunnel is closed.

    ``port`` is required for a process. For a service, the default is the service's first port.
    ``local_port`` accepts only local connections. By default, a free port is chosen. ``on_error``
    is called with a message, from another thread, if a connection cannot be forwarded.
    """
    for value in (port, local_port):
        if value is not None and (isinstance(value, bool) or not 1 <= value <= 65535):
            raise SpecError(f"a port must be in the range 1 to 65535, not {shown(value)}")
    group, _, process = name.rpartition("/")
    try:
        ref = find_container(experiment, process, group or None)
    except NotFound:
        services = list_services(experiment)
        if name not in services:
            raise
        target = _service_target(services[name], port)
        return _open_tunnel(experiment, target, local_port, on_error)
    if port is not None:
        target = ForwardTarget(name=name, port=port, process=ref.process if ref else process)
        return _open_tunnel(experiment, target, local_port, on_error)
    services = list_services(experiment)
    if name in services:
        target = _service_target(services[name], None)
        return _open_tunnel(experiment, target, local_port, on_error)
    raise SpecError(
        f"process {name!r} requires a port, for example: "
        f"symphony forward {experiment.name} {name} 80"
    )


def _service_target(resource: Object, port: int | None) -> ForwardTarget:
    spec, name = resource["spec"], service_name(resource)
    target_ports = {}
    for item in spec["ports"]:
        target_ports[int(item["port"])] = int(item.get("targetPort") or item["port"])
    if port is None:
        port = next(iter(target_ports))
    elif port not in target_ports:
        known = join_names(str(known_port) for known_port in target_ports)
        raise SpecError(f"service {name!r} has port {known}, not {port}")
    unit = (spec.get("selector") or {}).get(labels.UNIT)
    return ForwardTarget(name=name, port=target_ports[port], unit=unit)


def _open_tunnel(
    experiment: KubeExperiment,
    target: ForwardTarget,
    local_port: int | None,
    on_error: OnError | None,
) -> Tunnel:
    try:
        listener = socket.create_server((LOOPBACK, local_port or 0))
    except OSError as exc:
        raise SpecError(
            f"cannot listen on local port {local_port}: {exc.strerror}; choose another one"
        ) from exc
    forwarder = _PortForwarder(experiment, target, listener, on_error or _ignore_error)
    forwarder.start()
    port = listener.getsockname()[1]
    return Tunnel(f"{LOOPBACK}:{port}", close=forwarder.close)


def _ignore_error(_message: str) -> None:
    """Ignore an error."""


class _PortForwarder:
    """A listener on a local port that serves each connection in its own thread."""

    def __init__(
        self,
        experiment: KubeExperiment,
        target: ForwardTarget,
        listener: socket.socket,
        on_error: OnError,
    ) -> None:
        self._experiment = experiment
        self._target = target
        self._listener = listener
        self._on_error = on_error
        self._closed = threading.Event()
        # Closing the trigger socket makes the signal socket readable, which wakes all threads.
        self._close_signal, self._close_trigger = socket.socketpair()
        self._threads: set[threading.Thread] = set()
        self._ref: ContainerRef | None = None

    def start(self) -> None:
        """Start accepting connections."""
        self._start_thread(self._accept, "forward")

    def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._closed.is_set():
            return
        self._closed.set()
        threads = list(self._threads)  # A thread removes itself from the set before it exits.
        self._close_trigger.close()
        for thread in threads:
            thread.join(timeout=CLOSE_TIMEOUT_SECONDS)
        self._listener.close()
        self._close_signal.close()

    def _start_thread(self, run: Callable[[], None], name: str) -> None:
        def run_and_remove() -> None:
            try:
                run()
            finally:
                self._threads.discard(threading.current_thread())

        thread = threading.Thread(
            target=run_and_remove, daemon=True, name=f"{name}-{self._target.name}"
        )
        self._threads.add(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            ready, _, _ = select.select([self._listener, self._close_signal], [], [])
            if self._listener not in ready or self._closed.is_set():
                continue
            client, _ = self._listener.accept()
            self._start_connection(client)

    def _start_connection(self, client: socket.socket) -> None:
        self._start_thread(lambda: self._serve(client), "forwarded")

    def _serve(self, client: socket.socket) -> None:
        """Connect a client to the Pod. If this fails, retry for up to `UNAVAILABLE_SECONDS`."""
        deadline = time.monotonic() + UNAVAILABLE_SECONDS
        connection = _ForwardedConnection(client, self._close_signal)
        try:
            while not self._closed.is_set():
                problem = self._connect(connection)
                if problem is None:
                    return
                self._ref = None
                if time.monotonic() > deadline or connection.is_final:
                    self._on_error(f"{self._target.name}, port {self._target.port}: {problem}")
                    connection.reset()
                    return
                if connection.is_abandoned() or self._closed.wait(RETRY_SECONDS):
                    return
        finally:
            client.close()

    def _connect(self, connection: _ForwardedConnection) -> str | None:
        """Connect to the process, and relay data until either side closes the connection.

        Return why the process could not be reached, or None if the connection was served.
        """
        try:
            ref = self._find_container()
            if ref is None:
                return "it is not running"
            self._ref = ref
            path = pod_path(self._experiment.scope, ref.pod, "portforward")
            query = [("ports", str(self._target.port))]
            websocket = self._experiment.api.websocket(path, query=query, protocol=PROTOCOL_4)
            with ExecStream(websocket) as stream:
                return connection.pass_data(stream)
        except ApiError as exc:
            if exc.status not in (401, 403):
                return exc.detail
            connection.is_final = True  # A retry would be refused as well.
            right = "get and create pods/portforward"
            return str(missing_right(exc, "forward a port", right, self._experiment.scope))
        except SymphonyError as exc:
            return one_line(str(exc))

    def _find_container(self) -> ContainerRef | None:
        """Return one of the target's running containers, or None if there is none."""
        if self._ref is not None:
            return self._ref
        target = self._target
        if target.process is not None:
            ref = find_container(self._experiment, target.process)
            return ref if ref is not None and ref.running else None
        refs = list_containers(self._experiment, target.unit)
        candidates = [ref for ref in refs if ref.running and not ref.deleting]
        return candidates[-1] if candidates else None


class _ForwardedConnection:
    """One client's connection.

    Several WebSockets can be tried before one of them reaches the process.

    The data from the client is kept until the process has answered, so that the data can be sent
    again. Once the process has answered or there is too much data, ``is_final`` is True and the
    connection is not retried.
    """

    def __init__(self, client: socket.socket, close_signal: socket.socket) -> None:
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.is_final = False
        self._client = client
        self._close_signal = close_signal
        self._replay = bytearray()
        self._unread = bytearray()  # Received from the process, but not yet sent to the client.
        self._client_finished = False
        self._header_bytes: dict[int, int] = {}

    def pass_data(self, stream: ExecStream) -> str | None:
        """Relay data in both directions until either side closes the connection.

        Return why the process could not be reached, or None if the connection was served.
        """
        if self._replay:
            stream.send(DATA, bytes(self._replay))
        self._header_bytes = {DATA: _PORT_BYTES, ERROR: _PORT_BYTES}
        error = bytearray()
        silent_since: float | None = None
        while not stream.closed or self._unread:
            messages = self._exchange(stream)
            if messages is None:
                return None
            for channel, data in messages:
                self._take(channel, data, error)
            if error and not self._unread:
                return one_line(error.decode(errors="replace"))
            if messages or not self._client_finished:
                silent_since = None
            elif silent_since is None:
                silent_since = time.monotonic()
            elif time.monotonic() > silent_since + LINGER_SECONDS:
                return None
        return None

    def is_abandoned(self) -> bool:
        """Return whether the client has closed the connection before sending any data."""
        try:
            return self._client.recv(1, socket.MSG_PEEK) == b"" and not self._replay
        except BlockingIOError:
            return False
        except OSError:
            return True

    def reset(self) -> None:
        """Reset the connection when it is closed, so that the client receives an error."""
        linger = struct.pack("ii", 1, 0)
        with contextlib.suppress(OSError):
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def _take(self, channel: int, data: bytes, error: bytearray) -> None:
        """Handle a message from the process. Text on the error channel is appended to ``error``."""
        skipped = min(self._header_bytes.get(channel, 0), len(data))
        if skipped:
            self._header_bytes[channel] -= skipped
        content = data[skipped:]
        if channel == DATA and content:
            self._make_final()
            self._unread += content
        elif channel == ERROR:
            error += content

    def _exchange(self, stream: ExecStream) -> list[Message] | None:
        """Wait until either side has sent data, and relay the client's data to the process.

        Return the messages from the process, or None if the connection has ended.
        """
        if self._unread and not self._write_to_client():
            return None
        if stream.closed or len(self._unread) > _MAX_UNREAD_BYTES:
            # The client reads slowly, so receive no more data until the client has read some.
            return None if self._wait_for_client() else []
        watched = [self._close_signal.fileno()]
        if not self._client_finished and not stream.full:
            watched.append(self._client.fileno())
        try:
            messages, ready = stream.exchange(0.02 if self._unread else 1.0, watched)
        except Unreachable:
            # It is unknown whether the data has arrived, so the data must not be sent again.
            return None
        if self._close_signal.fileno() in ready:
            return None
        if self._client.fileno() in ready and not self._read_from_client(stream):
            return None
        return messages

    def _wait_for_client(self) -> bool:
        """Wait until the client can receive data. Return whether the tunnel has been closed."""
        poll = select.poll()
        poll.register(self._client, select.POLLOUT if self._unread else 0)
        poll.register(self._close_signal, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(1000)}
        return self._close_signal.fileno() in ready

    def _write_to_client(self) -> bool:
        """Send received data to the client. Return False if the client has disconnected."""
        try:
            sent = self._client.send(bytes(self._unread[:_WRITE_BYTES]))
        except BlockingIOError:
            return True
        except OSError:
            return False
        del self._unread[:sent]
        return True

    def _read_from_client(self, stream: ExecStream) -> bool:
        """Relay data from the client. Return False if the connection is no longer needed."""
        try:
            data = self._client.recv(_READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            self._client_finished = True
            return bool(self._replay) or self.is_final
        if not self.is_final:
            self._replay += data
            if len(self._replay) > _MAX_REPLAY_BYTES:
                self._make_final()
        stream.send(DATA, data)
        return True

    def _make_final(self) -> None:
        self.is_final = True
        self._replay.clear()
