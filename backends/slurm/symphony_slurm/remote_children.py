"""The processes of a supervisor whose agents run on other nodes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.plan.state import Track
from symphony.status import State
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.note import NoteWriter
from symphony.supervised.resources.leases import CLOSED_CONNECTIONS
from symphony.supervised.supervisor.children import ExitCallback, StartRefused
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.execution.probes import Probe, make_probe
from symphony.supervised.supervisor.execution.readiness import NOT_FINISHED
from symphony.supervised.supervisor.process_host import port_of
from symphony_slurm.job.agent_protocol import Channel, ChannelClosed, Message
from symphony_slurm.job.agent_returns import RETURN_SECONDS, AgentReturns
from symphony_slurm.job.node_usage import NodeSamples
from symphony_slurm.job.terminals import RemoteTerminal, RemoteTerminals
from symphony_slurm.run_files import LOST_AGENTS_FILE

if TYPE_CHECKING:
    from symphony.line_search import SearchProcess
    from symphony.supervised.supervisor.execution.stopper import StopOrder
    from symphony.supervised.usage.sampler import Devices
    from symphony.usage import ExperimentUsage

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
class _Stop:
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
        self.stops: dict[str, _Stop] = {}
        # The process groups that have running members.
        self.groups: set[tuple[str, int]] = set()
        # The processes that agents are stopping.
        self.stopping: set[str] = set()
        # The processes that a killed supervisor has begun to stop.
        self.asked_to_exit: set[ProcessId] = set()
        # Tests of readiness whose results have not arrived.
        self.tests: dict[int, _Test] = {}
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
                executions.append(_execution(spec, track.pid, track.birth, track.ended))
            if track.pid is None and track.group is not None:
                groups.append(track.group)
        number = agent.ask("adopt", processes=executions, groups=groups, start=[])
        found = agent.answer(number)
        if found is None:
            return
        agent.executions = {item["name"]: item for item in found["executions"]}
        self.groups.update((agent.node, group) for group in found["groups"])
        asked = [agent.executions[name] for name in found["asked_to_exit"]]
        self.asked_to_exit.update(_identity(item) for item in asked)

    def end_stop(self, name: str) -> None:
        """Note that a process was stopped completely."""
        self.stopping.discard(name)
        self.stops.pop(name, None)


@dataclass(slots=True)
class _Test:
    """A test of readiness that an agent runs."""

    done: threading.Event
    result: str = NOT_FINISHED


@dataclass(frozen=True, slots=True)
class RemoteChild:
    """A process on another node."""

    name: str
    pid: int
    birth: float
    has_terminal: bool


class RemoteChildren:
    """The processes of the agents; see `symphony.supervised.supervisor.children.Children`.

    ``recorded`` contains the processes whose starts a killed supervisor has recorded.
    """

    def __init__(
        self,
        loop: EventLoop,
        run: RunDirectory,
        on_exit: ExitCallback,
        *,
        agents: Agents,
        recorded: Collection[ProcessId] = (),
    ) -> None:
        self._loop = loop
        self._run = run
        self._recorded = recorded
        self._on_exit = on_exit
        self._agents = agents
        self._running: dict[str, RemoteChild] = {}
        # The latest descriptions of processes that were started, and when their executions ended.
        self._specs: dict[str, ProcessSpec] = {}
        self._ended: dict[str, float] = {}
        # The processes whose starts agents have not reported yet.
        self._starting: dict[str, ProcessSpec] = {}
        # How long to wait for new agents, by the ranks of killed ones.
        self._away: dict[int, float] = {}
        # The ranks of the agents whose loss was reported.
        self._lost: set[int] = set()
        self._terminals = RemoteTerminals(loop)
        agents.returns.on_arrival = lambda: loop.post(self._handle_arrivals)
        for agent in agents.all:
            agent.on_pending = lambda: loop.post(self._handle_pending)
            agent.wait_for_return = functools.partial(self._wait_for_return, agent)
            if agent.channel.is_open:
                self._watch(agent)
        # An agent can have been killed since the others were connected.
        loop.post(self._handle_pending)

    def __len__(self) -> int:
        return len(self._running)

    def get(self, name: str) -> RemoteChild | None:
        """Return the running child called ``name``, or None if there is none."""
        return self._running.get(name)

    def keep_terminals(self, is_needed: Callable[[str], bool]) -> None:
        """Do nothing, as in `LocalChildren`, which the agents use."""

    def terminal(self, name: str) -> RemoteTerminal | None:
        """Return the terminal of a running child, or None if it has none."""
        child = self._running.get(name)
        if child is None or not child.has_terminal:
            return None
        return RemoteTerminal(self._terminals, self._agents.of(name), name)

    def start(
        self, processes: Iterable[ProcessSpec], env: Mapping[str, str]
    ) -> Iterator[tuple[ProcessSpec, RemoteChild | OSError]]:
        """Start processes; see `symphony.supervised.supervisor.children.Children`.

        The agents have received the variables that all processes share.
        """
        del env
        specs = list(processes)
        batches: dict[str, list[dict[str, Any]]] = {}
        for spec in specs:
            agent = self._agents.of(spec.name)
            batches.setdefault(agent.node, []).append(spec.to_dict())
            self._starting[spec.name] = self._specs[spec.name] = spec
        for agent in self._agents.all:
            if agent.node in batches:
                # If the agent was killed, the next one starts the processes; see `_take_back`.
                agent.channel.send({"order": "start", "specs": batches[agent.node]})
        try:
            for spec in specs:
                yield spec, self._wait_for_start(spec)
        finally:
            for spec in specs:
                self._starting.pop(spec.name, None)

    def _wait_for_start(self, spec: ProcessSpec) -> RemoteChild | OSError:
        agent, name = self._agents.of(spec.name), spec.name

        def matches(message: Message) -> bool:
            return message["event"] in ("started", "refused") and message["name"] == name

        message = agent.wait_for_match(matches)
        self._starting.pop(name, None)
        if message is None:
            return StartRefused(f"node {agent.node} has failed", f"node {agent.node} has failed")
        if message["event"] == "refused":
            kind = StartRefused if message["is_final"] else OSError
            return kind(message["errno"], message["text"], message["file"])
        child = RemoteChild(name, message["pid"], message["birth"], spec.tty)
        self._running[name] = child
        self._agents.groups.add((agent.node, child.pid))
        return child

    # --- messages ---

    def _receive(self, agent: Agent) -> None:
        # The end of the connection is handled with the messages that have arrived before.
        with contextlib.suppress(ChannelClosed):
            agent.channel.pending.extend(agent.channel.receive())
        self._handle_pending()

    def _handle_pending(self) -> None:
        for agent in self._agents.all:
            while agent.channel.pending:
                self._handle(agent, agent.channel.pending.popleft())
            if not agent.channel.is_open:
                self._note_closed(agent)
            if not agent.is_alive and agent.rank not in self._lost:
                self._handle_lost(agent)

    def _handle(self, agent: Agent, message: Message) -> None:
        event = message["event"]
        if event == "exited":
            self._handle_exited(agent, message)
        elif event == "stopped":
            self._agents.end_stop(message["name"])
        elif event == "group-gone":
            self._agents.groups.discard((agent.node, message["pid"]))
        elif event == "tested":
            self._handle_tested(message)
        elif event == "usage":
            self._agents.usage.receive(agent, message)
        elif event == "evicted":
            self._agents.on_eviction()
        elif event == "shown":
            self._terminals.show(message["client"], message["data"])
        elif event == "left":
            self._terminals.leave(message["client"])
        elif event == "note":
            self._agents.note(agent, message["topic"], message["message"])

    def _handle_exited(self, agent: Agent, message: Message) -> None:
        name = message["name"]
        child = self._running.get(name)
        if not message["has_group"]:
            self._agents.groups.discard((agent.node, message["pid"]))
        # A new agent can report an exit again that the killed one has reported.
        if child is not None and child.pid == message["pid"]:
            del self._running[name]
            self._ended[name] = time.time()
            self._on_exit(child, message["code"], message["reason"], message["log_bytes"])

    def _handle_tested(self, message: Message) -> None:
        test = self._agents.tests.pop(message["test"], None)
        if test is not None:
            test.result = message["result"]
            test.done.set()

    def _handle_lost(self, agent: Agent) -> None:
        """Report the processes of a node that has failed, or whose agent cannot be replaced."""
        self._lost.add(agent.rank)
        note_lost(self._run, agent.rank)
        self._agents.groups = {group for group in self._agents.groups if group[0] != agent.node}
        for name in [name for name in self._agents.stopping if self._agents.of(name) is agent]:
            self._agents.end_stop(name)
        self._terminals.leave_agent(agent)
        lost = [name for name in self._running if self._agents.of(name) is agent]
        for name in lost:
            child = self._running.pop(name)
            self._on_exit(child, None, f"node {agent.node} or its agent has failed")

    # --- agents that were killed ---

    def _watch(self, agent: Agent) -> None:
        self._loop.watch(agent.channel.fileno(), lambda: self._receive(agent))

    def _unwatch(self, agent: Agent) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._loop.unwatch(agent.channel.fileno())

    def _note_closed(self, agent: Agent) -> None:
        """Expect a new agent in place of one that has exited, unless its node has failed."""
        self._unwatch(agent)
        if agent.channel.is_unreachable:
            agent.is_alive = False
        if not agent.is_alive or agent.rank in self._away:
            return
        self._away[agent.rank] = time.monotonic() + RETURN_SECONDS
        channel = agent.channel

        def give_up() -> None:
            if agent.channel is channel:
                agent.is_alive = False
                self._handle_pending()

        self._agents.returns.expect()
        self._loop.after(RETURN_SECONDS, give_up)

    def _wait_for_return(self, agent: Agent) -> bool:
        """Wait for a new agent, and return whether there is one."""
        self._note_closed(agent)
        while agent.is_alive and not agent.channel.is_open:
            arrival = self._agents.returns.take(self._away[agent.rank] - time.monotonic())
            if arrival is None:
                agent.is_alive = False
                self._loop.post(self._handle_pending)
            else:
                self._take_back(*arrival)
        return agent.is_alive

    def _handle_arrivals(self) -> None:
        while True:
            arrival = self._agents.returns.take()
            if arrival is None:
                return
            self._take_back(*arrival)

    def _take_back(self, channel: Channel, hello: Message) -> None:
        """Let a new agent continue the work of one that was killed.

        It cannot know the processes of the killed one, so it receives what this supervisor knows.
        """
        agent = next((item for item in self._agents.all if item.rank == hello["rank"]), None)
        if agent is None or not agent.is_alive:
            # Its processes count as lost. Slurm ends them when it exits.
            channel.send({"order": "finish"})
            channel.close()
            return
        self._unwatch(agent)
        agent.replace(channel)
        self._away.pop(agent.rank, None)
        self._terminals.leave_agent(agent)
        if self._agents.env is not None:
            channel.send({"order": "prepare", "env": self._agents.env})
            channel.send({"order": "limits", "limits": self._agents.limits})
            channel.send(self._adoption(agent))
        for name in [name for name in self._agents.stopping if self._agents.of(name) is agent]:
            stop = self._agents.stops.get(name)
            if stop is None:
                # A killed supervisor has ordered it, and this one has not continued it.
                self._agents.stopping.discard(name)
            else:
                channel.send(stop.message())
        agent.send_again()
        text = f"the agent of node {agent.node} was killed, and another one continues its work"
        self._agents.note(agent, "killed", text)
        self._loop.post(functools.partial(self._agents.on_replaced, agent.node))
        self._watch(agent)
        self._loop.post(self._handle_pending)

    def _adoption(self, agent: Agent) -> Message:
        """Return the order to take over the processes of an agent that was killed."""
        # The exits and starts that it has reported, and this supervisor has not handled yet.
        exited = {item["pid"] for item in agent.channel.pending if item["event"] == "exited"}
        answered = {
            item["name"]: item
            for item in agent.channel.pending
            if item["event"] in ("started", "refused") and item["name"] in self._starting
        }
        processes: dict[str, Message] = {}
        for name, stop in self._agents.stops.items():
            processes[name] = _execution(stop.spec, stop.process.pid, stop.process.birth)
        for name, child in self._running.items():
            if child.pid not in exited:
                processes[name] = _execution(self._specs[name], child.pid, child.birth)
        for name, item in answered.items():
            if item["event"] == "started":
                processes[name] = _execution(self._specs[name], item["pid"], item["birth"])
        missing = [name for name in self._starting if name not in answered]
        for name in missing:
            processes[name] = _execution(self._specs[name], None, None, self._ended.get(name))
        own = {name: item for name, item in processes.items() if self._agents.of(name) is agent}
        pids = {item["pid"] for item in own.values()}
        groups = [group for node, group in self._agents.groups if node == agent.node]
        return {
            "order": "adopt",
            "processes": list(own.values()),
            "groups": [group for group in groups if group not in pids],
            "start": [name for name in missing if name in own],
        }

    def change(self, names: Sequence[str], env: Mapping[str, str]) -> None:
        """Prepare to start processes of a changed experiment; see `Children`."""
        del names
        self._agents.place(self._run.load_manifest(is_new=True)["slots"])
        self._agents.prepare(env)

    # --- processes of a killed supervisor ---

    def adopt(
        self, processes: Iterable[ProcessSpec], tracks: Mapping[str, Track]
    ) -> list[RemoteChild]:
        """Take over the processes of a killed supervisor, as their agents have described them."""
        adopted = []
        specs = list(processes)
        for agent in self._agents.all:
            if agent.is_new:
                own = [spec for spec in specs if self._agents.of(spec.name) is agent]
                self._agents.inform(agent, own, tracks)
        for spec in specs:
            self._specs[spec.name] = spec
            track = tracks[spec.name]
            found = self._agents.of(spec.name).executions.get(spec.name)
            if track.pid is not None and track.birth is not None:
                child = RemoteChild(spec.name, track.pid, track.birth, spec.tty)
                is_same = found is not None and _identity(found) == ProcessId(
                    child.pid, child.birth
                )
            elif track.state is State.PENDING and found is not None:
                child = RemoteChild(spec.name, found["pid"], found["birth"], found["has_terminal"])
                is_same = ProcessId(child.pid, child.birth) not in self._recorded
                if not is_same:
                    continue
            else:
                continue
            self._running[spec.name] = child
            adopted.append(child)
            if found is None or not is_same:
                self._loop.post(functools.partial(self._report_lost, child))
            elif found["exit"] is not None:
                agent = self._agents.of(spec.name)
                self._loop.post(functools.partial(self._handle_exited, agent, found["exit"]))
        return adopted

    def _report_lost(self, child: RemoteChild) -> None:
        self._running.pop(child.name, None)
        node = self._agents.of(child.name).node
        self._on_exit(child, None, f"node {node} or its agent has failed")

    # --- what remote processes do not support ---

    def remove(self, name: str) -> None:
        """Do nothing: a process leaves nothing behind."""

    def discard(self) -> None:
        """Do nothing: a process leaves nothing behind."""


class RemoteHost:
    """The nodes of a job; see `symphony.supervised.supervisor.process_host.ProcessHost`.

    The agents report the members of process groups, so that no signal needs an answer.
    """

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        # An agent can still run tests of a supervisor that was killed.
        self._test_numbers = itertools.count(time.time_ns())
        self._loop: EventLoop | None = None

    @property
    def is_remote(self) -> bool:
        """True: the nodes belong to the job, and their agents read the secrets."""
        return True

    def reserve_addresses(
        self, addresses: Collection[str], accepted: Collection[int]
    ) -> Mapping[str, str]:
        """Reserve the ports of addresses on their nodes; see `ProcessHost`."""
        preferred = [address for address in addresses if port_of(address) not in accepted]
        found = [
            (address, agent, agent.ask("avoid", port=port_of(address)))
            for address in preferred
            for agent in self._agents.at(address)
        ]
        avoided = [
            (address, agent.node) for address, agent, number in found if agent.answer(number)
        ]
        if avoided:
            return {address: f"{CLOSED_CONNECTIONS} on node {node}" for address, node in avoided}
        asked = [
            (address, agent, agent.ask("reserve", port=port_of(address)))
            for address in addresses
            for agent in self._agents.at(address)
        ]
        reasons = {address: _reason(agent, number) for address, agent, number in asked}
        unavailable = {address: reason for address, reason in reasons.items() if reason}
        if unavailable:
            self.release_addresses(set(reasons) - set(unavailable))
        return unavailable

    def release_addresses(self, addresses: Collection[str]) -> None:
        """Release the ports of addresses on their nodes; see `ProcessHost`."""
        for address in addresses:
            for agent in self._agents.at(address):
                agent.order("release", port=port_of(address))

    def replace_port(
        self, address: str, port_range: tuple[int, int]
    ) -> tuple[int, Mapping[int, int]] | None:
        """Reserve another port for an address on its node; see `ProcessHost`."""
        for agent in self._agents.at(address):
            number = agent.ask("replace_port", port=port_of(address), port_range=port_range)
            port = agent.answer(number)
            if port is not None:
                return port, {}
        return None

    def signal_group(self, name: str, group: int, number: int) -> bool:
        """Send a signal to a process group. Return False if it has no members."""
        agent = self._agents.of(name)
        if (agent.node, group) not in self._agents.groups:
            return False
        if number:
            agent.order("signal_group", name=name, group=group, signal=int(number))
        return True

    def begin_stop(
        self,
        loop: EventLoop,
        spec: ProcessSpec,
        process: ProcessId,
        order: StopOrder,
        env: Mapping[str, str],
        on_problem: Callable[[str], None],
    ) -> None:
        """Let the agent stop a process; see `ProcessHost`. The agent reports problems in notes."""
        del loop, env, on_problem
        agent = self._agents.of(spec.name)
        if agent.is_alive:
            previous = self._agents.stops.get(spec.name)
            kill_at = time.monotonic() + order.grace
            if previous is not None and previous.process == process:
                kill_at = min(kill_at, previous.kill_at)
            self._agents.stopping.add(spec.name)
            self._agents.stops[spec.name] = _Stop(spec, process, order, kill_at)
            agent.order(
                "stop",
                name=spec.name,
                pid=process.pid,
                birth=process.birth,
                stop=order.to_dict(),
            )

    def was_asked_to_exit(self, process: ProcessId) -> bool:
        """Return whether a process was asked to exit, as its agent has reported."""
        return process in self._agents.asked_to_exit

    def is_stopping(self, name: str) -> bool:
        """Return whether the agent has not reported that a process was stopped completely."""
        return name in self._agents.stopping

    def handle_exit(self, name: str, process: ProcessId) -> bool | None:
        """Return whether programs of a process may be running. The agent has observed the exit."""
        del process
        return True if self.is_stopping(name) else None

    def is_group_of_run(self, group: int, leaders: Mapping[str, ProcessId]) -> bool:
        """Return whether an agent has reported that a process group has members."""
        del leaders
        return any(number == group for _, number in self._agents.groups)

    def send_signals(
        self, processes: Mapping[str, ProcessId], number: signal.Signals, *, force: bool
    ) -> Mapping[str, str]:
        """Send a signal to processes; see `ProcessHost`.

        The agents first report whether the signal can be sent, because otherwise nothing is sent.
        """
        problems = self._ask_signals(processes, number, force=force, dry_run=True)
        if problems:
            return problems
        return self._ask_signals(processes, number, force=True, dry_run=False)

    def _ask_signals(
        self,
        processes: Mapping[str, ProcessId],
        number: signal.Signals,
        *,
        force: bool,
        dry_run: bool,
    ) -> dict[str, str]:
        by_agent: dict[Agent, dict[str, list[float]]] = {}
        for name, process in processes.items():
            own = by_agent.setdefault(self._agents.of(name), {})
            own[name] = [process.pid, process.birth]
        asked = [
            (
                agent,
                own,
                agent.ask("signal", leaders=own, signal=int(number), force=force, dry_run=dry_run),
            )
            for agent, own in by_agent.items()
        ]
        problems: dict[str, str] = {}
        for agent, own, answer in asked:
            found = agent.answer(answer)
            lost = dict.fromkeys(own, f"node {agent.node} has failed")
            problems.update(lost if found is None else found)
        return problems

    def is_running(self, name: str, process: ProcessId) -> bool:
        """Return whether the process group of a process has members, as its agent has reported."""
        return (self._agents.of(name).node, process.pid) in self._agents.groups

    def stop_strays(
        self,
        leaders: Mapping[str, ProcessId],
        *,
        kill: bool,
        owners: Collection[str] | None = None,
        spares_commands: bool = False,
    ) -> bool:
        """Stop processes that have left their process groups, on all nodes at the same time."""
        answers = []
        for agent in self._agents.all:
            own = {
                name: [leader.pid, leader.birth]
                for name, leader in leaders.items()
                if self._agents.of(name) is agent
            }
            wanted = None if owners is None else list(owners)
            number = agent.ask(
                "stop_strays",
                leaders=own,
                kill=kill,
                owners=wanted,
                spares_commands=spares_commands,
            )
            answers.append((agent, number))
        found = [agent.answer(number) for agent, number in answers]
        return any(found)

    def stray_owners(self, leaders: Mapping[str, ProcessId]) -> set[str]:
        """Return the owners of processes that have left their groups; see `ProcessHost`."""
        answers = []
        for agent in self._agents.all:
            own = {
                name: [leader.pid, leader.birth]
                for name, leader in leaders.items()
                if self._agents.of(name) is agent
            }
            answers.append((agent, agent.ask("stray_owners", leaders=own)))
        found: set[str] = set()
        for agent, number in answers:
            found.update(agent.answer(number) or ())
        return found

    def has_descendants(self, name: str, leaders: Mapping[str, ProcessId]) -> bool:
        """Return False, because the GPUs belong to the job and not to other experiments."""
        del name, leaders
        return False

    def sample_usage(
        self,
        leaders: Mapping[str, ProcessId],
        devices: Devices,
        on_sample: Callable[[ExperimentUsage], None],
    ) -> None:
        """Sample the resource use on all nodes; see `ProcessHost`."""
        by_agent: dict[Agent, dict[str, ProcessId]] = {}
        for name, leader in leaders.items():
            agent = self._agents.of(name)
            # A sample is not worth waiting for a new agent.
            if agent.channel.is_open:
                by_agent.setdefault(agent, {})[name] = leader
        self._agents.usage.take(by_agent.items(), devices, on_sample)

    def record_logs(
        self, loop: EventLoop, run: RunDirectory, limits: Mapping[str, int], notes: NoteWriter
    ) -> RemoteLogs:
        """Return the recorder of the logs. The agents record them from the start."""
        del run
        self._agents.notes = notes
        self._loop = loop
        recorder = RemoteLogs(self._agents)
        recorder.set_limits(limits)
        return recorder

    def make_probe(
        self,
        spec: ProcessSpec,
        process: ProcessId,
        log: Path,
        log_start: int,
        env: Mapping[str, str],
        search_process: SearchProcess | None,
    ) -> Probe:
        """Return the readiness probe of a process.

        The command of a test runs on the node of the process, and the agent checks whether the
        process itself serves a port.
        """
        del process
        if "command" in (spec.ready or {}):
            return Probe(lambda timeout: self._run_test(spec.name, timeout))

        def test(timeout: float) -> str:
            return probe.test(timeout) or self._run_test(spec.name, timeout)

        probe = make_probe(spec, log, log_start, env, search_process)
        if "log" in (spec.ready or {}):
            return probe
        return Probe(test, probe.hint, probe.close)

    def _run_test(self, name: str, timeout: float) -> str:
        """Let the agent test whether a process is ready, and return the result.

        The caller is a thread of its own.
        """
        loop = self._loop
        if loop is None:
            return NOT_FINISHED
        test = _Test(threading.Event())
        number = next(self._test_numbers)

        def order() -> None:
            agent = self._agents.of(name)
            # Without an agent, the test has no result in time, and is repeated.
            if agent.channel.is_open:
                self._agents.tests[number] = test
                agent.order("test", name=name, test=number, timeout=timeout)

        loop.post(order)
        test.done.wait(timeout + 1.0)
        return test.result


class RemoteLogs:
    """The growth of the logs, which the agents record; see `process_host.LogRecorder`."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    def set_limits(self, limits: Mapping[str, int]) -> None:
        """Replace the maximum sizes of the logs."""
        self._agents.limits = dict(limits)
        for agent in self._agents.all:
            agent.order("limits", limits=self._agents.limits)

    def watch(self, processes: Collection[str]) -> None:
        """Do nothing: an agent watches the logs of the processes that it starts."""

    def pause(self, processes: Collection[str]) -> None:
        """Do nothing: an agent watches the logs of its processes until they have exited."""

    def record(self, process: str) -> None:
        """Do nothing: an agent records the length of a log before it reports an exit."""

    def close(self) -> None:
        """Record the final length of every log."""
        answers = [(agent, agent.ask("close_logs")) for agent in self._agents.all]
        for agent, number in answers:
            agent.answer(number)


def _reason(agent: Agent, number: int) -> str:
    """Return why an agent could not reserve a port, or ``""``. Wait for its answer."""
    reason = agent.answer(number)
    if not agent.is_alive:
        return f"is on node {agent.node}, which has failed"
    return f"{reason} on node {agent.node}" if reason else ""


def _execution(
    spec: ProcessSpec, pid: int | None, birth: float | None, ended: float | None = None
) -> Message:
    """Return what a new agent has to know about a process.

    ``pid`` is None if its start was not reported. Then it was started after the time ``ended``.
    """
    since = 0.0 if ended is None else ended - _CLOCK_ERROR_SECONDS
    return {"spec": spec.to_dict(), "pid": pid, "birth": birth, "ended": since}


def _identity(execution: Message) -> ProcessId:
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
