"""The connections of a supervisor to the agents on the nodes of its job."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symphony.plan.state import Track
from symphony.status import State
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.note import NoteWriter
from symphony_slurm.job.agent_protocol import Channel, ChannelClosed, Message
from symphony_slurm.job.agent_returns import AgentReturns
from symphony_slurm.job.node_usage import NodeSamples
from symphony_slurm.run_files import LOST_AGENTS_FILE

if TYPE_CHECKING:
    from symphony.supervised.supervisor.execution.stopper import StopOrder

# An agent answers within milliseconds. An agent that does not answer within this time is considered
# dead, so that the supervisor can stop the other processes.
ANSWER_TIMEOUT_SECONDS = 60.0
# How long a new agent waits for the end of the connection of the one that was killed.
_DRAIN_SECONDS = 1.0
# The clocks of the nodes can differ by this time.
_CLOCK_ERROR_SECONDS = 1.0


class Agent:
    """The connection to the agent of one node.

    If the agent is killed, its guardian starts another one, which connects again and receives the
    orders that were given in the meantime. Only a caller that needs an answer waits for it.
    ``is_alive`` becomes false if no agent comes. ``gpus`` contains the identifiers of the node's
    GPUs that belong to the job, and ``temporary_directory`` is the node's directory for temporary
    files of the job.
    """

    def __init__(self, channel: Channel, hello: Message) -> None:
        self.channel = channel
        self.node: str = hello["node"]
        self.host: str = hello["host"]
        self.rank: int = hello["rank"]
        self.gpus: list[str] = hello["gpus"]
        self.temporary_directory: str = hello["temporary_directory"]
        # A new supervisor continues with these executions; see `symphony_slurm.job.executions`.
        self.executions: dict[str, Message] = {
            item["name"]: item for item in hello.get("executions", ())
        }
        self.is_evicted: bool = hello.get("evicted", False)
        # True if the agent does not know its processes, because it replaces one that was killed.
        self.is_new: bool = hello.get("replaces", False)
        # False if the node has failed.
        self.is_alive = True
        self._numbers = itertools.count(1)
        # The orders that could not be sent, and those that have not been answered, in order.
        self._undone: list[Message] = []
        # This function is called when messages are pending, because no more data may arrive.
        self.on_pending: Callable[[], None] = lambda: None
        # This function waits for a new agent, and returns whether there is one.
        self.wait_for_return: Callable[[], bool] = lambda: False

    @classmethod
    def lost(cls, rank: int, node: Mapping[str, Any]) -> Agent:
        """Return the agent of a node that was lost before a new supervisor was connected.

        ``node`` contains the values of a `symphony_slurm.job.placement.Node`.
        """
        channel = Channel(socket.socket())
        channel.close()
        values = {key: value for key, value in node.items() if key != "name"}
        agent = cls(channel, {**values, "node": node["name"], "rank": rank})
        agent.is_alive = False
        return agent

    def replace(self, channel: Channel) -> None:
        """Use the connection of a new agent. The messages of the killed one remain pending."""
        with contextlib.suppress(ChannelClosed):
            while self.channel.is_open and self.channel.wait(_DRAIN_SECONDS):
                self.channel.pending.extend(self.channel.receive())
        self.channel.close()
        channel.pending.extend(self.channel.pending)
        self.channel = channel

    def send_again(self) -> None:
        """Send a new agent the orders that a killed one has not received or has not answered."""
        pending = self.channel.pending
        answered = {message["number"] for message in pending if message["event"] == "answer"}
        for message in list(self._undone):
            if "number" not in message:
                self._undone.remove(message)
                self._send(message)
            elif message["number"] not in answered:
                self.channel.send(message)

    def order(self, order: str, **arguments: Any) -> None:
        """Send an order. If the agent was killed, the next one receives it."""
        self._send({"order": order, **arguments})

    def ask(self, order: str, **arguments: Any) -> int:
        """Send an order that is answered, and return the number of the answer."""
        number = next(self._numbers)
        message = {"order": order, "number": number, **arguments}
        self._undone.append(message)
        self.channel.send(message)
        return number

    def _send(self, message: Message) -> None:
        self.channel.send(message)
        if not self.channel.is_open and self.is_alive:
            # The agent has not received the whole message.
            self._undone.append(message)
            self.on_pending()

    def answer(self, number: int) -> Any:
        """Wait for an answer, and return it. Return None if the node fails or does not answer."""
        message = self.wait_for("answer", number=number)
        self._undone = [item for item in self._undone if item.get("number") != number]
        return None if message is None else message["value"]

    def wait_for(self, event: str, **fields: Any) -> Message | None:
        """Wait for a message, and return it. Other messages remain pending.

        Return None if the node fails, or does not answer in time.
        """

        def matches(message: Message) -> bool:
            return message["event"] == event and fields.items() <= message.items()

        return self.wait_for_match(matches)

    def wait_for_match(self, matches: Callable[[Message], bool]) -> Message | None:
        """Wait for the first message for which ``matches`` returns true; see `wait_for`."""
        try:
            return self._find_match(matches)
        finally:
            if self.channel.pending or not self.channel.is_open:
                self.on_pending()

    def _find_match(self, matches: Callable[[Message], bool]) -> Message | None:
        deadline = time.monotonic() + ANSWER_TIMEOUT_SECONDS
        while True:
            pending = self.channel.pending
            for message in pending:
                if matches(message):
                    pending.remove(message)
                    return message
            if not self.channel.is_open:
                if self.is_alive and self.wait_for_return():
                    continue
                return None
            if not self.channel.wait(deadline - time.monotonic()):
                self.channel.is_open = self.is_alive = False
                return None
            with contextlib.suppress(ChannelClosed):
                pending.extend(self.channel.receive())


@dataclass(frozen=True, slots=True)
class StopInProgress:
    """An order to stop a process, whose programs are killed at the time ``kill_at``."""

    spec: ProcessSpec
    process: ProcessId
    order: StopOrder
    kill_at: float

    def message(self) -> Message:
        """Return the order with the remaining time."""
        grace = max(0.0, self.kill_at - time.monotonic())
        return {
            "order": "stop",
            "name": self.spec.name,
            "pid": self.process.pid,
            "birth": self.process.birth,
            "stop": {**self.order.to_dict(), "grace": grace},
        }


class Agents:
    """The agents of a job. ``all`` contains them in the order of the slots.

    ``slots`` maps process names to slots. ``returns`` accepts the agents that replace killed ones.
    """

    def __init__(
        self, agents: Sequence[Agent], slots: Mapping[str, int], returns: AgentReturns
    ) -> None:
        self.all = sorted(agents, key=lambda agent: agent.rank)
        self.returns = returns
        self._slots = dict(slots)
        # The variables and limits that each new agent receives.
        self.env: dict[str, str] | None = None
        self.limits: dict[str, int] = {}
        # The note of the supervisor, which shows what the agents report.
        self.notes: NoteWriter | None = None
        self.stops: dict[str, StopInProgress] = {}
        # The process groups that have running members.
        self.groups: set[tuple[str, int]] = set()
        # The processes that agents are stopping.
        self.stopping: set[str] = set()
        # The processes that a killed supervisor has begun to stop.
        self.asked_to_exit: set[ProcessId] = set()
        # Tests of processes whose results have not arrived.
        self.tests: dict[int, ProcessTest] = {}
        # What to do when programs have exited, by their processes and their pids.
        self.watched: dict[tuple[str, int], Callable[[], None]] = {}
        self.usage = NodeSamples()
        # This function is called when Slurm has sent SIGTERM to all processes of a node.
        self.on_eviction: Callable[[], None] = lambda: None
        # This function is called with the name of a node whose agent was replaced.
        self.on_replaced: Callable[[str], None] = lambda _node: None

    def take_over(self, hellos: Iterable[tuple[Agent, Message]]) -> None:
        """Use what the agents have told a supervisor that replaces another one."""
        for agent, hello in hellos:
            self.groups.update((agent.node, group) for group in hello.get("groups", ()))
            for name, (pid, birth) in hello.get("stopping", {}).items():
                self.stopping.add(name)
                self.asked_to_exit.add(ProcessId(int(pid), birth))

    def of(self, name: str) -> Agent:
        """Return the agent of a process."""
        return self.all[self._slots[name]]

    def at(self, address: str) -> list[Agent]:
        """Return the agent of the node with an address ``host:port``, or an empty list."""
        host = address.rpartition(":")[0]
        return [agent for agent in self.all if agent.host == host]

    def place(self, slots: Mapping[str, int]) -> None:
        """Add the slots of new processes. Removed processes keep theirs until they have exited."""
        self._slots.update(slots)

    def prepare(self, env: Mapping[str, str]) -> None:
        """Send the variables that all processes share."""
        self.env = dict(env)
        for agent in self.all:
            agent.order("prepare", env=self.env)

    def note(self, agent: Agent, topic: str, message: str) -> None:
        """Show a message about a node in the note of the supervisor."""
        if self.notes is not None:
            self.notes.set(f"{agent.node} {topic}", message)

    def inform(
        self, agent: Agent, specs: Iterable[ProcessSpec], tracks: Mapping[str, Track]
    ) -> None:
        """Let an agent find its processes, because it was killed at the same time as its
        supervisor.
        """
        executions: list[Message] = []
        groups: list[int] = []
        for spec in specs:
            track = tracks[spec.name]
            if track.pid is not None or track.state is State.PENDING:
                executions.append(execution_of(spec, track.pid, track.birth, track.ended))
            if track.pid is None and track.group is not None:
                groups.append(track.group)
        number = agent.ask("adopt", processes=executions, groups=groups, start=[])
        found = agent.answer(number)
        if found is None:
            return
        agent.executions = {item["name"]: item for item in found["executions"]}
        self.groups.update((agent.node, group) for group in found["groups"])
        asked = [agent.executions[name] for name in found["asked_to_exit"]]
        self.asked_to_exit.update(identity_of(item) for item in asked)

    def end_stop(self, name: str) -> None:
        """Note that a process was stopped completely."""
        self.stopping.discard(name)
        self.stops.pop(name, None)

    def note_gone(self, agent: Agent, message: Message) -> None:
        """Note that programs have exited which do not report exits themselves."""
        if message["event"] == "stopped":
            self.end_stop(message["name"])
        elif message["event"] == "group-gone":
            self.groups.discard((agent.node, message["pid"]))
        else:
            on_exit = self.watched.pop((message["name"], message["pid"]), None)
            if on_exit is not None:
                on_exit()


@dataclass(slots=True)
class ProcessTest:
    """A test of a process that an agent runs. Its result is None until it arrives."""

    done: threading.Event
    result: str | None = None


def execution_of(
    spec: ProcessSpec, pid: int | None, birth: float | None, ended: float | None = None
) -> Message:
    """Return what a new agent has to know about a process.

    ``pid`` is None if its start was not reported. Then it was started after the time ``ended``.
    """
    since = 0.0 if ended is None else ended - _CLOCK_ERROR_SECONDS
    return {"spec": spec.to_dict(), "pid": pid, "birth": birth, "ended": since}


def identity_of(execution: Message) -> ProcessId:
    """Return the identity of the process in the description of an execution."""
    return ProcessId(execution["pid"], execution["birth"])


def note_lost(run: RunDirectory, rank: int) -> None:
    """Note in the run directory that an agent was lost, so that no new supervisor waits for it."""
    with contextlib.suppress(OSError), run.file(LOST_AGENTS_FILE).open("a") as file:
        file.write(f"{rank}\n")


def lost_agents(run: RunDirectory) -> set[int]:
    """Return the ranks of the agents that were lost."""
    try:
        return {int(line) for line in run.file(LOST_AGENTS_FILE).read_text().split()}
    except (OSError, ValueError):
        return set()


def own_node() -> str:
    """Return Slurm's name of this node."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename
