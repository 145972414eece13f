"""Stopping: SIGTERM, the grace period, SIGKILL, and the children of processes."""

import concurrent.futures
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from symphony import State
from symphony.events import EventKind
from symphony.supervised.processes import membership
from symphony.supervised.processes.identity import RUN_ID_VARIABLE
from symphony.testing import until
from symphony.testing.programs import FOREVER
from tests.starters import SAVES as SAVES_WORK
from tests.starters import add_starters, lines_after_start

from .conftest import eventually, kill_supervision, marked, python, run_id_of, supervisor_of

STUBBORN = (
    "import signal, time; signal.signal(15, lambda *_: None); print('up')\n"
    "while True: time.sleep(100)"
)
TELLS_TIME = (
    "import signal, time; signal.signal(15, lambda *_: exit(print(time.time()))); print('up')\n"
    "time.sleep(1000)"
)
SPAWN = "import subprocess, sys, time; subprocess.Popen({}); print('up'); time.sleep(1000)"
SAVES = """
import signal, sys, time
signal.signal(15, lambda *_: (time.sleep(float(sys.argv[1])), print("saved"), exit(0)))
print("up")
while True:
    time.sleep(100)
"""
WAITS = """
import signal, sys, time
signal.signal(15, lambda *_: (open(sys.argv[1]).read(), print("saved"), exit(0)))
print("up")
while True:
    time.sleep(100)
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
os.wait()
print("up")
"""


def all_ready(status):
    return all(process.ready for process in status)


def test_process_is_killed_after_its_grace_period(cluster, experiment):
    python(experiment, "saves", SAVES, "0").ready(log="up")
    python(experiment, "stubborn", STUBBORN).ready(log="up").termination_grace_period(1)
    cluster.launch(experiment)
    until(cluster, "exp", all_ready)
    start = time.monotonic()
    cluster.stop("exp")
    assert time.monotonic() - start >= 1.0
    saves, stubborn = cluster.describe_experiment("exp")
    assert (saves.state, saves.exit_code) == (State.SUCCEEDED, 0)
    assert (stubborn.state, stubborn.exit_code) == (State.FAILED, 137)
    assert saves.stopped
    assert stubborn.stopped
    assert cluster.describe_experiment("exp").exit_code == 0
    assert cluster.get_log("exp", "saves") == "up\nsaved\n"


def test_stop_waits_as_long_as_the_grace_periods_last(cluster, experiment, monkeypatch):
    from symphony.supervised.user_requests import stop

    python(experiment, "stubborn", STUBBORN).ready(log="up").termination_grace_period(1)
    cluster.launch(experiment)
    until(cluster, "exp", all_ready)
    monkeypatch.setattr(stop, "SHORT_STOP_SECONDS", 0.05)
    monkeypatch.setattr(stop, "MARGIN_SECONDS", 0.5)
    cluster.stop("exp")
    assert cluster.describe_process("exp", "stubborn").exit_code == 137


def test_stop_at_once_skips_the_grace_period(cluster, experiment):
    python(experiment, "stubborn", STUBBORN).ready(log="up")
    cluster.launch(experiment)
    until(cluster, "exp", all_ready)
    cluster.stop("exp", at_once=True)
    assert cluster.describe_process("exp", "stubborn").exit_code == 137


def test_pending_processes_are_stopped(cluster, experiment):
    python(experiment, "first", FOREVER)
    experiment.new_process("second", command="true").starts_after("first", "succeeded")
    experiment.new_process("crash", command="false").restart_policy("Always")
    cluster.launch(experiment)
    until(
        cluster,
        "exp",
        lambda now: now.processes[2].restarts == 1 and now.processes[2].state is State.PENDING,
    )
    cluster.stop("exp")
    status = cluster.describe_experiment("exp")
    assert all(process.stopped for process in status)
    assert status.processes[1].started is None
    assert status.exit_code == 0


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(SPAWN.format("['sleep', '1000']"), id="same-group"),
        pytest.param(DAEMON + "time.sleep(1000)", id="daemon"),
        pytest.param(
            SPAWN.format(f"[sys.executable, '-c', {STUBBORN!r}]"), id="child-ignores-sigterm"
        ),
    ],
)
def test_delete_stops_grandchildren(cluster, experiment, program):
    process = python(experiment, "parent", program)
    process.ready(log="up").termination_grace_period(1)
    cluster.launch(experiment)
    until(cluster, "exp", all_ready)
    run_id = run_id_of(cluster)
    assert len(marked(run_id)) >= 2
    cluster.delete("exp")
    assert marked(run_id) == []


@pytest.mark.parametrize("program", [DAEMON, "import subprocess as s; s.Popen(['sleep', '1000'])"])
def test_leftover_children_are_stopped_at_the_end_of_the_experiment(cluster, experiment, program):
    # A stop that waited for the end of the grace period would exceed the time limit of the test.
    python(experiment, "parent", program).termination_grace_period(1000)
    cluster.launch(experiment)
    assert cluster.wait("exp", timeout=20).exit_code == 0
    run_id = run_id_of(cluster)
    eventually(lambda: marked(run_id) == [])
    cluster.delete("exp")


def test_child_of_an_exited_shell_has_the_grace_period(cluster, experiment):
    """SIGTERM kills the shell at once, while its child still saves its state."""
    line = f"true; {sys.executable} -u -c {shlex.quote(SAVES)} 0.5; true"
    experiment.new_process("shell", cmd=line).ready(log="up")
    cluster.launch(experiment)
    until(cluster, "exp", all_ready)
    cluster.stop("exp")
    assert "saved" in cluster.get_log("exp", "shell")


@pytest.mark.parametrize("number", ["TERM", "INT"])
def test_a_program_behind_a_starter_receives_one_signal(cluster, experiment, tmp_path, number):
    add_starters(experiment, tmp_path, signal=number)
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60, until="ready")
    cluster.stop("exp")
    names = [process.name for process in experiment.list_all_processes()]
    found = {name: lines_after_start(cluster.get_log("exp", name)) for name in names}
    assert found == {name: [f"got SIG{number}", "saved"] for name in names}
    codes = [cluster.describe_process("exp", name).exit_code for name in ("bare", "line")]
    assert codes == [0, 143]


def test_processes_stop_in_the_reverse_of_the_start_order(cluster, experiment):
    python(experiment, "db", SAVES_WORK).ready(log="up")
    python(experiment, "app", SAVES_WORK).ready(log="up").starts_after("db")
    python(experiment, "other", SAVES_WORK).ready(log="up")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60, until="ready")
    cluster.stop("exp")
    exits = [
        event.process for event in cluster.iter_events("exp") if event.kind is EventKind.STOPPED
    ]
    assert exits[0] == "app"
    assert sorted(exits[1:]) == ["db", "other"]


def test_a_deletion_without_the_order_hastens_a_stop_in_order(cluster, experiment, tmp_path):
    """The stop waits for the process that is stopped first. The deletion does not wait."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    python(experiment, "db", SAVES_WORK).ready(log="up")
    python(experiment, "app", WAITS, str(gate)).ready(log="up").starts_after("db")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60, until="ready")
    os.kill(supervisor_of(cluster), signal.SIGTERM)
    eventually(lambda: state_of(cluster, "app") == "stopping")
    assert lines_after_start(cluster.get_log("exp", "db")) == []
    with concurrent.futures.ThreadPoolExecutor() as threads:
        deletion = threads.submit(cluster.delete, "exp", in_order=False)
        eventually(
            lambda: lines_after_start(cluster.get_log("exp", "db")) == ["got SIGTERM", "saved"]
        )
        assert state_of(cluster, "app") == "stopping"
        gate.write_text("go")
        deletion.result(60)
    assert cluster.list_experiments() == []


def state_of(cluster, process):
    return cluster.describe_process("exp", process).displayed_state


def test_a_command_stops_a_process_in_its_environment(cluster, experiment, tmp_path):
    program = python(experiment, "server", SAVES_WORK, start_dir=str(tmp_path), env={"FILE": "pid"})
    program.ready(log="up").stop_command("kill -INT $(cat $FILE)")
    failing = python(experiment, "failing", SAVES_WORK).ready(log="up")
    failing.stop_command(["sh", "-c", "echo no server; exit 3"])
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60, until="ready")
    (tmp_path / "pid").write_text(str(cluster.describe_process("exp", "server").pid))
    cluster.stop_processes("exp")
    assert lines_after_start(cluster.get_log("exp", "server")) == ["got SIGINT", "saved"]
    assert lines_after_start(cluster.get_log("exp", "failing")) == ["got SIGTERM", "saved"]
    note = cluster.describe_experiment("exp").note
    assert "the stop_command of 'failing' failed with exit code 3: no server" in note


def test_the_whole_group_receives_the_signal_if_this_is_set(cluster, experiment):
    child = f"[sys.executable, '-c', {SAVES_WORK!r}]"
    start = f"import signal, subprocess, sys; subprocess.Popen({child})"
    python(experiment, "p", f"{start}\n{SAVES_WORK}").signal_group()
    python(experiment, "q", f"{start}\n{SAVES_WORK}")
    cluster.launch(experiment)
    eventually(lambda: all(cluster.get_log("exp", name).count("up") == 2 for name in "pq"))
    cluster.stop("exp")
    # The child of q receives the signal when its parent has exited.
    both = ["got SIGTERM", "got SIGTERM", "saved", "saved"]
    assert lines_after_start(cluster.get_log("exp", "p")) == ["up", *both]
    assert lines_after_start(cluster.get_log("exp", "q")) == ["up", *["got SIGTERM", "saved"] * 2]


def test_repeated_signals_stop_the_experiment_once(cluster, experiment, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    python(experiment, "saves", WAITS, str(gate)).ready(log="up")
    cluster.launch(experiment)
    until(cluster, "exp", all_ready)
    for _ in range(3):
        os.kill(supervisor_of(cluster), signal.SIGTERM)
    gate.write_text("go")
    cluster.stop("exp")
    assert cluster.describe_process("exp", "saves").exit_code == 0


def test_finished_supervisor_has_written_no_errors(cluster, experiment):
    experiment.new_process("p", command="true")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=20)
    run = cluster._root / "exp"
    eventually(lambda: '"finished"' in (run / "events.jsonl").read_text())
    assert (run / "supervisor.log").read_text() == ""


def test_child_forked_during_the_process_scan_is_found(monkeypatch):
    """The parent exits before it is examined, and its child is missing from the first listing."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    with subprocess.Popen(["sleep", "1000"], env={RUN_ID_VARIABLE: "some-run"}) as child:
        listings = iter([[gone.pid], [gone.pid, child.pid], [gone.pid, child.pid]])
        monkeypatch.setattr(membership, "list_pids", lambda: next(listings))
        found = membership.RunProcesses("some-run").find()
        child.kill()
    assert [process.pid for process in found] == [child.pid]


def test_delete_stops_the_processes_of_a_killed_supervisor_in_order(cluster, experiment):
    python(experiment, "db", TELLS_TIME).ready(log="up")
    stubborn = python(experiment, "stubborn", STUBBORN).ready(log="up").starts_after("db")
    stubborn.termination_grace_period(1)
    cluster.launch(experiment)
    cluster.wait("exp", until="ready", timeout=60)
    run_id = run_id_of(cluster)
    kill_supervision(cluster)
    start = time.time()
    cluster.delete("exp")
    # Tests of other backends can have left runs.
    latest = next(run for run in cluster.list_runs() if run.experiment == "exp")
    record = cluster.at_run(latest)
    _, stopped = record.get_log("exp", "db").split()
    assert float(stopped) - start >= 1
    assert marked(run_id) == []
    assert cluster.list_experiments() == []
