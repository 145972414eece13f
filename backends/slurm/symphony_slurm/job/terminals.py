"""The terminals of processes with the setting ``tty``, which agents hold.

A client connects to the supervisor, which relays what it sends to the agent of the process, and the
output back. The agent gives the terminal a socket that acts for the client; see
`symphony.supervised.supervisor.terminal_server`.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from symphony.supervised.supervisor.event_loop import EventLoop, receive

if TYPE_CHECKING:
    from symphony.supervised.supervisor.children import Children
    from symphony_slurm.job.agent_protocol import Message

# A client that does not read its output is disconnected when this many bytes wait for it.
MAX_WAITING_BYTES = 4 << 20
# The pause before data is sent again that could not be sent.
_RETRY_SECONDS = 0.02
_READ_BYTES = 1 << 15


class AgentConnection(Protocol):
    """The connection to an agent; see `symphony_slurm.job.agents.Agent`."""

    def order(self, order: str, **arguments: Any) -> None:
        """Send an order."""


@dataclass(slots=True, eq=False)
class _Client:
    agent: AgentConnection
    socket: socket.socket
    waiting: bytearray = field(default_factory=bytearray)
    has_left: bool = False


class RemoteTerminals:
    """The clients of terminals on other nodes, on the side of the supervisor."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._clients: dict[int, _Client] = {}
        self._numbers = itertools.count(1)

    def join(
        self, agent: AgentConnection, name: str, client: socket.socket, received: bytes
    ) -> str:
        """Relay a client of the terminal of a process; see `Terminal.join`."""
        number = next(self._numbers)
        self._clients[number] = _Client(agent, client)
        agent.order("join", name=name, client=number)
        if received:
            agent.order("type", client=number, data=_encode(received))
        self._loop.watch(client.fileno(), lambda: self._receive(number))
        return ""

    def _receive(self, number: int) -> None:
        client = self._clients[number]
        data = receive(client.socket, _READ_BYTES)
        if data is None:
            return
        if data:
            client.agent.order("type", client=number, data=_encode(data))
        else:
            self._disconnect(number)

    def show(self, number: int, data: str) -> None:
        """Send output to a client."""
        client = self._clients.get(number)
        if client is None:
            return
        client.waiting += base64.b64decode(data)
        self._send(number)

    def leave(self, number: int) -> None:
        """Disconnect a client, whose terminal was closed, when all output has been sent."""
        client = self._clients.get(number)
        if client is not None:
            client.has_left = True
            self._send(number)

    def leave_agent(self, agent: AgentConnection) -> None:
        """Disconnect the clients of an agent that has exited."""
        for number in [number for number, item in self._clients.items() if item.agent is agent]:
            self.leave(number)

    def _send(self, number: int) -> None:
        client = self._clients.get(number)
        if client is None:
            return
        try:
            while client.waiting:
                del client.waiting[: client.socket.send(client.waiting)]
        except BlockingIOError:
            if len(client.waiting) > MAX_WAITING_BYTES:
                self._disconnect(number)
            else:
                self._loop.after(_RETRY_SECONDS, lambda: self._send(number))
            return
        except OSError:
            self._disconnect(number)
            return
        if client.has_left:
            self._disconnect(number)

    def _disconnect(self, number: int) -> None:
        client = self._clients.pop(number)
        self._loop.unwatch(client.socket.fileno())
        client.socket.close()
        client.agent.order("leave", client=number)


class RemoteTerminal:
    """The terminal of a process on another node; see `JoinableTerminal`."""

    def __init__(self, terminals: RemoteTerminals, agent: AgentConnection, name: str) -> None:
        self._terminals = terminals
        self._agent = agent
        self._name = name

    def join(self, client: socket.socket, received: bytes) -> str:
        """Relay a client; see `JoinableTerminal`."""
        return self._terminals.join(self._agent, self._name, client, received)


class TerminalClients:
    """The clients of the terminals of a node, on the side of its agent."""

    def __init__(
        self, loop: EventLoop, children: Children, send: Callable[[Message], None]
    ) -> None:
        self._loop = loop
        self._children = children
        self._send = send
        self._sockets: dict[int, socket.socket] = {}

    def join(self, name: str, client: int) -> None:
        """Let a client join the terminal of a process. If this fails, report that it has left."""
        terminal = self._children.terminal(name)
        if terminal is None:
            self._send({"event": "left", "client": client})
            return
        own, other = socket.socketpair()
        own.setblocking(False)
        other.setblocking(False)
        self._sockets[client] = own
        self._loop.watch(own.fileno(), lambda: self._relay(client))
        if terminal.join(other, b""):
            other.close()

    def type(self, client: int, data: str) -> None:
        """Send messages of a client to its terminal."""
        own = self._sockets.get(client)
        if own is not None:
            # The terminal reads whenever the loop runs, so the buffer is never full.
            with contextlib.suppress(OSError):
                own.sendall(base64.b64decode(data))

    def leave(self, client: int) -> None:
        """Disconnect a client from its terminal."""
        own = self._sockets.pop(client, None)
        if own is not None:
            self._loop.unwatch(own.fileno())
            own.close()

    def leave_all(self) -> None:
        """Disconnect all clients, which were connected to a supervisor that was killed."""
        for client in list(self._sockets):
            self.leave(client)

    def _relay(self, client: int) -> None:
        data = receive(self._sockets[client], _READ_BYTES)
        if data is None:
            return
        if data:
            self._send({"event": "shown", "client": client, "data": _encode(data)})
        else:
            self.leave(client)
            self._send({"event": "left", "client": client})


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
