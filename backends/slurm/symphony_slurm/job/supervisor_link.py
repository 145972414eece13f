"""The connection of an agent to the supervisors of its run, which can be killed and replaced."""

from __future__ import annotations

import functools
import socket
import threading
import time
from collections.abc import Callable

from symphony.supervised.supervisor.event_loop import EventLoop
from symphony_slurm.job.agent_protocol import AGENT, SUPERVISOR, Channel, ChannelClosed, Message

# How long an agent waits for a new supervisor.
RECONNECT_SECONDS = 30.0
_RETRY_SECONDS = 0.1
_CONNECT_TIMEOUT_SECONDS = 10.0


class SupervisorLink:
    """The connection to the present supervisor.

    If it ends without the order ``finish``, the supervisor was killed. The guardian of the job
    keeps the socket open to which the agent connects, so the agent waits for the next supervisor
    there, and sends it the result of ``introduce``. ``on_messages`` is called with the messages
    that have arrived, and ``on_end`` when there is no supervisor any more.
    """

    def __init__(
        self,
        loop: EventLoop,
        channel: Channel,
        token: bytes,
        *,
        introduce: Callable[[], Message],
        on_messages: Callable[[list[Message]], None],
        on_end: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._address = channel.peer
        self._token = token
        self._introduce = introduce
        self._on_messages = on_messages
        self._on_end = on_end
        self._is_finished = False

    def start(self) -> None:
        """Receive messages from now on."""
        self._loop.watch(self._channel.fileno(), self._receive)

    def send(self, message: Message) -> None:
        """Send a message. Without a supervisor, it is lost; see `Executions`."""
        self._channel.send(message)

    def finish(self) -> None:
        """Wait for no other supervisor when the connection ends."""
        self._is_finished = True

    def _receive(self) -> None:
        try:
            messages = self._channel.receive()
        except ChannelClosed:
            self._loop.unwatch(self._channel.fileno())
            self._channel.close()
            if self._is_finished:
                self._on_end()
            else:
                threading.Thread(target=self._reconnect, daemon=True).start()
            return
        self._on_messages(messages)

    def _reconnect(self) -> None:
        """Wait for the next supervisor, in a thread, because the processes need the agent."""
        deadline = time.monotonic() + RECONNECT_SECONDS
        while time.monotonic() < deadline:
            try:
                connection = socket.create_connection(self._address, _CONNECT_TIMEOUT_SECONDS)
            except ConnectionRefusedError:
                # The guardian has exited, and Slurm ends the job.
                break
            except OSError:
                time.sleep(_RETRY_SECONDS)
                continue
            channel = Channel(connection)
            if channel.prove(self._token, AGENT, SUPERVISOR):
                self._loop.post(functools.partial(self._use, channel))
                return
            channel.close()
            time.sleep(_RETRY_SECONDS)
        self._loop.post(self._on_end)

    def _use(self, channel: Channel) -> None:
        self._channel = channel
        channel.send(self._introduce())
        self.start()
