"""Killed launchers and supervisors: no process is forgotten, and every status is correct."""

import contextlib
import json
import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from symphony import AlreadyExists, BackendError, Cluster, NotFound, State
from symphony.plan.restart_policy import Backoff
from symphony.supervised.record.directory import RunDirectory
from symphony.testing import until
from symphony.testing.contract import all_running
from symphony.testing.programs import FOREVER
from tests.starters import SAVES

from .conftest import eventually, kill, kill_supervision, marked, python, run_id_of, supervisor_of

LAUNCHER = """
import os, sys
from symphony import Cluster
experiment = Cluster.new("local", state_dir=sys.argv[1]).new_experiment("exp")
for number in range(20):
    process = experiment.new_process(f"p-{number}", command=["sleep", "1000"])
    process.set_env("TEST_MARK", sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
Cluster.new("local", state_dir=sys.argv[1]).launch(experiment)
print("launched", flush=True)
"""


def marked_processes(mark):
    """Return the pids of all processes that have the mark of a test."""
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
    """A process that is ready to launch, and the mark of the processes that it launches."""
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


@pytest.mark.parametrize("seed", range(3))  # tests/torture has other moments
def test_launcher_killed_at_a_random_moment(launcher, cluster, state, seed):
    process, mark = launcher
    process.stdin.write("go\n")
    process.stdin.flush()
    delay = random.Random(seed).uniform(0.0, 0.12)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(delay)
    process.kill()
    process.wait()

    def is_complete():
        """Return whether all of the experiment exists, or nothing of it."""
        if "exp" in cluster.list_experiments():
            return (
                all_running(cluster.describe_experiment("exp"))
                and len(marked_processes(mark)) == 20
            )
        return not marked_processes(mark) and not any(
            RunDirectory(state / name).is_locked() for name in left_in(state)
        )

    eventually(is_complete)
    cluster.delete("exp", purge=True)
    assert marked_processes(mark) == []
    again = cluster.new_experiment("exp")
    again.new_process("true", command="true")
    cluster.launch(again)
    cluster.wait("exp", timeout=20)
    cluster.delete("exp", purge=True)
    assert left_in(state) == []


def test_launcher_killed_before_its_supervisor_starts(cluster, experiment, state):
    code = (
        "import os, signal, sys; from symphony import Cluster;"
        "from symphony.supervised.supervisor import handover;"
        "handover._spawn_supervisor = lambda *_: os.kill(os.getpid(), signal.SIGKILL);"
        "cluster = Cluster.new('local', state_dir=sys.argv[1]);"
        "experiment = cluster.new_experiment('exp');"
        "experiment.new_process('p', command='true'); cluster.launch(experiment)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(state)], check=False).returncode == -9
    assert len(left_in(state)) == 1
    assert cluster.list_experiments() == []
    experiment.new_process("p", command="true")
    cluster.launch(experiment)
    assert left_in(state) == ["exp"]


def test_processes_outlive_a_killed_launcher(launcher, cluster):
    process, mark = launcher
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "launched\n"
    process.kill()
    process.wait()
    status = cluster.describe_experiment("exp")
    assert all_running(status)
    assert sorted(item.pid for item in status) == sorted(marked_processes(mark))


def test_status_if_a_killed_supervisor_cannot_be_replaced(cluster, experiment):
    python(experiment, "runs", FOREVER)
    python(experiment, "killed", FOREVER)
    python(experiment, "failed", "raise SystemExit(3)")
    experiment.new_process("waits", command="true").starts_after("runs", "succeeded")
    cluster.launch(experiment)
    until(
        cluster,
        "exp",
        lambda now: (
            [item.state.value for item in now] == ["running", "running", "failed", "pending"]
        ),
    )
    pid = cluster.describe_process("exp", "killed").pid
    settings = cluster._root / "exp" / "launcher.json"
    settings.write_text("damaged")
    kill_supervision(cluster)
    kill(pid)
    status = cluster.describe_experiment("exp")
    assert "supervisor was killed" in status.note
    assert f"no new supervisor could be started: {settings} cannot be read" in status.note
    states = {item.name: (item.state, item.exit_code) for item in status}
    assert states == {
        "runs": (State.RUNNING, None),
        "killed": (State.UNKNOWN, None),
        "failed": (State.FAILED, 3),
        "waits": (State.UNKNOWN, None),
    }
    assert all("supervisor was killed" in item.reason for item in status if item.name != "failed")
    run_id = run_id_of(cluster)
    assert marked(run_id)
    cluster.delete("exp")
    assert marked(run_id) == []


@pytest.mark.parametrize("seed", range(3))  # tests/torture has other moments
def test_supervisor_killed_at_a_random_moment(launcher, cluster, seed):
    process, mark = launcher
    process.stdin.write("go\n")
    process.stdin.flush()
    eventually(lambda: process.poll() is not None or cluster.list_experiments() or None)
    spins = random.Random(seed).randrange(0, 4000)
    for _ in range(spins):
        os.getpid()
    found = psutil.Process(supervisor_of(cluster)) if has_supervisor(cluster) else None
    if found is not None:
        kill(found.pid)
    process.wait(20)
    if "exp" in cluster.list_experiments():
        status = until(cluster, "exp", all_running)
        assert sorted(item.pid for item in status) == sorted(marked_processes(mark))
    cluster.delete("exp")
    assert marked_processes(mark) == []


def test_a_stop_command_without_a_supervisor_ignores_no_signals(cluster, experiment, tmp_path):
    """A script that ignores SIGINT can run the command that stops the experiment."""
    process = python(experiment, "p", FOREVER)
    process.stop_command(f"grep SigIgn /proc/self/status >{tmp_path}/masks; exit 1")
    cluster.launch(experiment)
    kill_supervision(cluster)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        cluster.delete("exp")
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    ignored = int((tmp_path / "masks").read_text().split()[1], 16)
    assert not ignored & 1 << signal.SIGINT - 1


def has_supervisor(cluster):
    try:
        return supervisor_of(cluster) is not None
    except AttributeError:
        return False


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_stop_continues_when_the_supervisor_was_killed(
    cluster, experiment, tmp_path, is_replaced
):
    """Each program receives one signal, and each command that stops a process runs once."""
    gate = tmp_path / "gate"
    experiment.new_process(
        "line", cmd=f"{sys.executable} -uc {shlex.quote(COUNTS)} {gate}; echo next"
    )
    python(experiment, "app", COUNTS, gate)
    commanded = python(experiment, "commanded", WAITS, gate)
    commanded.stop_command(f"echo run >>{tmp_path}/commands")
    python(experiment, "db", SAVES)
    for process in experiment.list_all_processes():
        process.ready(log="up")
        if process.name != "db":
            process.starts_after("db")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60, until="ready")
    run_id, supervisor = run_id_of(cluster), supervisor_of(cluster)
    os.kill(supervisor, signal.SIGTERM)
    for name in ("line", "app"):
        eventually(lambda name=name: cluster.get_log("exp", name) == "up\nsignal\n")
    eventually((tmp_path / "commands").exists)
    kill(supervisor)
    if is_replaced:
        # The new supervisor has continued the stop when the command returns.
        cluster.describe_experiment("exp")
    with ThreadPoolExecutor() as threads:
        # The stop of db, which does not follow the order any more, comes after those of the others.
        deletion = threads.submit(cluster.delete, "exp", in_order=False)
        eventually(lambda: log_of(cluster, "db") == "up\ngot SIGTERM\nsaved\n")
        gate.touch()
        deletion.result(60)
    assert marked(run_id) == []
    assert cluster.list_experiments() == []
    assert (tmp_path / "commands").read_text() == "run\n"
    # Tests of other backends can have left runs.
    latest = next(run for run in cluster.list_runs() if run.experiment == "exp")
    record = cluster.at_run(latest)
    for name in ("line", "app"):
        assert record.get_log("exp", name) == "up\nsignal\n1\n"


# Waits until a file exists.
WAITS = """
import os, sys, time
print("up")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""
# Also waits for the first signal, and counts the signals.
COUNTS = """
import os, signal, sys, time
signals = []
signal.signal(15, lambda *_: signals.append(print("signal")))
print("up")
while not (signals and os.path.exists(sys.argv[1])):
    time.sleep(0.01)
print(len(signals))
"""


def log_of(cluster, process):
    """Return a log without looking at the state, which would start a new supervisor."""
    return RunDirectory(cluster._root / "exp").log(process).read_text()


def test_slow_delete_keeps_an_experiment_launched_in_the_meantime(cluster, experiment, monkeypatch):
    from symphony.supervised.user_requests import stop

    def slow_stop(run, **options):
        """Let another program delete and launch before the directory is removed."""
        usual(run, **options)
        monkeypatch.setattr(stop, "stop", usual)
        cluster.launch(experiment, force=True)

    experiment.new_process("p", command=["sleep", "1000"])
    cluster.launch(experiment)
    before = run_id_of(cluster)
    usual = stop.stop
    monkeypatch.setattr(stop, "stop", slow_stop)
    cluster.delete("exp")
    assert run_id_of(cluster) != before
    assert all_running(cluster.describe_experiment("exp"))


def test_supervisor_killed_while_launching_is_a_failed_launch(
    cluster, experiment, monkeypatch, state
):
    experiment.new_process("p", command=["sleep", "1000"])
    broken = state.parent / "broken"
    broken.mkdir()
    (broken / "broken_children.py").write_text(
        "import os, signal\n"
        "from symphony.supervised.supervisor.local_children import LocalChildren\n"
        "class Children(LocalChildren):\n"
        "    def start(self, commands, env):\n"
        "        yield from super().start(commands, env)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.syspath_prepend(str(broken))
    monkeypatch.setattr(type(cluster), "children", "broken_children:Children")
    experiment.set_env("TEST_MARK", "killed-while-launching")
    with pytest.raises(BackendError, match="supervisor of 'exp' died"):
        cluster.launch(experiment)
    assert cluster.list_experiments() == []
    assert marked_processes("killed-while-launching") == []
    assert left_in(state) == []


def test_supervisor_writes_events_when_the_disk_has_space_again(cluster, experiment):
    """A limit on the size of files has the same effect as a full disk."""
    for name in ("one", "two"):
        experiment.new_process(name, command=["sleep", "1000"])
    cluster.launch(experiment)
    # The limit would also truncate the compiled modules that a supervisor writes when it begins.
    cluster.restart_processes("exp", ["one"])
    supervisor = supervisor_of(cluster)
    events = cluster._root / "exp" / "events.jsonl"
    unlimited = resource.prlimit(supervisor, resource.RLIMIT_FSIZE)
    known = events.read_bytes()
    # The limit allows ten bytes of the next event.
    limits = (len(known) + 10, unlimited[1])
    resource.prlimit(supervisor, resource.RLIMIT_FSIZE, limits)
    for process in cluster.describe_experiment("exp"):
        kill(process.pid)
    status = until(cluster, "exp", lambda now: "are not recorded yet" in now.note)
    assert not status.ended
    assert supervisor_of(cluster) == supervisor
    resource.prlimit(supervisor, resource.RLIMIT_FSIZE, unlimited)
    status = cluster.wait("exp", timeout=20)
    assert [item.exit_code for item in status] == [137, 137]
    # The supervisor removes the note when it has written the events.
    eventually(lambda: cluster.describe_experiment("exp").note == "")
    new = events.read_bytes().removeprefix(known).splitlines()
    assert [json.loads(line)["event"] for line in new[:2]] == ["exited", "exited"]


def test_launch_stops_what_a_killed_supervisor_and_its_process_have_left(cluster, experiment):
    experiment.new_process("p", cmd="setsid sleep 1000 & sleep 1000").termination_grace_period(1)
    cluster.launch(experiment)
    run_id = run_id_of(cluster)
    eventually(lambda: len(marked(run_id)) == 3)
    pid = cluster.describe_process("exp", "p").pid
    kill_supervision(cluster)
    kill(pid)
    assert len(marked(run_id)) == 2
    cluster.launch(experiment)
    assert marked(run_id) == []


def test_incomplete_event_is_ignored(cluster, experiment):
    experiment.new_process("p", command=["sleep", "1000"])
    cluster.launch(experiment)
    kill_supervision(cluster)
    with (cluster._root / "exp" / "events.jsonl").open("a") as events:
        events.write(json.dumps({"event": "exited", "process": "p", "code": 0, "at": 1.0})[:-5])
    assert cluster.describe_experiment("exp").processes[0].state is State.RUNNING
    # The next events are not a part of the incomplete line.
    assert cluster.stop_processes("exp")[0].displayed_state == "stopped"


def test_simultaneous_commands_start_one_new_supervisor(cluster, experiment):
    experiment.new_process("p", command=["sleep", "1000"])
    cluster.launch(experiment)
    before = cluster.describe_process("exp", "p")
    kill_supervision(cluster)
    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(cluster.describe_experiment, ["exp"] * 4))
    assert [status.processes for status in statuses] == [(before,)] * 4
    events = (cluster._root / "exp" / "events.jsonl").read_text()
    assert events.count('"supervisor-replaced"') == 1
    # The adopted process is a child of another process.
    kill(before.pid)
    status = cluster.wait("exp", timeout=20)
    assert status.processes[0].exit_code in (137, None)
    eventually(lambda: not (cluster._root / "exp" / "launcher.json").exists())


def test_new_supervisor_tests_the_health_of_the_processes_that_it_takes_over(
    cluster, experiment, tmp_path
):
    hangs = tmp_path / "hangs"
    process = python(experiment, "p", FOREVER).ready(log="up").restart_policy("OnFailure")
    process.healthy(command=["test", "!", "-e", str(hangs)], every=1, failures=2)
    cluster.launch(experiment)
    (before,) = cluster.wait("exp", until="ready", timeout=20)
    kill_supervision(cluster)
    hangs.touch()
    until(cluster, "exp", lambda status: status.processes[0].pid not in (None, before.pid))
    texts = [event.text for event in cluster.iter_events("exp", ["p"])]
    assert "unhealthy: exit code 1, 2 tests in a row" in texts


def test_new_supervisor_continues_delays_deadlines_and_tests(state):
    backoff = Backoff(first=1.5)
    cluster = Cluster.new("local", state_dir=str(state), backoff=backoff)
    experiment = cluster.new_experiment("exp", deadline="3s")
    experiment.new_process("fails", cmd="exit 3").restart_policy("OnFailure")
    tested = python(experiment, "tested", FOREVER).ready(log="never", timeout=2)
    experiment.new_process("later", command="true").starts_after(tested)
    cluster.launch(experiment)
    try:
        before = until(cluster, "exp", lambda now: now.processes[0].next_start is not None)
        before = until(
            cluster, "exp", lambda now: (now.processes[0].next_start or 0) > now.created + 1.4
        )
        kill_supervision(cluster)
        after = cluster.describe_experiment("exp")
        due = before.processes[0].next_start
        # On a busy machine, the delay and the deadline can have passed before the new supervisor
        # answers.
        was_in_time = after.now() < due
        if was_in_time:
            assert after.processes == before.processes
        assert after.deadline == before.deadline
        if was_in_time:
            until(cluster, "exp", lambda now: now.processes[0].restarts == 2)
            assert cluster.describe_process("exp", "fails").started >= due
        status = cluster.wait("exp", timeout=20)
        tested, later = status.processes[1:]
        assert tested.reason == "deadline exceeded"
        result = "no output line matches 'never'"
        never_started = f"never started: tested was not ready within 2 s: {result}"
        assert later.reason == never_started or not was_in_time
        assert status.deadline <= tested.ended
        assert tested.ended < status.deadline + 2 or not was_in_time
    finally:
        cluster.delete("exp")


def test_experiment_outlives_the_terminal_and_the_group_of_the_launcher(state):
    """The terminal of the launcher hangs up, and its process group is killed."""
    import pty

    code = (
        "import sys; from symphony import Cluster;"
        "cluster = Cluster.new('local', state_dir=sys.argv[1]);"
        "experiment = cluster.new_experiment('exp');"
        "experiment.new_process('p', command=['sleep', '1000']);"
        "cluster.launch(experiment); print('launched', flush=True); input()"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", code, str(state)])
    output = b""
    while b"launched" not in output:
        output += os.read(terminal, 100)
    os.close(terminal)
    os.killpg(pid, 9)
    os.waitpid(pid, 0)
    cluster = Cluster.new("local", state_dir=str(state))
    try:
        assert all_running(cluster.describe_experiment("exp"))
        assert cluster.describe_experiment("exp").note == ""
    finally:
        cluster.delete("exp")


def test_supervisor_outlives_its_removed_run_directory(cluster, experiment, tmp_path):
    """The supervisor exits after its processes."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    experiment.new_process("p", command=["sh", "-c", f"echo up; cat {gate}; echo down"]).set_env(
        "TEST_MARK", "by-hand"
    )
    cluster.launch(experiment)
    supervisor = psutil.Process(supervisor_of(cluster))
    # The supervisor may write to the directory at this moment, so it is renamed first.
    (cluster._root / "exp").rename(tmp_path / "away")
    shutil.rmtree(tmp_path / "away")
    gate.write_text("go")
    supervisor.wait(20)
    assert marked_processes("by-hand") == []


# --- another host ---


@pytest.fixture
def foreign(cluster, experiment):
    """An experiment of another host. One of its processes had exited, the others had not."""
    python(experiment, "p", FOREVER)
    experiment.new_process("exited", cmd="exit 3")
    experiment.new_process("later", command="true").starts_after("p", "succeeded")
    cluster.launch(experiment)
    status = until(cluster, "exp", lambda now: now.processes[1].state is State.FAILED)
    kill_supervision(cluster)
    kill(status.processes[0].pid)
    record = cluster._root / "exp" / "supervisor.json"
    original = json.loads(record.read_text())
    record.write_text(json.dumps({**original, "host": "oldname", "boot": "another"}))
    yield cluster
    if record.exists():
        record.write_text(json.dumps(original))


def test_process_of_another_host_is_unknown(foreign):
    now = foreign.describe_experiment("exp")
    assert "oldname" in now.note
    assert [process.state for process in now] == [State.UNKNOWN, State.FAILED, State.UNKNOWN]
    assert "oldname" in now.processes[0].reason
    assert now.processes[0].pid is None
    assert foreign.wait("exp", timeout=5) == now
    with pytest.raises(NotFound, match="oldname"):
        foreign.exec_command("exp", "p", "true")


@pytest.mark.parametrize(
    "verb", ["delete", "stop", "stop-processes", "launch", "force", "diff", "up"]
)
def test_experiment_of_another_host_is_refused_and_kept(foreign, verb):
    again = foreign.new_experiment("exp")
    again.new_process("p", command="true")
    directory = foreign._root / "exp"
    events = (directory / "events.jsonl").read_text()
    verbs = {
        "delete": lambda: foreign.delete("exp"),
        "stop": lambda: foreign.stop("exp"),
        "stop-processes": lambda: foreign.stop_processes("exp", ["p"]),
        "diff": lambda: foreign.diff(again),
        "up": lambda: foreign.up(again),
        "launch": lambda: foreign.launch(again),
        "force": lambda: foreign.launch(again, force=True),
    }
    with pytest.raises(AlreadyExists if verb == "launch" else BackendError) as refusal:
        verbs[verb]()
    assert "'exp' was launched on oldname" in str(refusal.value)
    assert f"remove the directory {directory}" in str(refusal.value)
    assert (directory / "events.jsonl").read_text() == events
    shutil.rmtree(directory)
    foreign.launch(again)
