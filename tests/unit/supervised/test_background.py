"""What processes that have succeeded leave running in the background."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from symphony.supervised.processes.identity import RUN_ID_VARIABLE, ProcessId, program_name
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.execution.background import LOOK_SECONDS, BackgroundPrograms
from symphony.supervised.supervisor.execution.facts import Facts
from symphony.supervised.supervisor.execution.supervised_process import ProcessTable
from symphony.supervised.supervisor.process_host import ThisHost

RUN = os.urandom(16).hex()
# The first process exits at once. The second one lives until its standard input ends.
DAEMON = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    sys.stdin.read()
    os._exit(0)
print(os.getpid(), flush=True)
os.execvp("sleep", ["sleep", "1000"])
"""


def table(*names: str) -> ProcessTable:
    return ProcessTable(
        {name: ProcessSpec(name=name, argv=("true",), cwd="/") for name in names}, {}
    )


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    previous = signal.set_wakeup_fd(-1)

    def fail(error: Exception) -> None:
        raise error

    loop = EventLoop(fail)
    yield loop
    for resource in (loop._epoll, loop._wake_read, loop._wake_write):
        resource.close()
    signal.set_wakeup_fd(previous)


def test_a_daemon_is_found_and_followed_until_it_exits(loop: EventLoop) -> None:
    environment = {**os.environ, RUN_ID_VARIABLE: RUN, "SYMPHONY_ROLE": "web"}
    process = subprocess.Popen(
        [sys.executable, "-c", DAEMON],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    daemon = int(process.stdout.readline())
    assert process.wait() == 0
    noted: list[str] = []
    facts = Facts(lambda: None)
    facts.begin("web", 0)

    def note(name: str, **changes: Any) -> None:
        Facts.note(facts, name, **changes)
        seen = facts.seen(name)
        noted.append(f"{seen.background}: {'running' if seen.in_background else 'exited'}")
        # The parent of the daemon, which was started first, exits and then the daemon.
        if len(noted) == 1:
            process.stdin.close()  # type: ignore[union-attr]
        elif len(noted) == 2:
            os.kill(daemon, signal.SIGKILL)
        else:
            loop.stop()

    facts.note = note  # type: ignore[method-assign]
    programs = BackgroundPrograms(loop, table("web"), ThisHost(RUN), facts, on_error=pytest.fail)
    programs.note_exit("web")
    try:
        loop.run()
    finally:
        process.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGKILL)
    first, *others = noted
    assert first.startswith(program_name(os.getpid()))
    assert others == [f"sleep (pid {daemon}): running", f"sleep (pid {daemon}): exited"]


class Stray:
    """A program whose exit is reported to the functions in ``exits``."""

    process = ProcessId(7, 1.0)
    program = "server"

    def __init__(self, exits: list[Callable[[], None]]) -> None:
        self._exits = exits

    def watch(self, loop: object, on_exit: Callable[[], None]) -> None:
        self._exits.append(on_exit)


class Host:
    """A host on which ``b`` has left a program. It counts the looks, each of which is slow."""

    def __init__(self) -> None:
        self.looks = 0
        self.exits: list[Callable[[], None]] = []

    def find_strays(self, leaders: object, names: object) -> Mapping[str, Stray]:
        self.looks += 1
        return {"b": Stray(self.exits)}


class Loop:
    """The timers that were set."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers.append((seconds, callback))

    def expire(self) -> None:
        timers, self.timers = self.timers, []
        for _, callback in timers:
            callback()


def test_one_look_serves_several_exits_and_a_new_start_ends_the_watch() -> None:
    host, loop, facts = Host(), Loop(), Facts(lambda: None)
    for name in "ab":
        facts.begin(name, 0)
    processes = table("a", "b")
    programs = BackgroundPrograms(loop, processes, host, facts, pytest.fail)  # type: ignore[arg-type]
    programs.note_exit("a")
    programs.note_exit("b")
    assert [seconds for seconds, _ in loop.timers] == [LOOK_SECONDS]
    loop.expire()
    assert (host.looks, facts.seen("a").background) == (1, "")
    assert facts.seen("b").background == "server (pid 7)"
    programs.cancel("b")
    host.exits[0]()
    assert loop.timers == [], "the next execution is not concerned"


def test_a_look_at_the_end_does_not_wait() -> None:
    host, loop, facts = Host(), Loop(), Facts(lambda: None)
    facts.begin("b", 0)
    programs = BackgroundPrograms(loop, table("b"), host, facts, pytest.fail)  # type: ignore[arg-type]
    programs.look()
    assert host.looks == 0, "nothing has exited"
    programs.note_exit("b")
    programs.look()
    loop.expire()
    assert (host.looks, facts.seen("b").in_background) == (1, True)
