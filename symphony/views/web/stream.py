"""The stream of server-sent events to one viewer (HTML Living Standard, 9.2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import cast

from starlette.requests import Request
from starlette.types import Message as ServerMessage
from starlette.types import Receive, Scope, Send

from symphony.cluster import Cluster
from symphony.errors import SymphonyError
from symphony.views.web.channels import (
    Channel,
    Channels,
    ExperimentChannel,
    ListChannel,
    OpenWatch,
    OutputChannel,
)
from symphony.views.web.threads import Threads
from symphony.views.web.tunnels import Tunnels
from symphony.views.web.unseen_changes import (
    Message,
    Positions,
    experiment_changes,
    list_changes,
    output_changes,
    parse_positions,
)

# The shortest time between two messages, so that a viewer receives at most 20 per second.
MIN_INTERVAL_SECONDS = 0.05
# A comment is sent if nothing else was, so that proxies keep the connection.
HEARTBEAT_SECONDS = 15.0
# The time after which a browser connects again.
RETRY_MILLISECONDS = 1000
MAX_FIRST_LINES = 10_000

# Returns the cluster of a backend, by its name.
FindCluster = Callable[[str], Cluster]


@dataclass
class Viewing:
    """The state that all viewers of a server share. It belongs to the event loop."""

    find_cluster: FindCluster
    open_list: OpenWatch
    threads: Threads = field(default_factory=Threads)
    channels: Channels = field(default_factory=Channels)
    tunnels: Tunnels = field(default_factory=Tunnels)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    streams: set[asyncio.Event] = field(default_factory=set)

    def stop(self) -> None:
        """End all streams."""
        self.stopping.set()
        for changed in self.streams:
            changed.set()

    def experiment_channel(self, backend: str, experiment: str) -> ExperimentChannel | None:
        """Return the channel of an experiment that a viewer observes, or None."""
        channel = self.channels.open_channels.get(("experiment", backend, experiment))
        return cast("ExperimentChannel | None", channel)


class Stream:
    """The application that sends the changes of an experiment, or of the list of experiments.

    The query contains ``backend`` and ``experiment``, or nothing for the list. With ``output``, the
    stream also contains the output of all processes, or of those that ``process`` names, from the
    last ``lines`` lines of each on.
    """

    def __init__(self, viewing: Viewing) -> None:
        self._viewing = viewing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send changes until the viewer has gone or the server stops."""
        request = Request(scope)
        changed = asyncio.Event()
        self._viewing.streams.add(changed)
        gone = asyncio.create_task(_wait_until_gone(receive, changed))
        try:
            with ExitStack() as stack:
                read = await self._open(request, stack, changed)
                await send(_START)
                await self._send_changes(request, send, read, changed, gone)
        finally:
            gone.cancel()
            self._viewing.streams.discard(changed)

    async def _open(
        self, request: Request, stack: ExitStack, changed: asyncio.Event
    ) -> Callable[[Positions], tuple[Message | None, Positions]]:
        """Open the channels that the viewer wants, and return the function that reads them."""
        loop = asyncio.get_running_loop()
        viewing = self._viewing
        query = request.query_params
        backend, experiment = query.get("backend", ""), query.get("experiment", "")

        def observe(key: tuple[object, ...], create: Callable[[], Channel]) -> Channel:
            channel = stack.enter_context(viewing.channels.viewing(key, create))
            stack.enter_context(channel.signal.waiting(changed))
            return channel

        if not experiment:
            listed = observe(("list",), lambda: ListChannel(loop, viewing.open_list))
            return lambda positions: _read_list(cast(ListChannel, listed), positions)
        try:
            cluster = await viewing.threads.call(lambda: viewing.find_cluster(backend))
        except SymphonyError as exc:
            problem = str(exc)
            return lambda positions: _read_problem(problem, positions)
        observed = observe(
            ("experiment", backend, experiment),
            lambda: ExperimentChannel(loop, cluster, experiment),
        )
        output: OutputChannel | None = None
        first_lines = _count(query.get("lines", ""))
        if "output" in query:
            names = tuple(sorted(set(query.getlist("process"))))
            output = cast(
                OutputChannel,
                observe(
                    ("output", backend, experiment, names, first_lines),
                    lambda: OutputChannel(loop, cluster, experiment, names, first_lines),
                ),
            )
        return lambda positions: _read(
            cast(ExperimentChannel, observed), output, positions, first_lines
        )

    async def _send_changes(
        self,
        request: Request,
        send: Send,
        read: Callable[[Positions], tuple[Message | None, Positions]],
        changed: asyncio.Event,
        gone: asyncio.Task[None],
    ) -> None:
        since = request.headers.get("last-event-id") or request.query_params.get("since", "")
        positions = parse_positions(since)
        await send(_body(f"retry: {RETRY_MILLISECONDS}\n\n"))
        while not gone.done() and not self._viewing.stopping.is_set():
            changed.clear()
            message, positions = read(positions)
            if message is not None:
                # A slow viewer makes this call wait, and then receives only the present state.
                await send(_body(f"id: {positions}\ndata: {json.dumps(message)}\n\n"))
                await asyncio.sleep(MIN_INTERVAL_SECONDS)
            try:
                await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)
            except asyncio.TimeoutError:
                await send(_body(": the server is still there\n\n"))
        await send({"type": "http.response.body", "body": b""})


def _read_list(channel: ListChannel, positions: Positions) -> tuple[Message | None, Positions]:
    message, state = list_changes(channel, positions.state)
    return message, Positions(state)


def _read_problem(problem: str, positions: Positions) -> tuple[Message | None, Positions]:
    """Return the message for a backend that cannot be used, once."""
    if positions.state.channel == "problem":
        return None, positions
    return {"problem": problem}, parse_positions("problem.0.0.0~problem.0.0.0")


def _read(
    channel: ExperimentChannel,
    output: OutputChannel | None,
    positions: Positions,
    first_lines: int,
) -> tuple[Message | None, Positions]:
    message, state = experiment_changes(channel, positions.state)
    if output is None:
        return message, Positions(state, positions.output)
    lines, position = output_changes(output, positions.output, first_lines)
    if lines is not None:
        message = {**(message or {}), "output": lines}
    return message, Positions(state, position)


def _count(text: str) -> int:
    """Return the number of earlier lines that a viewer wants."""
    wanted = int(text) if text.isascii() and text.isdigit() else 1_000
    return min(wanted, MAX_FIRST_LINES)


async def _wait_until_gone(receive: Receive, changed: asyncio.Event) -> None:
    """Wait until the viewer has closed the connection, and wake the stream."""
    while (await receive())["type"] != "http.disconnect":
        pass
    changed.set()


_START: ServerMessage = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream; charset=utf-8")],
}


def _body(text: str) -> ServerMessage:
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}
