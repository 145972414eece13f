"""The processes of a supervisor whose agents run on other nodes."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symphony.plan.state import Track
from symphony.status import State
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.children import ExitCallback, StartRefused
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony_slurm.job.agent_protocol import Channel, ChannelClosed, Message
from symphony_slurm.job.agent_returns import RETURN_SECONDS
from symphony_slurm.job.agents import Agent, Agents, execution_of, identity_of, note_lost
from symphony_slurm.job.terminals import RemoteTerminal, RemoteTerminals


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
        elif event in ("stopped", "group-gone", "stray-gone"):
            self._agents.note_gone(agent, message)
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
            processes[name] = execution_of(stop.spec, stop.process.pid, stop.process.birth)
        for name, child in self._running.items():
            if child.pid not in exited:
                processes[name] = execution_of(self._specs[name], child.pid, child.birth)
        for name, item in answered.items():
            if item["event"] == "started":
                processes[name] = execution_of(self._specs[name], item["pid"], item["birth"])
        missing = [name for name in self._starting if name not in answered]
        for name in missing:
            processes[name] = execution_of(self._specs[name], None, None, self._ended.get(name))
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
                is_same = found is not None and identity_of(found) == ProcessId(
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
