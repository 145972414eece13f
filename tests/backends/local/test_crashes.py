"""Launchers and supervisors that are killed: nothing is unaccounted for, and no status lies."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys

import psutil
import pytest

from symphony import AlreadyExists, BackendError, Cluster, NotFound, State
from symphony.host.run.directory import RunDirectory
from symphony.testing import until
from symphony.testing.contract import all_running
from symphony.testing.programs import FOREVER

from .conftest import eventually, kill, marked, python, run_id_of, supervisor_of

LAUNCHER = """
import os, sys
from symphony import Cluster
experiment = Cluster.new("local", state_dir=sys.argv[1]).new_experiment("exp")
for number in range(20):
    experiment.new_process(f"p-{number}", command=["sleep", "1000"]).set_env("TEST_MARK", sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
Cluster.new("local", state_dir=sys.argv[1]).launch(experiment)
print("launched", flush=True)
"""


def carrying(mark):
    """Ids of all processes that carry a test's own mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get("TEST_MARK") == mark
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def launcher(state, request):
    """A launcher in a process of its own, ready to launch, with the mark of what it launches."""
    mark = f"{os.getpid()}-{request.node.name}"
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(state), mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    yield process, mark
    process.kill()
    process.communicate()


def left_in(state):
    return [name for name in os.listdir(state) if name != ".lock"] if state.exists() else []


@pytest.mark.parametrize("seed", range(8))
def test_a_launcher_killed_at_a_random_moment(launcher, cluster, state, seed):
    process, mark = launcher
    process.stdin.write("go\n")
    process.stdin.flush()
    delay = random.Random(seed).uniform(0.0, 0.12)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(delay)
    process.kill()
    process.wait()

    def settled():
        """All of it is there, or none of it."""
        if "exp" in cluster.list_experiments():
            return all_running(cluster.describe_experiment("exp")) and len(carrying(mark)) == 20
        return not carrying(mark) and not any(
            RunDirectory(state / name).is_locked() for name in left_in(state)
        )

    eventually(settled)
    cluster.delete("exp")
    assert carrying(mark) == []
    again = cluster.new_experiment("exp")
    again.new_process("true", command="true")
    cluster.launch(again)
    cluster.wait("exp", timeout=20)
    cluster.delete("exp")
    assert left_in(state) == []


def test_a_launcher_killed_before_its_supervisor_lives(cluster, experiment, state):
    code = (
        "import os, signal, sys; from symphony import Cluster; from symphony.host.supervisor import handover as detach;"
        "detach._spawn_supervisor = lambda *_: os.kill(os.getpid(), signal.SIGKILL);"
        "cluster = Cluster.new('local', state_dir=sys.argv[1]); experiment = cluster.new_experiment('exp');"
        "experiment.new_process('p', command='true'); cluster.launch(experiment)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(state)], check=False).returncode == -9
    assert len(left_in(state)) == 1
    assert cluster.list_experiments() == []
    experiment.new_process("p", command="true")
    cluster.launch(experiment)
    assert left_in(state) == ["exp"]


def test_a_launcher_that_is_killed_leaves_its_processes_running(launcher, cluster):
    process, mark = launcher
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "launched\n"
    process.kill()
    process.wait()
    status = cluster.describe_experiment("exp")
    assert all_running(status)
    assert sorted(item.pid for item in status) == sorted(carrying(mark))


def test_a_dead_supervisor_is_said_to_be_dead(cluster, experiment):
    python(experiment, "lives", FOREVER)
    python(experiment, "ends", FOREVER)
    python(experiment, "ended", "raise SystemExit(3)")
    experiment.new_process("waits", command="true").starts_after("lives", "succeeded")
    cluster.launch(experiment)
    until(
        cluster,
        "exp",
        lambda now: (
            [item.state.value for item in now] == ["running", "running", "failed", "pending"]
        ),
    )
    ends = cluster.describe_process("exp", "ends").pid
    kill(supervisor_of(cluster))
    kill(ends)
    status = cluster.describe_experiment("exp")
    assert "supervisor was killed" in status.note
    states = {item.name: (item.state, item.exit_code) for item in status}
    assert states == {
        "lives": (State.RUNNING, None),
        "ends": (State.UNKNOWN, None),
        "ended": (State.FAILED, 3),
        "waits": (State.UNKNOWN, None),
    }
    assert all("supervisor was killed" in item.reason for item in status if item.name != "ended")
    run_id = run_id_of(cluster)
    assert marked(run_id)
    cluster.delete("exp")
    assert marked(run_id) == []


@pytest.mark.parametrize("seed", range(8))
def test_a_supervisor_killed_at_a_random_moment(launcher, cluster, seed):
    process, mark = launcher
    process.stdin.write("go\n")
    process.stdin.flush()
    eventually(lambda: process.poll() is not None or cluster.list_experiments() or None)
    spins = random.Random(seed).randrange(0, 4000)
    for _ in range(spins):
        os.getpid()
    found = psutil.Process(supervisor_of(cluster)) if supervisor_lives(cluster) else None
    if found is not None:
        kill(found.pid)
    process.wait(20)
    if "exp" in cluster.list_experiments():
        status = cluster.describe_experiment("exp")
        shown = sorted(item.pid for item in status if item.state is State.RUNNING)
        assert shown == sorted(carrying(mark))
        assert not any(item.state is State.SUCCEEDED for item in status)
    cluster.delete("exp")
    assert carrying(mark) == []


def supervisor_lives(cluster):
    try:
        return supervisor_of(cluster) is not None
    except AttributeError:
        return False


def test_a_supervisor_killed_during_delete(cluster, experiment):
    """It has told all to end, and none has yet; who deletes tells them again."""
    names = [f"p-{number}" for number in range(5)]
    for name in names:
        python(experiment, name, TOLD_TWICE).ready(log="up")
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: all(item.ready for item in now))
    run_id, supervisor = run_id_of(cluster), supervisor_of(cluster)
    code = "import sys; from symphony import Cluster; Cluster.new('local', state_dir=sys.argv[1]).delete('exp')"
    deleting = subprocess.Popen([sys.executable, "-c", code, str(cluster._root)])
    eventually(lambda: all(cluster.get_log("exp", name) == "up\ntold\n" for name in names))
    kill(supervisor)
    assert deleting.wait(60) == 0
    assert marked(run_id) == []
    assert cluster.list_experiments() == []


TOLD_TWICE = """
import signal, time
def told(*_):
    signal.signal(15, signal.SIG_DFL)
    print("told")
signal.signal(15, told)
print("up")
while True:
    time.sleep(100)
"""


def test_a_delete_that_is_late_leaves_what_was_launched_under_the_name_meanwhile(
    cluster, experiment, monkeypatch
):
    from symphony.host import stop

    def stopped(run, **options):
        """Its second half is late: another deletes and launches first."""
        usual(run, **options)
        monkeypatch.setattr(stop, "stop", usual)
        cluster.launch(experiment, force=True)

    experiment.new_process("p", command=["sleep", "1000"])
    cluster.launch(experiment)
    before = run_id_of(cluster)
    usual = stop.stop
    monkeypatch.setattr(stop, "stop", stopped)
    cluster.delete("exp")
    assert run_id_of(cluster) != before
    assert all_running(cluster.describe_experiment("exp"))


def test_a_supervisor_that_dies_while_launching_is_a_failed_launch(
    cluster, experiment, monkeypatch, state
):
    experiment.new_process("p", command=["sleep", "1000"])
    broken = state.parent / "broken"
    broken.mkdir()
    (broken / "broken_children.py").write_text(
        "import os, signal\n"
        "from symphony_local.children import LocalChildren\n"
        "class Children(LocalChildren):\n"
        "    def start(self, commands, env):\n"
        "        yield from super().start(commands, env)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.syspath_prepend(str(broken))
    monkeypatch.setattr(type(cluster), "children", "broken_children:Children")
    experiment.set_env("TEST_MARK", "dies-while-launching")
    with pytest.raises(BackendError, match="supervisor of 'exp' died"):
        cluster.launch(experiment)
    assert cluster.list_experiments() == []
    assert carrying("dies-while-launching") == []
    assert left_in(state) == []


def test_a_torn_event_is_not_there_yet(cluster, experiment):
    experiment.new_process("p", command=["sleep", "1000"])
    cluster.launch(experiment)
    kill(supervisor_of(cluster))
    with (cluster._root / "exp" / "events.jsonl").open("a") as events:
        events.write(json.dumps({"event": "exited", "process": "p", "code": 0, "at": 1.0})[:-5])
    assert cluster.describe_experiment("exp").processes[0].state is State.RUNNING


def test_the_terminal_and_the_group_of_the_launcher_may_go(state):
    """The launcher leads a session on a terminal, which hangs up; its group is killed."""
    import pty

    code = (
        "import sys; from symphony import Cluster; cluster = Cluster.new('local', state_dir=sys.argv[1]);"
        "experiment = cluster.new_experiment('exp'); experiment.new_process('p', command=['sleep', '1000']);"
        "cluster.launch(experiment); print('launched', flush=True); input()"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", code, str(state)])
    said = b""
    while b"launched" not in said:
        said += os.read(terminal, 100)
    os.close(terminal)
    os.killpg(pid, 9)
    os.waitpid(pid, 0)
    cluster = Cluster.new("local", state_dir=str(state))
    try:
        assert all_running(cluster.describe_experiment("exp"))
        assert cluster.describe_experiment("exp").note == ""
    finally:
        cluster.delete("exp")


def test_a_run_directory_that_is_removed_by_hand_does_not_stop_the_rest(
    cluster, experiment, tmp_path
):
    """The supervisor goes on, and ends when its processes have."""
    import shutil

    gate = tmp_path / "gate"
    os.mkfifo(gate)
    experiment.new_process("p", command=["sh", "-c", f"echo up; cat {gate}; echo down"]).set_env(
        "TEST_MARK", "by-hand"
    )
    cluster.launch(experiment)
    supervisor = psutil.Process(supervisor_of(cluster))
    # In one step: the supervisor may be writing to it just now.
    (cluster._root / "exp").rename(tmp_path / "away")
    shutil.rmtree(tmp_path / "away")
    gate.write_text("go")
    supervisor.wait(20)
    assert carrying("by-hand") == []


# --- another host, or this one under another name ---


@pytest.fixture
def away(cluster, experiment):
    """An experiment whose supervisor and processes ended with a host that had another name; one was over by then."""
    python(experiment, "p", FOREVER)
    experiment.new_process("over", cmd="exit 3")
    experiment.new_process("later", command="true").starts_after("p", "succeeded")
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[1].state is State.FAILED)
    kill(supervisor_of(cluster))
    kill(cluster.describe_process("exp", "p").pid)
    record = cluster._root / "exp" / "supervisor.json"
    signed = json.loads(record.read_text())
    record.write_text(json.dumps({**signed, "host": "oldname", "boot": "another"}))
    yield cluster
    if record.exists():
        record.write_text(json.dumps(signed))


def test_what_runs_on_another_host_is_not_told_as_running(away):
    now = away.describe_experiment("exp")
    assert "oldname" in now.note
    assert [process.state for process in now] == [State.UNKNOWN, State.FAILED, State.UNKNOWN]
    assert "oldname" in now.processes[0].reason
    assert now.processes[0].pid is None
    assert away.wait("exp", timeout=5) == now
    with pytest.raises(NotFound, match="oldname"):
        away.exec_command("exp", "p", "true")


@pytest.mark.parametrize("what", ["delete", "stop", "launch", "force"])
def test_the_way_out_of_an_experiment_of_another_host_is_said_and_nothing_is_lost(away, what):
    again = away.new_experiment("exp")
    again.new_process("p", command="true")
    folder = away._root / "exp"
    events = (folder / "events.jsonl").read_text()
    verbs = {
        "delete": lambda: away.delete("exp"),
        "stop": lambda: away.stop("exp"),
        "launch": lambda: away.launch(again),
        "force": lambda: away.launch(again, force=True),
    }
    with pytest.raises(AlreadyExists if what == "launch" else BackendError) as refusal:
        verbs[what]()
    assert "'exp' was launched on oldname" in str(refusal.value)
    assert f"remove the directory {folder}" in str(refusal.value)
    assert (folder / "events.jsonl").read_text() == events
    shutil.rmtree(folder)
    away.launch(again)
