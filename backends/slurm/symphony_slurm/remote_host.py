"""The nodes of a job, on which agents send signals, reserve ports and test processes."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.note import NoteWriter
from symphony.supervised.resources.leases import CLOSED_CONNECTIONS
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.execution.probe_thread import NOT_FINISHED
from symphony.supervised.supervisor.execution.probes import (
    COMMAND_TIMEOUT_SECONDS,
    Probe,
    ProbeNotRun,
    make_probe,
)
from symphony.supervised.supervisor.process_host import port_of
from symphony_slurm.job.agents import Agent, Agents, ProcessTest, StopInProgress

if TYPE_CHECKING:
    from symphony.line_search import SearchProcess
    from symphony.supervised.supervisor.execution.stopper import StopOrder
    from symphony.supervised.usage.sampler import Devices
    from symphony.usage import ExperimentUsage


class RemoteStray(NamedTuple):
    """A program that the process ``name`` has left running; see `process_host.LeftProgram`."""

    process: ProcessId
    program: str
    name: str
    agents: Agents

    def watch(self, loop: EventLoop, on_exit: Callable[[], None]) -> None:
        """Call ``on_exit`` when the agent has reported the exit of the program."""
        del loop
        pid, birth = self.process
        self.agents.watched[self.name, pid] = on_exit
        order = {"order": "watch_stray", "name": self.name, "pid": pid, "birth": birth}
        self.agents.of(self.name).channel.send(order)


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
            self._agents.stops[spec.name] = StopInProgress(spec, process, order, kill_at)
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

    def _leaders_at(self, agent: Agent, leaders: Mapping[str, ProcessId]) -> dict[str, list[float]]:
        """Return the leaders of the processes of an agent, as in its orders."""
        return {
            name: [leader.pid, leader.birth]
            for name, leader in leaders.items()
            if self._agents.of(name) is agent
        }

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
            own = self._leaders_at(agent, leaders)
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

    def find_strays(
        self, leaders: Mapping[str, ProcessId], names: Collection[str]
    ) -> dict[str, RemoteStray]:
        """Return programs that have left their process groups; see `ProcessHost`."""
        answers = []
        for agent in self._agents.all:
            own = self._leaders_at(agent, leaders)
            number = agent.ask("find_strays", leaders=own, names=list(names))
            answers.append((agent, number))
        found: dict[str, RemoteStray] = {}
        for agent, number in answers:
            for name, (pid, birth, program) in (agent.answer(number) or {}).items():
                found[name] = RemoteStray(ProcessId(pid, birth), program, name, self._agents)
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
        *,
        setting: str,
    ) -> Probe:
        """Return the probe for the setting of a process.

        The command of a test runs on the node of the process, and the agent checks whether the
        process itself serves a port.
        """
        del process
        kinds = getattr(spec, setting) or {}

        def test_on_node(timeout: float) -> str:
            return self._run_test(spec.name, timeout, setting)

        if "command" in kinds:
            return Probe(test_on_node, usual_timeout=COMMAND_TIMEOUT_SECONDS)

        def test(timeout: float) -> str:
            deadline = time.monotonic() + timeout
            result = probe.test(timeout)
            return result or test_on_node(max(0.0, deadline - time.monotonic()))

        probe = make_probe(spec, log, log_start, env, search_process, setting=setting)
        if "log" in kinds:
            return probe
        return Probe(test, probe.hint, probe.close, probe.usual_timeout)

    def _run_test(self, name: str, timeout: float, setting: str) -> str:
        """Let the agent run the test of a process, and return the result.

        The caller is a thread of its own. Raises `ProbeNotRun` if the agent does not answer.
        """
        loop = self._loop
        if loop is None:
            raise ProbeNotRun(NOT_FINISHED)
        test = ProcessTest(threading.Event())
        number = next(self._test_numbers)

        def order() -> None:
            agent = self._agents.of(name)
            # Without an agent, the test has no result in time, and is repeated.
            if agent.channel.is_open:
                self._agents.tests[number] = test
                agent.order("test", name=name, test=number, timeout=timeout, setting=setting)

        loop.post(order)
        test.done.wait(timeout + 1.0)
        if test.result is None:
            raise ProbeNotRun(NOT_FINISHED)
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
