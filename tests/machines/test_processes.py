import signal
import subprocess
import sys
from pathlib import Path

import pytest

from machines import processes
from machines.console import ToolError
from machines.processes import Process


@pytest.fixture
def child():
    code = "import signal; print('up', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        yield child
        child.kill()


def test_process_is_identified_by_pid_and_start_time(child):
    process = processes.identify("child", child.pid)
    assert processes.alive(process)
    assert not processes.alive(Process(name="other", pid=child.pid, start=process.start - 1))
    processes.stop(process, grace=5)
    assert not processes.alive(process)
    assert child.wait() == -signal.SIGTERM


def test_stop_ignores_a_reused_pid(child):
    current = processes.identify("child", child.pid)
    processes.stop(Process(name="stale", pid=child.pid, start=current.start - 1))
    assert processes.alive(current)


def test_stop_kills_a_process_that_ignores_sigterm():
    code = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); "
        "signal.pause(); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        processes.stop(processes.identify("stubborn", child.pid), grace=0.2)
        assert child.wait() == -signal.SIGKILL


def test_stop_of_an_exited_process_does_nothing(child):
    process = processes.identify("child", child.pid)
    child.kill()
    child.wait()
    processes.stop(process)


def test_start_time_of_a_name_with_a_parenthesis(tmp_path):
    program = tmp_path / ") x ("
    program.symlink_to(sys.executable)
    with subprocess.Popen(
        [program, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        child.stdout.readline()
        after_the_name = Path(f"/proc/{child.pid}/stat").read_text().rsplit(") ", 1)[1]
        assert processes.start_time(child.pid) == int(after_the_name.split()[19])
        child.kill()


def test_failed_command_shows_the_end_of_its_log(tmp_path):
    with pytest.raises(ToolError, match="failed with 3") as caught:
        processes.run(["sh", "-c", "echo the cause; exit 3"], log=tmp_path / "log")
    assert "the cause" in str(caught.value)


def test_wait_for_fails_when_a_required_process_exits(child, tmp_path):
    (tmp_path / "log").write_text("the cause\n")
    process = processes.identify("server", child.pid)
    child.kill()
    child.wait()
    with pytest.raises(ToolError, match="server has exited") as caught:
        processes.wait_for(lambda: False, "it", seconds=60, needs=[process], log=tmp_path / "log")
    assert "the cause" in str(caught.value)


def test_wait_for_returns_the_result_or_times_out():
    assert processes.wait_for(lambda: 7, "it", seconds=1) == 7
    with pytest.raises(ToolError, match="not within 0 s"):
        processes.wait_for(lambda: None, "it", seconds=0)
