"""Agents that are killed, with a supervisor in this process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import symphony_slurm.agent
from symphony.plan.state import Track
from symphony.status import State
from symphony.supervised.processes.identity import RUN_ID_VARIABLE, ProcessId
from symphony.supervised.processes.membership import RunProcesses
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.capture import copy_output
from symphony.supervised.supervisor.children import Child, StartRefused
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.execution.probe_thread import (
    NOT_FINISHED,
    Outcome,
    run_probe,
)
from symphony.supervised.supervisor.execution.stopper import StopOrder
from symphony.support.data_classes import replace
from symphony_slurm import remote_children
from symphony_slurm.job.agent_protocol import Channel, Message, receive_hello
from symphony_slurm.job.agent_returns import AgentReturns
from symphony_slurm.job.agents import Agent, Agents
from symphony_slurm.remote_children import RemoteChild, RemoteChildren
from symphony_slurm.remote_host import RemoteHost

# The same guardian protects the supervisor, whose tests run on each version.
pytestmark = pytest.mark.one_python

TOKEN, RUN_ID = b"token", uuid.uuid4().hex
TIMEOUT_SECONDS = 60.0


def raise_error(exc: Exception) -> None:
    raise exc


class Supervisor:
    """A supervisor of processes on the node ``n1``, without decisions."""

    def __init__(self, run: RunDirectory, server: socket.socket) -> None:
        self._run = run
        self._server = server
        self.exits: dict[str, tuple[int | None, str]] = {}
        self._connect()

    def _connect(self) -> None:
        self.loop = EventLoop(raise_error)
        self._server.settimeout(TIMEOUT_SECONDS)
        channel = Channel(self._server.accept()[0])
        self.hello = receive_hello(channel, TOKEN)
        assert self.hello is not None
        slots = dict.fromkeys(("forever", "gated", "late"), 0)
        self.agent = Agent(channel, self.hello)
        self.returns = AgentReturns(self._server, TOKEN)
        self.agents = Agents([self.agent], slots, self.returns)
        self.agents.prepare({RUN_ID_VARIABLE: RUN_ID})
        self.host = RemoteHost(self.agents)
        self.children = RemoteChildren(self.loop, self._run, self._handle_exit, agents=self.agents)

    def be_replaced(self) -> None:
        """Be killed, and continue as the next supervisor."""
        self.close()
        self._connect()

    def close(self) -> None:
        self.returns.close()
        self.agent.channel.close()
        signal.set_wakeup_fd(-1)
        for resource in (self.loop._epoll, self.loop._wake_read, self.loop._wake_write):
            resource.close()

    def _handle_exit(
        self, child: Child, code: int | None, reason: str = "", log_bytes: int | None = None
    ) -> None:
        self.exits[child.name] = code, reason

    def start(self, *specs: ProcessSpec) -> list[RemoteChild]:
        found = [child for _, child in self.children.start(specs, {})]
        assert all(isinstance(child, RemoteChild) for child in found), found
        return found  # type: ignore[return-value]

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run the event loop until a function returns true."""
        deadline = time.monotonic() + TIMEOUT_SECONDS

        def check() -> None:
            assert time.monotonic() < deadline
            if condition():
                self.loop.stop()
            else:
                self.loop.after(0.01, check)

        # The loop can be run again.
        self.loop._running = True
        check()
        self.loop.run()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "job.json").write_text(json.dumps({"path": sys.path}))
    (tmp_path / "token").write_bytes(TOKEN)
    for name in ("logs", "secrets"):
        (tmp_path / name).mkdir()
    found = RunDirectory(tmp_path)
    found.record_run_id(RUN_ID)
    return found


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


@pytest.fixture
def guardian(run: RunDirectory, server: socket.socket) -> Iterator[psutil.Process]:
    """The program that srun starts. Its processes are killed at the end, as by Slurm."""
    program = [sys.executable, "-I", "-S", symphony_slurm.agent.__file__, str(run.path)]
    port = str(server.getsockname()[1])
    environment = {**os.environ, "SLURMD_NODENAME": "n1"}
    started = subprocess.Popen([*program, "127.0.0.1", port], env=environment)
    process = psutil.Process(started.pid)
    yield process
    try:
        # Without a connection, the agent would wait for another supervisor.
        left = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        left = []
    for item in left:
        item.kill()
    started.wait()
    for orphan in RunProcesses(RUN_ID).find():
        os.kill(orphan.pid, signal.SIGKILL)


@pytest.fixture
def supervisor(
    run: RunDirectory, server: socket.socket, guardian: psutil.Process
) -> Iterator[Supervisor]:
    found = Supervisor(run, server)
    yield found
    found.close()


def spec(run: RunDirectory, name: str, code: str) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        argv=(sys.executable, "-u", "-c", code),
        cwd=str(run.path),
        env={"SYMPHONY_ROLE": name},
        grace=20.0,
    )


def forever(run: RunDirectory) -> ProcessSpec:
    code = "import signal\nprint('up')\nsignal.sigwait([signal.SIGUSR1])\nprint('on')\n"
    code += "signal.signal(signal.SIGTERM, lambda *_: exit(5))\nprint('stoppable')\nsignal.pause()"
    return spec(run, "forever", f"import signal\nsignal.pthread_sigmask(0, [10])\n{code}")


def gated(run: RunDirectory, name: str = "gated") -> ProcessSpec:
    """Return a process that exits with 7 when the pipe ``gate`` is opened."""
    return spec(run, name, "open('gate').read()\nprint('through')\nexit(7)")


def kill_agent(guardian: psutil.Process) -> None:
    """Kill the agent while its guardian is suspended."""
    (agent,) = guardian.children()
    guardian.suspend()
    agent.kill()
    wait_for_exit(agent)


def wait_for_exit(process: psutil.Process) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    # A running agent collects the exit at once.
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def open_gate(run: RunDirectory, process: psutil.Process) -> None:
    """Let a process exit, and wait for its exit."""
    run.file("gate").open("w").close()
    wait_for_exit(process)


def test_exit_codes_without_an_agent_are_kept_and_processes_go_on(
    run: RunDirectory, guardian: psutil.Process, supervisor: Supervisor
) -> None:
    os.mkfifo(run.file("gate"))
    one, two = supervisor.start(forever(run), gated(run))
    # The output of a process is lost if it exits before any other program has its pipe.
    supervisor.run_until(lambda: run.log("forever").read_text() == "up\n")
    kill_agent(guardian)
    open_gate(run, psutil.Process(two.pid))
    guardian.resume()
    supervisor.run_until(lambda: "gated" in supervisor.exits)
    assert supervisor.exits == {"gated": (7, "")}
    assert run.log("gated").read_text() == "through\n"
    # The new agent copies the output of the process and stops it.
    os.kill(one.pid, signal.SIGUSR1)
    supervisor.run_until(lambda: run.log("forever").read_text() == "up\non\nstoppable\n")
    process = ProcessId(one.pid, one.birth)
    order = StopOrder(20.0)
    supervisor.host.begin_stop(supervisor.loop, forever(run), process, order, {}, lambda _: None)
    supervisor.run_until(lambda: not supervisor.host.is_stopping("forever"))
    supervisor.run_until(lambda: "forever" in supervisor.exits)
    assert supervisor.exits["forever"] == (5, "")
    assert not supervisor.agents.groups


def test_exit_without_an_agent_is_reported_when_the_output_is_in_the_log(
    run: RunDirectory, guardian: psutil.Process, supervisor: Supervisor
) -> None:
    os.mkfifo(run.file("gate"))
    _, child = supervisor.start(forever(run), gated(run))
    # From now on, the program that copies the output can be found by the next agent.
    supervisor.run_until(lambda: run.log("forever").read_text() == "up\n")
    (copier,) = [
        process
        for process in guardian.children(recursive=True)
        if copy_output.__file__ in process.cmdline()
    ]
    copier.suspend()
    kill_agent(guardian)
    open_gate(run, psutil.Process(child.pid))
    guardian.resume()
    supervisor.run_until(lambda: "gated" in supervisor.exits)
    assert run.log("gated").read_text() == "through\n"
    assert supervisor.exits == {"gated": (7, "")}


def test_stop_that_the_killed_agent_has_begun_is_continued(
    run: RunDirectory, guardian: psutil.Process, supervisor: Supervisor
) -> None:
    """The process does not receive the signal again, and is killed when its time is over."""
    code = "import signal\nsignal.signal(15, lambda *_: print('TERM'))\nprint('up')\n"
    stubborn = spec(run, "forever", code + "while True: signal.pause()")
    (child,) = supervisor.start(stubborn)
    supervisor.run_until(lambda: run.log("forever").read_text() == "up\n")
    order = StopOrder(3.0)
    process = ProcessId(child.pid, child.birth)
    begin = time.monotonic()
    supervisor.host.begin_stop(supervisor.loop, stubborn, process, order, {}, lambda _: None)
    supervisor.run_until(lambda: run.log("forever").read_text() == "up\nTERM\n")
    kill_agent(guardian)
    guardian.resume()
    supervisor.run_until(lambda: "forever" in supervisor.exits)
    supervisor.run_until(lambda: not supervisor.host.is_stopping("forever"))
    assert supervisor.exits == {"forever": (137, "")}
    assert time.monotonic() - begin >= 3.0
    assert run.log("forever").read_text() == "up\nTERM\n"


def test_start_that_a_killed_agent_has_not_carried_out_is_carried_out(
    run: RunDirectory, guardian: psutil.Process, supervisor: Supervisor
) -> None:
    os.mkfifo(run.file("gate"))
    kill_agent(guardian)
    guardian.resume()
    (child,) = supervisor.start(gated(run, "late"))
    open_gate(run, psutil.Process(child.pid))
    supervisor.run_until(lambda: "late" in supervisor.exits)
    assert supervisor.exits == {"late": (7, "")}


def test_start_that_a_killed_agent_has_not_reported_is_not_repeated(
    run: RunDirectory, guardian: psutil.Process, supervisor: Supervisor, server: socket.socket
) -> None:
    code = "import os\nopen(f'pid-{os.getpid()}', 'w').close()\nimport signal\nsignal.pause()"
    late = spec(run, "late", code)
    channel = supervisor.agent.channel
    channel.send({"order": "start", "specs": [late.to_dict()]})
    supervisor.run_until(lambda: bool(list(run.path.glob("pid-*"))))
    kill_agent(guardian)
    # The report is lost.
    channel.close()
    guardian.resume()
    new = Channel(server.accept()[0])
    hello = receive_hello(new, TOKEN)
    assert hello is not None
    assert hello["replaces"]
    new.send({"order": "prepare", "env": {RUN_ID_VARIABLE: RUN_ID}})
    execution = {"spec": late.to_dict(), "pid": None, "birth": None, "ended": 0.0}
    new.send({"order": "adopt", "processes": [execution], "groups": [], "start": ["late"]})
    new.send({"order": "find_strays", "leaders": {}, "names": [], "number": 1})
    messages: list[Message] = []
    while not any(item["event"] == "answer" for item in messages):
        messages += new.receive()
    started = [item["pid"] for item in messages if item["event"] == "started"]
    assert [f"pid-{pid}" for pid in started] == [path.name for path in run.path.glob("pid-*")]
    new.close()


def test_agent_that_is_killed_with_its_supervisor_finds_its_processes(
    run: RunDirectory, guardian: psutil.Process, supervisor: Supervisor
) -> None:
    os.mkfifo(run.file("gate"))
    one, two = supervisor.start(forever(run), gated(run))
    kill_agent(guardian)
    open_gate(run, psutil.Process(two.pid))
    guardian.resume()
    supervisor.be_replaced()
    tracks = {
        child.name: Track(state=State.RUNNING, pid=child.pid, birth=child.birth)
        for child in (one, two)
    }
    specs = [forever(run), gated(run)]
    adopted = supervisor.children.adopt([*specs, gated(run, "late")], {**tracks, "late": Track()})
    assert [(child.name, child.pid) for child in adopted] == [
        ("forever", one.pid),
        ("gated", two.pid),
    ]
    supervisor.run_until(lambda: bool(supervisor.exits))
    assert supervisor.exits == {"gated": (7, "")}


def test_orders_wait_for_the_new_agent(
    run: RunDirectory, guardian: psutil.Process, supervisor: Supervisor
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
    assert supervisor.agent.answer(supervisor.agent.ask("reserve", port=port)) is None
    kill_agent(guardian)
    number = supervisor.agent.ask("avoid", port=port)
    guardian.resume()
    assert supervisor.agent.answer(number) is False
    # The port is still leased.
    reason = supervisor.agent.answer(supervisor.agent.ask("reserve", port=port))
    assert reason == "is reserved by another running experiment"
    supervisor.agent.order("release", port=port)
    assert supervisor.agent.answer(supervisor.agent.ask("reserve", port=port)) is None


def test_order_without_an_answer_does_not_wait_for_the_new_agent(
    run: RunDirectory, guardian: psutil.Process, supervisor: Supervisor
) -> None:
    (child,) = supervisor.start(forever(run))
    supervisor.run_until(lambda: run.log("forever").read_text() == "up\n")
    kill_agent(guardian)
    supervisor.run_until(lambda: not supervisor.agent.channel.is_open)
    # The guardian is suspended, so that waiting for an agent would not end.
    assert supervisor.host.signal_group("forever", child.pid, signal.SIGUSR1)
    guardian.resume()
    supervisor.run_until(lambda: run.log("forever").read_text() == "up\non\nstoppable\n")


def test_order_that_a_killed_agent_has_answered_is_not_repeated(
    run: RunDirectory, guardian: psutil.Process, supervisor: Supervisor
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
    agent = supervisor.agent
    number = agent.ask("reserve", port=port)
    assert agent.channel.wait(TIMEOUT_SECONDS)
    kill_agent(guardian)
    later = agent.ask("find_strays", leaders={}, names=[])
    guardian.resume()
    assert agent.answer(later) == {}
    # A repeated order would be refused, because the port is leased.
    assert agent.answer(number) is None
    assert not agent.channel.pending


def test_replacement_of_an_agent_is_reported_with_its_node(
    run: RunDirectory, guardian: psutil.Process, supervisor: Supervisor
) -> None:
    nodes: list[str] = []
    supervisor.agents.on_replaced = nodes.append
    kill_agent(guardian)
    guardian.resume()
    supervisor.run_until(lambda: bool(nodes))
    assert nodes == ["n1"]


def test_processes_of_a_node_without_agent_and_guardian_are_lost(
    run: RunDirectory,
    guardian: psutil.Process,
    supervisor: Supervisor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_children, "RETURN_SECONDS", 0.2)
    (child,) = supervisor.start(forever(run))
    kill_agent(guardian)
    guardian.kill()
    supervisor.run_until(lambda: bool(supervisor.exits))
    os.kill(child.pid, signal.SIGKILL)
    assert supervisor.exits == {"forever": (None, "node n1 or its agent has failed")}
    (refused,) = [found for _, found in supervisor.children.start([forever(run)], {})]
    assert isinstance(refused, StartRefused)
    assert run.file("lost-agents").read_text() == "0\n"


def test_agent_exits_with_its_supervisor(
    run: RunDirectory, guardian: psutil.Process, supervisor: Supervisor
) -> None:
    """After an agent was replaced, too."""
    (child,) = supervisor.start(forever(run))
    kill_agent(guardian)
    guardian.resume()
    killed = supervisor.agent.channel
    supervisor.run_until(lambda: supervisor.agent.channel is not killed)
    supervisor.agent.order("finish")
    supervisor.agent.channel.close()
    assert guardian.wait(TIMEOUT_SECONDS) == 0
    assert not psutil.pid_exists(child.pid)


def test_health_test_runs_on_the_node_and_has_no_result_without_an_agent(
    run: RunDirectory, guardian: psutil.Process, supervisor: Supervisor
) -> None:
    command = [sys.executable, "-c", "import os; exit(os.environ['SYMPHONY_ROLE'] == 'forever')"]
    item = replace(forever(run), healthy={"command": command})
    (child,) = supervisor.start(item)
    host, outcomes = supervisor.host, list[Outcome]()
    host._loop = supervisor.loop
    process = ProcessId(child.pid, child.birth)
    log = run.log("forever")
    probe = host.make_probe(item, process, log, 0, {}, None, setting="healthy")
    run_probe(supervisor.loop, probe, TIMEOUT_SECONDS, outcomes.append, with_hint=False)
    supervisor.run_until(lambda: len(outcomes) == 1)
    assert outcomes == [Outcome("exit code 1")]
    kill_agent(guardian)
    run_probe(supervisor.loop, probe, 0.1, outcomes.append, with_hint=False)
    supervisor.run_until(lambda: len(outcomes) == 2)
    assert outcomes[1] == Outcome(NOT_FINISHED, was_run=False)
    killed = supervisor.agent.channel
    guardian.resume()
    supervisor.run_until(lambda: supervisor.agent.channel is not killed)
