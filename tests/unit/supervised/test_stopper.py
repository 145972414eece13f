"""The stop of a process to which no other program belongs when it receives the signal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from symphony.supervised.processes.identity import ProcessId, identify
from symphony.supervised.processes.stop_record import Kind, StopRecord
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.execution import stopper
from symphony.supervised.supervisor.execution.stopper import StopOrder, Stopper

PROGRAM = """
import signal, subprocess, sys

def stop(number, frame):
    {action}
    raise SystemExit(0)

signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
while True:
    signal.pause()
"""
# The second program handles the signal too, and receives it late in the grace period.
CLEAN_UP = PROGRAM.format(action="print('late', flush=True)")
STARTS_CLEAN_UP = PROGRAM.format(action=f"subprocess.run([sys.executable, '-c', {CLEAN_UP!r}])")


class Stopped:
    """A child and its stop. ``errors`` contains the errors in the event loop."""

    def __init__(self, program: str, record: Path) -> None:
        self.errors: list[Exception] = []
        self.loop = EventLoop(self._note_error)
        self.record = record
        self.stopper = Stopper(
            self.loop, on_done=lambda _: self.loop.stop(), record=StopRecord(str(record))
        )
        self.child = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.read_line() == "ready"
        found = identify(self.child.pid)
        assert found is not None
        self.leader: ProcessId = found
        self.remains: bool | None = None
        self.pidfd = os.pidfd_open(self.child.pid)
        self.loop.watch(self.pidfd, self._handle_exit)

    def _note_error(self, error: Exception) -> None:
        self.errors.append(error)
        self.loop.stop()

    def _handle_exit(self) -> None:
        self.loop.unwatch(self.pidfd)
        self.child.wait()
        self.remains = self.stopper.handle_exit("a", self.leader)

    def read_line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().rstrip()

    def recorded(self) -> set[ProcessId]:
        """Return the programs that are recorded as having received the signal."""
        previous = StopRecord(str(self.record)).take_previous(self.leader.pid)
        return set() if previous is None else previous.of(Kind.SIGNALED)

    def stop(self, grace: float) -> None:
        """Stop the child, and return when nothing of it is running."""
        self.stopper.begin("a", self.leader, StopOrder(grace))
        assert self.stopper.is_active("a")
        self.loop.run()
        assert self.errors == []
        assert not self.stopper.is_active("a")
        assert not self.recorded(), "no stop is in progress"

    def close(self) -> None:
        for resource in (self.loop._epoll, self.loop._wake_read, self.loop._wake_write):
            resource.close()
        os.close(self.pidfd)
        if self.child.returncode is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.communicate()


Start = Callable[[str], Stopped]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts a child."""
    previous = signal.set_wakeup_fd(-1)
    with contextlib.ExitStack() as stack:

        def start(program: str) -> Stopped:
            stopped = Stopped(program, tmp_path / "stops")
            stack.callback(stopped.close)
            return stopped

        yield start
    signal.set_wakeup_fd(previous)


def test_the_exit_of_the_only_program_ends_the_stop(start: Start) -> None:
    stopped = start(PROGRAM.format(action="print('bye', flush=True)"))
    stopped.stop(30.0)
    assert (stopped.read_line(), stopped.child.returncode, stopped.remains) == ("bye", 0, False)


def test_a_program_that_the_only_one_starts_then_receives_the_signal_late(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = start(STARTS_CLEAN_UP)
    assert stopped.child.stdout is not None
    output = stopped.child.stdout.fileno()

    def let_time_pass() -> None:
        stopped.loop.unwatch(output)
        assert stopped.read_line() == "ready"
        monotonic = time.monotonic
        clock = SimpleNamespace(monotonic=lambda: monotonic() + 250.0)
        monkeypatch.setattr(stopper, "time", clock)

    stopped.loop.watch(output, let_time_pass)
    stopped.stop(300.0)
    # A look at the processes can notice the exit before the event loop does.
    assert (stopped.read_line(), stopped.child.wait()) == ("late", 0)


def test_a_shorter_grace_period_ends_the_stop_of_the_only_program(start: Start) -> None:
    stopped = start(PROGRAM.format(action="print('stays', flush=True); signal.pause()"))
    stopped.stopper.begin("a", stopped.leader, StopOrder(30.0))

    assert stopped.child.stdout is not None
    output = stopped.child.stdout.fileno()

    def hasten() -> None:
        stopped.loop.unwatch(output)
        assert stopped.read_line() == "stays"
        assert stopped.recorded() == {stopped.leader}
        stopped.stopper.begin("a", stopped.leader, StopOrder(0.0))

    stopped.loop.watch(output, hasten)
    stopped.loop.run()
    assert stopped.errors == []
    assert stopped.child.returncode == -signal.SIGKILL
