"""Who a process is: the same for as long as it lives, nobody once it has ended, reaped or not."""

from __future__ import annotations

import os
import subprocess
import sys

from symphony.host.processes.identity import ProcessId, birth_time, identify, is_alive


def test_a_process_is_itself_while_it_lives() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert me == identify(os.getpid())
    assert is_alive(me)
    assert not is_alive(ProcessId(me.pid, me.birth + 1))


def test_a_process_that_ended_is_nobody_reaped_or_not() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    found = identify(child.pid)
    assert found is not None
    assert is_alive(found)
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(found), "its corpse"
    child.wait()
    assert not is_alive(found)
    assert birth_time(child.pid) is None


def test_a_name_may_hold_anything() -> None:
    program = (
        "import sys, pathlib; pathlib.Path('/proc/self/comm').write_text('a) Z 1 (');"
        "from symphony.host.processes.identity import birth_time; import os; print(birth_time(os.getpid()) is not None)"
    )
    if sys.platform == "linux":
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert done.stdout == "True\n"
