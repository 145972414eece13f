"""The identity of processes: stable while a process runs, and gone after its exit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from symphony.host.processes.identity import ProcessId, birth_time, identify, is_alive


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


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_process_name_may_contain_any_character() -> None:
    program = (
        "import os, pathlib; pathlib.Path('/proc/self/comm').write_text('a) Z 1 (');"
        "from symphony.host.processes.identity import birth_time;"
        "print(birth_time(os.getpid()) is not None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
