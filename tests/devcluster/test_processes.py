import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster import processes
from devcluster.console import Failure
from devcluster.processes import Process


@pytest.fixture
def child():
    code = "import signal; print('up', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        yield child
        child.kill()


def test_a_process_is_its_pid_and_its_start(child):
    process = processes.identify("child", child.pid)
    assert processes.alive(process)
    assert not processes.alive(Process(name="other", pid=child.pid, start=process.start - 1))
    processes.stop(process, grace=5)
    assert not processes.alive(process)
    assert child.wait() == -signal.SIGTERM


def test_somebody_elses_pid_is_left_alone(child):
    mine = processes.identify("child", child.pid)
    processes.stop(Process(name="stale", pid=child.pid, start=mine.start - 1))
    assert processes.alive(mine)


def test_what_does_not_end_by_itself_is_killed():
    code = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); "
        "signal.pause(); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        processes.stop(processes.identify("stubborn", child.pid), grace=0.2)
        assert child.wait() == -signal.SIGKILL


def test_stopping_what_is_gone_is_harmless(child):
    process = processes.identify("child", child.pid)
    child.kill()
    child.wait()
    processes.stop(process)


def test_a_name_with_a_parenthesis_does_not_confuse(tmp_path):
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


def test_a_failing_command_shows_the_end_of_its_log(tmp_path):
    with pytest.raises(Failure, match="failed with 3") as caught:
        processes.run(["sh", "-c", "echo the cause; exit 3"], log=tmp_path / "log")
    assert "the cause" in str(caught.value)


def test_waiting_ends_when_a_needed_process_does(child, tmp_path):
    (tmp_path / "log").write_text("why it ended\n")
    process = processes.identify("server", child.pid)
    child.kill()
    child.wait()
    with pytest.raises(Failure, match="server has ended") as caught:
        processes.wait_for(lambda: False, "it", seconds=60, needs=[process], log=tmp_path / "log")
    assert "why it ended" in str(caught.value)


def test_waiting_gives_the_answer_or_gives_up():
    assert processes.wait_for(lambda: 7, "it", seconds=1) == 7
    with pytest.raises(Failure, match="not within 0 s"):
        processes.wait_for(lambda: None, "it", seconds=0)
