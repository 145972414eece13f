"""Stopping, starting, restarting and signaling processes of a running experiment."""

import contextlib
import json
import os
import shlex
import signal
import sys
import threading

import pytest

from symphony import AlreadyExists, BackendError, Cluster, SpecError, State
from symphony.plan.restart_policy import Backoff
from symphony.supervised.record import control_socket
from symphony.supervised.record.directory import RunDirectory
from symphony.testing import until
from symphony.testing.programs import FOREVER, SIGNALED

from .conftest import eventually, kill, kill_supervision, marked, python, run_id_of, supervisor_of
from .test_stopping import DAEMON, SPAWN, STUBBORN, all_ready


def in_background(function, *args, **options):
    """Call a function in a thread. Return a function that waits for its result or its error."""
    results = []

    def target():
        try:
            results.append((function(*args, **options), None))
        except Exception as exc:
            results.append((None, exc))

    thread = threading.Thread(target=target)
    thread.start()

    def result():
        thread.join(20)
        value, error = results[0]
        if error is not None:
            raise error
        return value

    return result


def is_stopping(status):
    return any(process.displayed_state == "stopping" for process in status)


def test_stopped_experiment_waits_for_a_start_and_can_be_replaced(cluster, experiment):
    python(experiment, "one", FOREVER).ready(log="up")
    python(experiment, "two", FOREVER).starts_after("one", "ready").ready(log="up")
    cluster.launch(experiment)
    cluster.wait("exp", until="ready")
    cluster.stop_processes("exp")
    status = cluster.wait("exp", timeout=10)
    assert (status.displayed_state, status.exit_code) == ("stopped", 0)
    one, two = cluster.start_processes("exp")
    assert (one.state, two.state) == (State.RUNNING, State.PENDING)
    assert two.reason == "waiting for one to be ready"
    cluster.wait("exp", until="ready")
    with pytest.raises(AlreadyExists):
        cluster.launch(experiment)
    cluster.stop_processes("exp")
    supervisor = supervisor_of(cluster)
    cluster.launch(experiment)
    assert supervisor_of(cluster) != supervisor


def test_process_waits_for_a_stopped_process(cluster, experiment):
    python(experiment, "db", FOREVER)
    python(experiment, "web", FOREVER).starts_after("db")
    cluster.launch(experiment)
    until(cluster, "exp", lambda status: status.processes[1].state is State.RUNNING)
    cluster.stop_processes("exp", ["db"])
    (web,) = cluster.restart_processes("exp", ["web"])
    assert (web.state, web.reason) == (State.PENDING, "waiting for db to be ready (db is stopped)")
    cluster.start_processes("exp", ["db"])
    assert cluster.describe_process("exp", "web").state is State.RUNNING


def test_processes_restart_in_the_start_order(cluster, experiment, tmp_path):
    """The second process of the request must not start before the first one is ready again."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    program = f"print(open({str(gate)!r}).read() or 'up'); {FOREVER}"
    python(experiment, "db", program).ready(log="up")
    python(experiment, "web", FOREVER).starts_after("db", "ready")
    cluster.launch(experiment)
    gate.write_text("up\n")
    until(cluster, "exp", lambda status: status.processes[1].state is State.RUNNING)
    db, web = cluster.restart_processes("exp", ["web", "db"])
    assert (db.state, web.state) == (State.RUNNING, State.PENDING)
    gate.write_text("up\n")
    until(cluster, "exp", lambda status: status.processes[1].state is State.RUNNING)


def test_stopping_process_is_shown_and_refuses_other_requests_until_it_is_killed(
    cluster, experiment
):
    python(experiment, "stubborn", STUBBORN).ready(log="up").restart_policy("Always")
    python(experiment, "other", FOREVER)
    cluster.launch(experiment)
    before = cluster.wait("exp", until="ready").processes[0]
    restart = in_background(cluster.restart_processes, "exp", ["stubborn"])
    stubborn = until(cluster, "exp", is_stopping).processes[0]
    assert stubborn.state is State.RUNNING
    assert stubborn.displayed_reason(stubborn.kill_at - 11.5) == "kill in 12 s"
    busy = "another request is stopping or restarting stubborn"
    with pytest.raises(BackendError, match=busy):
        cluster.restart_processes("exp")
    # On a busy machine, the last of the attempts has no answer when the time has passed.
    with pytest.raises(TimeoutError, match=rf"{busy}.*\(waited 1 s\)|not done within 1 s"):
        cluster.start_processes("exp", timeout=1)
    with pytest.raises(TimeoutError, match="it continues"):
        cluster.stop_processes("exp", ["stubborn"], timeout=0.01)
    (stopped,) = cluster.stop_processes("exp", ["stubborn"], at_once=True)
    with pytest.raises(BackendError, match="another request stopped 'stubborn'"):
        restart()
    assert (stopped.displayed_state, stopped.exit_code) == ("stopped", 137)
    assert stopped.started == before.started


def test_a_start_waits_until_a_stop_is_done(cluster, experiment):
    python(experiment, "stubborn", STUBBORN).ready(log="up")
    python(experiment, "other", FOREVER)
    cluster.launch(experiment)
    before = cluster.wait("exp", until="ready").processes[0]
    stop = in_background(cluster.stop_processes, "exp", ["stubborn"])
    until(cluster, "exp", is_stopping)
    start = in_background(cluster.start_processes, "exp", ["stubborn"])
    cluster.stop_processes("exp", ["stubborn"], at_once=True)
    stop()  # what it returns can already be the new execution
    (started,) = start()
    assert started.state is State.RUNNING
    assert started.pid != before.pid


def test_all_descendants_of_a_stopped_process_exit(cluster, experiment):
    python(experiment, "parent", SPAWN.format("['sh', '-c', 'trap : 15; sleep 1000; sleep 1000']"))
    experiment.list_all_processes()[0].ready(log="up")
    python(experiment, "daemon", DAEMON).ready(log="up")
    python(experiment, "other", FOREVER)
    cluster.launch(experiment)
    cluster.wait("exp", until="ready")
    cluster.stop_processes("exp", ["parent", "daemon"], grace=0.1)
    pids = [process.pid for process in cluster.describe_experiment("exp") if process.pid]
    assert marked(run_id_of(cluster)) == pids


def test_start_skips_the_delay_of_a_restart_and_stop_ends_it(experiment, state):
    cluster = Cluster.new("local", state_dir=str(state), backoff=Backoff(first=100, longest=100))
    python(experiment, "other", FOREVER)
    experiment.new_process("crash", command="false").restart_policy("Always")

    def is_backing_off(status):
        return status.processes[1].next_start is not None and status.processes[1].restarts % 2 == 1

    try:
        cluster.launch(experiment)
        until(cluster, "exp", is_backing_off)
        cluster.start_processes("exp", ["crash"])
        status = until(
            cluster,
            "exp",
            lambda status: status.processes[1].restarts == 3 and is_backing_off(status),
        )
        (crash,) = cluster.stop_processes("exp", ["crash"])
        assert (crash.displayed_state, crash.reason) == ("stopped", "stopped before it restarted")
        assert status.processes[0].pid == cluster.describe_process("exp", "other").pid
    finally:
        cluster.delete("exp")


def test_gpus_are_free_while_a_process_is_stopped(state):
    cluster = Cluster.new("local", state_dir=str(state), gpus=[f"control-{os.getpid()}"])
    first, second = (cluster.new_experiment(name) for name in ("first", "second"))
    for experiment in (first, second):
        python(experiment, "learner", FOREVER).resource_limit(gpu=1)
    try:
        cluster.launch(first)
        cluster.restart_processes("first")
        cluster.stop_processes("first")
        cluster.launch(second)
        with pytest.raises(BackendError, match="another experiment has leased the GPUs of 'lear"):
            cluster.start_processes("first")
        cluster.delete("second")
        cluster.start_processes("first")
    finally:
        for name in ("first", "second"):
            cluster.delete(name)


def test_experiment_that_cannot_be_controlled_is_reported_in_one_line(cluster, experiment):
    python(experiment, "worker", FOREVER)
    cluster.launch(experiment)
    supervisor = supervisor_of(cluster)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        with pytest.raises(BackendError, match=rf"suspended.*kill -CONT {supervisor}"):
            cluster.restart_processes("exp")
    finally:
        os.kill(supervisor, signal.SIGCONT)
    with pytest.raises(SpecError, match="did you mean 'HUP'"):
        cluster.signal_processes("exp", None, "HPU")
    with pytest.raises(SpecError, match="grace must be"):
        cluster.stop_processes("exp", grace=-1)
    kill_supervision(cluster)
    (cluster._root / "exp" / "launcher.json").unlink()
    with pytest.raises(BackendError, match="supervisor of 'exp' was killed, so .* symphony ps exp"):
        cluster.restart_processes("exp")
    cluster.delete("exp")
    experiment = cluster.new_experiment("exp")
    experiment.new_process("quick", command="true")
    cluster.launch(experiment)
    cluster.wait("exp")
    with pytest.raises(BackendError, match="'exp' has finished; launch it again"):
        cluster.start_processes("exp")
    assert cluster.stop_processes("exp")[0].state is State.SUCCEEDED


@pytest.mark.parametrize("delay_events", [1, 2, 3])
def test_supervisor_killed_during_a_restart_is_replaced(cluster, experiment, delay_events):
    """The supervisor is killed after a number of events of the restart, which is completed."""
    python(experiment, "worker", FOREVER).ready(log="up")
    python(experiment, "other", FOREVER).ready(log="up")
    cluster.launch(experiment)
    before = cluster.wait("exp", until="ready")
    run_id = run_id_of(cluster)
    supervisor = supervisor_of(cluster)
    events = RunDirectory(cluster._root / "exp").events
    wanted = events.read_bytes().count(b"\n") + delay_events
    restart = in_background(cluster.restart_processes, "exp")
    eventually(lambda: events.read_bytes().count(b"\n") >= wanted)
    kill(supervisor)
    # The restart may have been done before the supervisor was killed.
    with contextlib.suppress(BackendError):
        restart()
    old = {process.pid for process in before}
    after = until(
        cluster, "exp", lambda now: all_ready(now) and not old & {process.pid for process in now}
    )
    assert sorted(process.pid for process in after) == sorted(marked(run_id))
    assert [process.restarts for process in after] == [1, 1]
    assert cluster.get_log("exp", "worker") == "up\nup\n"


def test_new_supervisor_completes_a_stop(cluster, experiment):
    python(experiment, "stubborn", STUBBORN).ready(log="up").restart_policy("Always")
    cluster.launch(experiment)
    cluster.wait("exp", until="ready")
    stop = in_background(cluster.stop_processes, "exp", grace=1.5)
    before = until(cluster, "exp", is_stopping)
    # The grace period begins with the signal, which a killed supervisor may not have sent.
    signaled = RunDirectory(cluster._root / "exp").stop_record
    eventually(lambda: signaled.exists() and signaled.read_text())
    kill_supervision(cluster)
    with pytest.raises(BackendError, match="before the stop was done; it is completed if it had"):
        stop()
    after = cluster.describe_process("exp", "stubborn")
    assert after.pid == before.processes[0].pid
    assert abs(after.kill_at - before.processes[0].kill_at) < 0.1
    status = until(cluster, "exp", lambda now: not is_stopping(now))
    assert status.displayed_state == "stopped"
    assert status.processes[0].ended >= after.kill_at - 0.1


def test_request_goes_on_if_its_client_disconnects(cluster, experiment):
    python(experiment, "worker", FOREVER).ready(log="up")
    cluster.launch(experiment)
    before = cluster.wait("exp", until="ready").processes[0]
    with control_socket.connect(RunDirectory(cluster._root / "exp")) as channel:
        channel.sendall(json.dumps({"request": "restart", "names": ["worker"]}).encode() + b"\n")
    status = until(
        cluster, "exp", lambda now: all_ready(now) and now.processes[0].pid != before.pid
    )
    assert status.processes[0].restarts == 1


def test_delete_ends_a_restart(cluster, experiment):
    python(experiment, "stubborn", STUBBORN).ready(log="up").termination_grace_period(1)
    cluster.launch(experiment)
    cluster.wait("exp", until="ready")
    restart = in_background(cluster.restart_processes, "exp", grace=100)
    until(cluster, "exp", is_stopping)
    cluster.delete("exp")
    with pytest.raises(BackendError, match="is being stopped|was deleted"):
        restart()


def test_signal_reaches_the_program_behind_a_shell_and_spares_others(cluster, experiment):
    line = f"{sys.executable} -c {shlex.quote(SIGNALED)}; echo after"
    experiment.new_process("handles", cmd=line).ready(log="^up")
    experiment.new_process("ignores", cmd="true; sleep 1000; echo after")
    cluster.launch(experiment)
    cluster.wait("exp", until="ready", timeout=30)
    with pytest.raises(BackendError, match="'ignores': it does not handle SIGUSR1, which would"):
        cluster.signal_processes("exp", None, "USR1")
    cluster.signal_processes("exp", ["handles"], "USR1")
    # The program exits with 7, and the shell continues.
    eventually(lambda: "after" in cluster.get_log("exp", "handles"))
    assert cluster.describe_process("exp", "ignores").state is State.RUNNING
    cluster.signal_processes("exp", ["ignores"], "USR1", force=True)
    eventually(lambda: cluster.describe_process("exp", "ignores").exit_code == 128 + signal.SIGUSR1)
    assert "after" not in cluster.get_log("exp", "ignores")
