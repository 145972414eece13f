"""The resource use of processes on the nodes of a job.

The agents sample the processes of their nodes when the supervisor asks for it. A client outside the
job receives the samples from the supervisor, through a step of the job.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from symphony.errors import NotFound
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.status import StatusReader
from symphony.supervised.supervisor.serving.record_usage import INTERVAL_SECONDS
from symphony.supervised.user_requests.requests import SupervisorLink, open_channel
from symphony.usage import ExperimentUsage

if TYPE_CHECKING:
    from symphony.supervised.usage.sampler import Devices
    from symphony_slurm.job.agent_protocol import Message

_RECEIVE_BYTES = 1 << 16

OnSample = Callable[[ExperimentUsage], None]


class AgentConnection(Protocol):
    """The connection to an agent; see `symphony_slurm.job.agents.Agent`."""

    @property
    def node(self) -> str:
        """The name of the node."""

    @property
    def is_alive(self) -> bool:
        """True while the agent is connected."""

    def order(self, order: str, **arguments: Any) -> None:
        """Send an order."""


# --- in the supervisor ---


class NodeSamples:
    """Joins the samples of all nodes to one sample of the experiment."""

    def __init__(self) -> None:
        self._number = 0
        # The answers of the agents that were asked, or None for those that have not answered yet.
        self._answers: dict[str, ExperimentUsage | None] = {}
        self._on_sample: OnSample = lambda _: None

    def take(
        self,
        leaders: Iterable[tuple[AgentConnection, Mapping[str, ProcessId]]],
        devices: Devices,
        on_sample: OnSample,
    ) -> None:
        """Ask agents for samples. ``on_sample`` is called when all have answered.

        If an agent has not answered the previous time, that sample is completed without it.
        ``leaders`` contains the running processes of each agent.
        """
        self._complete()
        self._number += 1
        self._on_sample = on_sample
        asked = [(agent, own) for agent, own in leaders if agent.is_alive]
        self._answers = {agent.node: None for agent, _ in asked}
        for agent, own in asked:
            agent.order(
                "usage",
                sample=self._number,
                leaders={name: [leader.pid, leader.birth] for name, leader in own.items()},
                devices={name: devices[name] for name in own if name in devices},
            )
        self._complete_if_all_answered()

    def receive(self, agent: AgentConnection, message: Message) -> None:
        """Handle the answer of an agent."""
        if message["sample"] == self._number and agent.node in self._answers:
            self._answers[agent.node] = ExperimentUsage.from_dict(message["usage"])
            self._complete_if_all_answered()

    def _complete_if_all_answered(self) -> None:
        if None not in self._answers.values():
            self._complete()

    def _complete(self) -> None:
        on_sample, self._on_sample = self._on_sample, lambda _: None
        answers, self._answers = self._answers, {}
        parts = [answer for answer in answers.values() if answer is not None]
        unavailable: dict[str, str] = {}
        for part in parts:
            unavailable.update(part.unavailable)
        processes = tuple(usage for part in parts for usage in part.processes)
        on_sample(ExperimentUsage(at=time.time(), processes=processes, unavailable=unavailable))


# --- in a client ---


def follow_usage(
    run: RunDirectory,
    reader: StatusReader,
    make_link: Callable[[], SupervisorLink],
    interval: float,
) -> Iterator[ExperimentUsage]:
    """Yield samples until the experiment has finished or was deleted.

    ``run`` is pinned. While the job waits, the samples contain no process.
    """
    while run.is_current():
        try:
            status = reader.read()
        except NotFound:
            return
        if status.ended and not reader.waits_for_start:
            return
        if reader.is_supervised():
            yield from _received(run, make_link(), interval)
        else:
            yield ExperimentUsage(at=time.time())
            time.sleep(interval)


def _received(
    run: RunDirectory, link: SupervisorLink, interval: float
) -> Iterator[ExperimentUsage]:
    """Yield the samples of a supervisor until it exits."""
    next_time = 0.0
    with open_channel(run, {"request": "usage"}, link=link) as (channel, received):
        for line in _lines(channel, received):
            now = time.monotonic()
            # The supervisor has an interval of its own.
            if now >= next_time - INTERVAL_SECONDS / 2:
                next_time = now + interval
                yield ExperimentUsage.from_dict(json.loads(line))


def _lines(channel: socket.socket, received: bytes) -> Iterator[bytes]:
    while True:
        *lines, received = received.split(b"\n")
        yield from lines
        try:
            data = channel.recv(_RECEIVE_BYTES)
        except ConnectionError:
            return
        if not data:
            return
        received += data
