"""The identity of processes: stable while a process runs, and gone after its exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from symphony.supervised.processes.identity import (
    ProcessId,
    birth_time,
    identify,
    is_alive,
    is_suspended,
)
from symphony.supervised.processes.process_groups import wait_for_exit


def test_running_process_has_a_stable_identity() -> None:
    own = identify(os.getpid())
    assert own is not None
    assert own == identify(os.getpid())
    assert is_alive(own)
    assert not is_alive(ProcessId(own.pid, own.birth + 1))


def test_exited_process_has_no_identity_before_and_after_it_is_reaped() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    found = identify(child.pid)
    assert found is not None
    assert is_alive(found)
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(found), "a zombie"
    child.wait()
    assert not is_alive(found)
    assert birth_time(child.pid) is None


def test_suspended_process_is_not_awaited() -> None:
    with subprocess.Popen(["sleep", "300"]) as child:
        found = identify(child.pid)
        assert found is not None
        assert not is_suspended(found)
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert is_suspended(found)
        assert not is_suspended(ProcessId(found.pid, found.birth + 1))
        assert not wait_for_exit(found, 1000)
        child.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_process_name_may_contain_any_character() -> None:
    program = (
        "import os, pathlib; pathlib.Path('/proc/self/comm').write_text('a) Z 1 (');"
        "from symphony.supervised.processes.identity import birth_time;"
        "print(birth_time(os.getpid()) is not None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
