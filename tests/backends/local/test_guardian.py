"""The guardian starts a new supervisor when the supervisor is killed, with nothing typed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from symphony import BackendError, State
from symphony.supervised.processes.identity import identify
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor import guarding
from symphony.testing import until
from symphony.testing.contract import all_running
from symphony.testing.programs import FOREVER

from .conftest import (
    eventually,
    guardian_of,
    kill,
    kill_supervision,
    marked,
    python,
    run_id_of,
    supervisor_of,
)


def record(cluster, name="exp"):
    """Return the status without starting a supervisor."""
    from symphony.supervised.record.status import StatusReader

    return StatusReader(RunDirectory(cluster._root / name)).read()


def new_supervisor(cluster, killed):
    """Wait until another supervisor has taken over the processes, and return its pid."""
    run = RunDirectory(cluster._root / "exp")

    def is_replaced():
        found = run.supervisor()
        return found is not None and found.pid != killed and not run.is_resuming()

    eventually(is_replaced)
    return supervisor_of(cluster)


EXITS = "import os, sys\nwhile not os.path.exists(sys.argv[1]): pass\nraise SystemExit(7)"


def test_killed_supervisor_is_replaced_and_exits_in_between_are_known(
    cluster, experiment, tmp_path
):
    """The guardian is suspended while the processes exit, so no supervisor can observe them."""
    before, after = tmp_path / "before", tmp_path / "after"
    python(experiment, "runs", FOREVER)
    python(experiment, "exits", EXITS, before)
    python(experiment, "killed", FOREVER)
    python(experiment, "later", EXITS, after)
    cluster.launch(experiment)
    pids = {process.name: process.pid for process in cluster.describe_experiment("exp")}
    guardian, supervisor = guardian_of(cluster), supervisor_of(cluster)
    os.kill(guardian, signal.SIGSTOP)
    kill(supervisor)
    before.touch()
    os.kill(pids["killed"], signal.SIGKILL)
    for name in ("exits", "killed"):
        eventually(lambda name=name: psutil.Process(pids[name]).status() == psutil.STATUS_ZOMBIE)
    os.kill(guardian, signal.SIGCONT)
    new_supervisor(cluster, supervisor)
    now = {process.name: process for process in record(cluster)}
    assert (now["exits"].state, now["exits"].exit_code) == (State.FAILED, 7)
    assert (now["killed"].state, now["killed"].exit_code) == (State.FAILED, 137)
    assert (now["runs"].state, now["runs"].pid) == (State.RUNNING, pids["runs"])
    assert guardian_of(cluster) == guardian
    after.touch()
    until(cluster, "exp", lambda now: now.processes[3].exit_code == 7)


def test_start_order_completes_if_the_supervisor_is_killed_in_the_middle(cluster, experiment):
    first = python(experiment, "p-0", FOREVER).ready(log="up")
    for number in range(1, 30):
        first = python(experiment, f"p-{number}", FOREVER).ready(log="up").starts_after(first)
    cluster.launch(experiment)
    for count in (5, 15):
        eventually(
            lambda count=count: (
                sum(process.state is State.RUNNING for process in record(cluster)) >= count
            )
        )
        supervisor = supervisor_of(cluster)
        kill(supervisor)
        new_supervisor(cluster, supervisor)
    eventually(lambda: all_running(record(cluster)), timeout=60)
    assert len(marked(run_id_of(cluster))) == 30
    cluster.delete("exp")
    assert marked(run_id_of(cluster) if cluster.list_experiments() else "none") == []


def test_killed_guardian_is_replaced(cluster, experiment):
    python(experiment, "p", FOREVER)
    cluster.launch(experiment)
    before = cluster.describe_process("exp", "p")
    guardian, supervisor = guardian_of(cluster), supervisor_of(cluster)
    kill(guardian)
    eventually(lambda: guardian_of(cluster) not in (guardian, None))
    assert supervisor_of(cluster) == supervisor
    replacement = guardian_of(cluster)
    kill(supervisor)
    new_supervisor(cluster, supervisor)
    assert guardian_of(cluster) == replacement
    assert cluster.describe_process("exp", "p") == before
    processes = [psutil.Process(replacement), psutil.Process(supervisor_of(cluster))]
    cluster.delete("exp")
    assert psutil.wait_procs(processes, timeout=20)[1] == []


def test_guardian_waits_for_its_lock(cluster, experiment):
    """A killed guardian that exits slowly still has it."""
    python(experiment, "p", FOREVER)
    cluster.launch(experiment)
    supervisor = supervisor_of(cluster)
    os.kill(supervisor, signal.SIGSTOP)
    kill(guardian_of(cluster))
    lock = cluster._root / "exp" / "guardian"
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        os.kill(supervisor, signal.SIGCONT)
        eventually(lambda: any(has_open(pid, lock) for pid in guardians()))
    eventually(lambda: guardian_of(cluster) is not None)


def guardians():
    """Return the pids of all guardians of this machine."""
    found = psutil.process_iter(["name"])
    return [process.pid for process in found if process.info["name"] == "symph-guardian"]


def has_open(pid, path):
    """Return whether a process has opened a file, or a pidfd if the path is `PIDFD`."""
    try:
        return any(os.readlink(item) == str(path) for item in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        # The process has exited, or has closed a file in the meantime.
        return False


PIDFD = "anon_inode:[pidfd]"

# A supervisor that takes long to exit: it has closed the pipe to its guardian, and has its lock.
EXITS_SLOWLY = """
import fcntl, os, sys
from pathlib import Path
from symphony.supervised.processes.identity import identify
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.guarding import Guard

run = RunDirectory(Path(sys.argv[1]))
lock = os.open(run.lock, os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
run.record_supervisor(identify(os.getpid()), replaces=True)
children = "symphony.supervised.supervisor.local_children:LocalChildren"
guard = Guard({"path": sys.path, "children": children}, *os.pipe(), str(run.path))
guard._start_guardian()
os.close(guard._messages)
sys.stdin.read()
"""


def test_supervisor_that_exits_slowly_is_replaced(cluster, experiment):
    """The new supervisor must not take it for another one that continues the run."""
    python(experiment, "p", FOREVER)
    cluster.launch(experiment)
    before = cluster.describe_process("exp", "p")
    kill_supervision(cluster)
    program = [sys.executable, "-c", EXITS_SLOWLY, str(cluster._root / "exp")]
    with subprocess.Popen(program, stdin=subprocess.PIPE) as slow:
        eventually(lambda: guardian_of(cluster) is not None)
        guardian = psutil.Process(guardian_of(cluster))
        eventually(lambda: any(has_open(child.pid, PIDFD) for child in guardian.children()))
        kill(slow.pid)
    new_supervisor(cluster, slow.pid)
    assert psutil.Process(supervisor_of(cluster)).ppid() == guardian.pid
    assert cluster.describe_process("exp", "p") == before


def test_command_repairs_if_both_were_killed(cluster, experiment):
    python(experiment, "p", FOREVER)
    cluster.launch(experiment)
    before = cluster.describe_process("exp", "p")
    kill_supervision(cluster)
    assert RunDirectory(cluster._root / "exp").supervisor() is None
    assert cluster.describe_process("exp", "p") == before
    assert psutil.Process(supervisor_of(cluster)).ppid() == guardian_of(cluster)


def test_command_waits_for_the_guardian(cluster, experiment):
    """Otherwise, it would start a supervisor with another guardian."""
    python(experiment, "p", FOREVER)
    cluster.launch(experiment)
    guardian, supervisor = guardian_of(cluster), supervisor_of(cluster)
    kill(supervisor)
    assert all_running(cluster.describe_experiment("exp"))
    assert guardian_of(cluster) == guardian
    assert psutil.Process(supervisor_of(cluster)).ppid() == guardian


@pytest.mark.parametrize("end", ["finish", "stop", "delete", "refused"])
def test_nothing_is_left_when_the_supervisor_ends(cluster, experiment, monkeypatch, end):
    """Also no guardian of a launch that was refused."""
    mark = f"{os.getpid()}-{end}"
    monkeypatch.setenv("TEST_MARK", mark)
    python(experiment, "p", "pass" if end == "finish" else FOREVER)
    if end == "refused":
        experiment.new_process("q", command="no-such-thing")
        with pytest.raises(Exception, match="no-such-thing"):
            cluster.launch(experiment)
    else:
        cluster.launch(experiment)
        guardian = RunDirectory(cluster._root / "exp").guardian()
        if end == "finish":
            cluster.wait("exp", timeout=20)
        else:
            (cluster.stop if end == "stop" else cluster.delete)("exp")
            assert identify(guardian) is None, "the command waits for its exit"
    eventually(lambda: not with_environment("TEST_MARK", mark))


def with_environment(name, value):
    """Return the pids of the processes whose environment contains a variable."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(name) == value:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_guardian_leaves_if_no_supervisor_can_continue(cluster, experiment):
    python(experiment, "p", FOREVER)
    cluster.launch(experiment)
    (cluster._root / "exp" / "launcher.json").write_text("damaged")
    guardian = psutil.Process(guardian_of(cluster))
    kill(supervisor_of(cluster))
    eventually(lambda: guardian_of(cluster) is None)
    # It remains the parent of the process.
    assert guardian.is_running()
    cluster.delete("exp")
    guardian.wait(20)


CRASHES = """
import os
from symphony.supervised.supervisor.local_children import LocalChildren

class Children(LocalChildren):
    def adopt(self, processes, tracks):
        with open({count!r}, "a") as file:
            file.write("x")
        os.abort()
"""


def test_experiment_whose_supervisors_crash_can_be_deleted(
    cluster, experiment, tmp_path, monkeypatch
):
    """For the delays, see `tests/unit/supervised/test_guardian.py`."""
    count = tmp_path / "count"
    (tmp_path / "crashing_children.py").write_text(CRASHES.format(count=str(count)))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(type(cluster), "children", "crashing_children:Children")
    python(experiment, "p", FOREVER)
    cluster.launch(experiment)
    guardian = psutil.Process(guardian_of(cluster))
    kill(supervisor_of(cluster))
    eventually(lambda: count.exists() and len(count.read_text()) >= 2)
    with pytest.raises(BackendError):
        cluster.stop_processes("exp")
    cluster.delete("exp")
    guardian.wait(20)


def test_environment_of_a_new_supervisor_is_that_of_the_launcher(cluster, experiment, monkeypatch):
    """Also if its guardian was started by a supervisor."""
    monkeypatch.setenv("TEST_MARK", "of the launcher")
    monkeypatch.setattr(guarding, "_STABLE_SECONDS", 0.0)
    prints = "import os; print(os.environ['TEST_MARK'], os.environ.get('EXTRA'))\n" + FOREVER
    python(experiment, "p", prints)
    python(experiment, "last", FOREVER).set_env("EXTRA", "of the last one")
    cluster.launch(experiment)
    guardian, supervisor = guardian_of(cluster), supervisor_of(cluster)
    kill(guardian)
    eventually(lambda: guardian_of(cluster) not in (guardian, None))
    kill(supervisor)
    new_supervisor(cluster, supervisor)
    cluster.restart_processes("exp", ["p"])
    eventually(lambda: cluster.get_log("exp", "p").count("of the launcher None\n") == 2)
