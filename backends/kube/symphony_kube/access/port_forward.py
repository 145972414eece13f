"""Reaching services from outside: by load balancer or node port, else by forwarding a port over the API.

Each connection to a forwarded port has a WebSocket of its own and a thread. The Pod is looked up for each, so that
one that was restarted or replaced is found again; while it is away the connection waits for a moment.
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
from symphony.errors import NotFound, SpecError, SymphonyError, Unreachable, Unsupported
from symphony.names import did_you_mean, join_names
from symphony_kube.access.exec_stream import Channels
from symphony_kube.api import labels as names
from symphony_kube.api.errors import ApiError, one_line
from symphony_kube.api.labels import Scope
from symphony_kube.status import find_pod
from symphony_kube.status.permission_errors import missing_right
from symphony_kube.status.pod_status import ContainerRef

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = Mapping[str, Any]
OnError = Callable[[str], None]

LOOPBACK = "127.0.0.1"
DATA, ERROR = 0, 1
# How long a connection waits for a process that is away, and how often it looks, in seconds.
AWAY, LOOK_EVERY = 30.0, 0.3
# How long an answer may be silent after the client has said that it will send no more, in seconds.
LINGER = 10.0
# How long to try an address from outside before a port is forwarded, in seconds.
TRY = 2.0
_READ = 1 << 16


# --- from outside ---


def external(api: Api, scope: Scope, service: str) -> str:
    """``host:port`` of a service's load balancer, else of its port on a node.

    Raises `NotFound` for one that is not exposed, and `Unsupported` where nothing leads to it from outside.
    """
    found = _service(api, scope, service, _services(api, scope))
    spec = found["spec"]
    if spec.get("type") not in ("LoadBalancer", "NodePort"):
        raise NotFound(
            f"experiment {scope.experiment!r} does not expose {service!r} to the outside; reach it through the API "
            f"server with: symphony visit {scope.experiment} {service}"
        )
    port = spec["ports"][0]
    for entry in ((found.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
        host = entry.get("ip") or entry.get("hostname")
        if host:
            return _address(host, port["port"])
    node = _node(api, scope, found) if port.get("nodePort") else None
    if node:
        return _address(node, port["nodePort"])
    raise Unsupported(
        f"service {service!r} has no address outside yet: no load balancer has given it one; reach it through the "
        f"API server with: symphony visit {scope.experiment} {service}"
    )


def _services(api: Api, scope: Scope) -> dict[str, Object]:
    path = f"/api/v1/namespaces/{scope.namespace}/services"
    try:
        listed = api.call("GET", path, query={"labelSelector": scope.selector})
    except ApiError as exc:
        raise missing_right(
            exc, f"list the services of {scope.experiment!r}", "list services", scope
        ) from exc
    items = listed.get("items") or ()
    return {
        item["metadata"]["labels"].get(names.SERVICE, item["metadata"]["name"]): item
        for item in items
    }


def _service(api: Api, scope: Scope, service: str, known: Mapping[str, Object]) -> Object:
    if service in known:
        return known[service]
    if not known:
        from symphony_kube.status import experiments

        experiments.describe(api, scope)  # NotFound where there is no such experiment
    hint = did_you_mean(service, known) or f"; its services are {join_names(known)}"
    raise NotFound(f"experiment {scope.experiment!r} does not expose {service!r}{hint}")


def _node(api: Api, scope: Scope, service: Object) -> str | None:
    """The address of a node, from outside where there is one; the node of the service's Pod before others."""
    places = find_pod.list_containers(api, scope, service["spec"]["selector"].get(names.UNIT))
    host = next((place.host for place in places if place.host), None)
    try:
        nodes = api.call("GET", "/api/v1/nodes").get("items") or ()
    except ApiError:  # nodes are the whole cluster's: few may see them
        return host
    found = [
        {item["type"]: item["address"] for item in node["status"].get("addresses") or ()}
        for node in nodes
    ]
    found.sort(key=lambda addresses: addresses.get("InternalIP") != host)
    for kind in ("ExternalIP", "ExternalDNS", "InternalIP"):
        for addresses in found:
            if kind in addresses:
                return str(addresses[kind])
    return host


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def visit(api: Api, scope: Scope, service: str, *, on_error: OnError | None = None) -> Tunnel:
    """A way to a service: its address outside where that answers, else a forwarded port."""
    with contextlib.suppress(NotFound, Unsupported):
        address = external(api, scope, service)
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError):
            socket.create_connection((host.strip("[]"), int(port)), timeout=TRY).close()
            return Tunnel(address)
    target = _of_service(_service(api, scope, service, _services(api, scope)), None)
    return _open(api, scope, target, None, on_error)


# --- forwarding ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A port of a Pod: that of a process, or of a unit."""

    name: str
    port: int
    process: str | None = None
    unit: str | None = None


def port_forward(
    api: Api,
    scope: Scope,
    name: str,
    port: int | None = None,
    local_port: int | None = None,
    *,
    on_error: OnError | None = None,
) -> Tunnel:
    """Forward a port of this machine to one of a process, or to a service; open until the tunnel is closed.

    A service has a port of its own; for a process it has to be said. ``local_port`` is that of this machine, any
    free one unless given; only this machine can connect to it. ``on_error`` is called from another thread.
    """
    for value in (port, local_port):
        if value is not None and (isinstance(value, bool) or not 1 <= value <= 65535):
            raise SpecError(f"a port is 1 to 65535, not {value!r}")
    try:
        place = find_pod.find_container(
            api, scope, name.rpartition("/")[2], name.rpartition("/")[0] or None
        )
    except NotFound:
        known = _services(api, scope)
        if name not in known:
            raise
        return _open(api, scope, _of_service(known[name], port), local_port, on_error)
    if port is None:
        known = _services(api, scope)
        if name in known:
            return _open(api, scope, _of_service(known[name], None), local_port, on_error)
        raise SpecError(
            f"which port of process {name!r}? say for example: symphony forward {scope.experiment} {name} 80"
        )
    process = place.process if place else name.rpartition("/")[2]
    return _open(api, scope, Target(name=name, port=port, process=process), local_port, on_error)


def _of_service(service: Object, port: int | None) -> Target:
    spec, labels = service["spec"], service["metadata"]["labels"]
    name = labels.get(names.SERVICE, service["metadata"]["name"])
    ports = {int(item["port"]): item.get("targetPort") or item["port"] for item in spec["ports"]}
    if port is not None and port not in ports:
        raise SpecError(f"service {name!r} has port {join_names(map(str, ports))}, not {port}")
    target = ports[port] if port is not None else next(iter(ports.values()))
    unit = (spec.get("selector") or {}).get(names.UNIT)
    return Target(name=name, port=int(target), unit=unit)


def _open(
    api: Api, scope: Scope, target: Target, local_port: int | None, on_error: OnError | None
) -> Tunnel:
    try:
        listener = socket.create_server((LOOPBACK, local_port or 0))
    except OSError as exc:
        raise SpecError(
            f"cannot listen on port {local_port} of this machine: {exc.strerror}; choose another"
        ) from exc
    forwarder = _Forwarder(api, scope, target, listener, on_error or (lambda _: None))
    forwarder.start()
    return Tunnel(f"{LOOPBACK}:{listener.getsockname()[1]}", close=forwarder.close)


class _Forwarder:
    """Listens on a port and serves each connection in a thread."""

    def __init__(
        self, api: Api, scope: Scope, target: Target, listener: socket.socket, on_error: OnError
    ) -> None:
        self._api = api
        self._scope = scope
        self._target = target
        self._listener = listener
        self._on_error = on_error
        self._closed = threading.Event()
        self._woken, self._wake = socket.socketpair()
        self._threads: set[threading.Thread] = set()
        self._place: ContainerRef | None = None

    def start(self) -> None:
        """Begin to accept connections."""
        self._begin(self._accept, "forward")

    def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._closed.is_set():
            return
        self._closed.set()
        threads = list(
            self._threads
        )  # whoever ends is no longer among them, and may still be there for a moment
        self._wake.close()
        for thread in threads:
            thread.join(timeout=5)
        self._listener.close()
        self._woken.close()

    def _begin(self, run: Callable[[], None], name: str) -> None:
        def and_forget() -> None:
            try:
                run()
            finally:
                self._threads.discard(threading.current_thread())

        thread = threading.Thread(
            target=and_forget, daemon=True, name=f"{name}-{self._target.name}"
        )
        self._threads.add(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            ready, _, _ = select.select([self._listener, self._woken], [], [])
            if self._listener in ready and not self._closed.is_set():
                connection, _ = self._listener.accept()
                self._begin(lambda taken=connection: self._serve(taken), "forwarded")  # type: ignore[misc]

    def _serve(self, client: socket.socket) -> None:
        """Connect a client with the Pod, trying again while that is away; break the connection where it stays so."""
        deadline = time.monotonic() + AWAY
        talk = _Talk(client, self._woken)
        try:
            while not self._closed.is_set():
                why = self._once(talk)
                if why is None:
                    return
                self._place = None
                if time.monotonic() > deadline or talk.settled:
                    self._on_error(f"{self._target.name}, port {self._target.port}: {why}")
                    talk.break_off()
                    return
                if talk.client_gone() or self._closed.wait(LOOK_EVERY):
                    return
        finally:
            client.close()

    def _once(self, talk: _Talk) -> str | None:
        """Pass data until either end closes; why there was no connection, or None where there was."""
        try:
            place = self._look_up()
            if place is None:
                return "it does not run"
            self._place = place
            path = find_pod.pod_path(self._scope, place.pod, "portforward")
            with Channels(
                self._api.websocket(path, query=[("ports", str(self._target.port))])
            ) as channels:
                return talk.through(channels)
        except ApiError as exc:
            if exc.status in (401, 403):
                talk.settled = True  # time does not heal it
                refused = missing_right(
                    exc, "forward a port", "get and create pods/portforward", self._scope
                )
                return str(refused)
            return exc.detail
        except SymphonyError as exc:
            return one_line(str(exc))

    def _look_up(self) -> ContainerRef | None:
        if self._place is not None:
            return self._place
        target = self._target
        if target.process is not None:
            place = find_pod.find_container(self._api, self._scope, target.process)
            return place if place is not None and place.running else None
        running = [
            place
            for place in find_pod.list_containers(self._api, self._scope, target.unit)
            if place.running
        ]
        return next((place for place in reversed(running) if not place.deleting), None)


class _Talk:
    """One client's connection, over as many WebSockets as it takes until one reaches the process."""

    def __init__(self, client: socket.socket, closing: socket.socket) -> None:
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Once there was an answer, or more was said than is remembered, it cannot be begun again.
        self.settled = False
        self._client = client
        self._closing = closing
        self._sent = bytearray()  # until it is settled, so that it can be said again to another
        self._waiting = bytearray()
        self._ended = False

    def through(self, channels: Channels) -> str | None:
        """Pass data both ways until either end closes; why the process could not be reached, or None."""
        if self._sent:
            channels.send(DATA, bytes(self._sent))
        heads = {DATA: 2, ERROR: 2}  # each channel begins with its port
        error = bytearray()
        quiet_since: float | None = None
        while not channels.closed or self._waiting:
            messages = self._turn(channels)
            if messages is None:
                return None
            for channel, data in messages:
                skip = min(heads.get(channel, 0), len(data))
                heads[channel] = heads.get(channel, 0) - skip
                if channel == DATA and len(data) > skip:
                    self._settle()
                    self._waiting += data[skip:]
                elif channel == ERROR:
                    error += data[skip:]
            if error and not self._waiting:
                return one_line(error.decode(errors="replace"))
            quiet_since = None if messages or not self._ended else quiet_since or time.monotonic()
            if quiet_since is not None and time.monotonic() > quiet_since + LINGER:
                return None
        return None

    def _turn(self, channels: Channels) -> list[tuple[int, bytes]] | None:
        """Wait for either end and pass on what there is; None where the client is gone or all is being closed."""
        listening = not self._ended and not channels.full
        watched = [self._closing.fileno(), *([self._client.fileno()] if listening else [])]
        if self._waiting and not self._write():
            return None
        busy = bool(self._waiting)
        if (
            channels.closed or len(self._waiting) > 1 << 20
        ):  # the client is slow: the process has to wait
            poll = select.poll()
            poll.register(self._client, select.POLLOUT if busy else 0)
            poll.register(self._closing, select.POLLIN)
            told = dict(poll.poll(1000))
            return None if self._closing.fileno() in told else []
        try:
            messages, ready = channels.wait(0.02 if busy else 1.0, watched)
        except Unreachable:  # whether what was sent has arrived, nobody knows: it is not sent again
            return None
        if self._closing.fileno() in ready:
            return None
        if self._client.fileno() in ready and not self._hear(channels):
            return None
        return messages

    def _write(self) -> bool:
        try:
            del self._waiting[: self._client.send(bytes(self._waiting[: 1 << 18]))]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def _hear(self, channels: Channels) -> bool:
        try:
            data = self._client.recv(_READ)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            self._ended = True
            return bool(self._sent) or self.settled
        if not self.settled:
            self._sent += data
            if len(self._sent) > _READ:
                self._settle()
        channels.send(DATA, data)
        return True

    def _settle(self) -> None:
        self.settled = True
        self._sent.clear()

    def client_gone(self) -> bool:
        """Whether the client has given up while it waited."""
        try:
            return self._client.recv(1, socket.MSG_PEEK) == b"" and not self._sent
        except BlockingIOError:
            return False
        except OSError:
            return True

    def break_off(self) -> None:
        """Close the connection so that the client sees that it failed."""
        with contextlib.suppress(OSError):
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
