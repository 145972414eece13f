"""Running programs with an API server in memory, whose Pods are processes of this machine.

The tests are about the start order, waits, disruptions, and killed supervisors.

How a node runs, tests and stops a program is tested on a real cluster.
"""

import itertools
import os
import select
import signal
import socket
import threading
from urllib.parse import parse_qs, urlsplit

import pytest

from symphony.cluster.run_results import find_run_usage
from symphony.errors import BackendError, NotFound
from symphony.events import EventKind
from symphony.status import State
from symphony.testing.contract import all_running, until
from symphony.usage import ProcessUsage
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.lifecycle import attempts
from symphony_kube.lifecycle.supervisor.detached import directory_of
from symphony_kube.state.control_state import decode_control
from symphony_kube.user_requests.operation import Operation
from tests.backends.kube.conftest import (
    FOREVER,
    cpu_of,
    managed_objects,
    metrics,
    python,
    run_of,
    running_pods,
    served,
    unschedulable,
    wait_until,
)
from tests.backends.kube.held import HELD_BY_FILE
from tests.backends.kube.watch.test_watch import cut, through
from tests.cli import in_process

__all__ = ["through"]


@pytest.fixture
def kube_cluster(local_pods_cluster):
    return local_pods_cluster


def test_processes_that_can_never_start_are_not_created(kube_cluster, shared, name):
    exp = shared.new_experiment(name)
    python(exp, "bad", "raise SystemExit(3)")
    python(exp, "silent", FOREVER).ready(log="^never$", timeout=1)
    python(exp, "after-bad", FOREVER).starts_after("bad", "succeeded")
    python(exp, "after-that", FOREVER).starts_after("after-bad", "started")
    python(exp, "after-silent", FOREVER).starts_after("silent")
    shared.launch(exp)
    shared.wait(name, until="ready", timeout=60)
    assert managed_objects(kube_cluster)["pods"] == [f"{name}-{each}" for each in ("bad", "silent")]
    status = {process.name: process for process in shared.describe_experiment(name)}
    assert (
        status["after-bad"].state
        is status["after-that"].state
        is status["after-silent"].state
        is State.FAILED
    )
    assert status["after-bad"].reason == "never started: bad failed"
    assert status["after-silent"].reason == "never started: silent was not ready within 1 s"
    shared.delete(name)


@pytest.mark.parametrize("end", ["client", "stop"])
def test_an_experiment_ends_although_a_process_could_never_start(shared, name, end):
    """When the server is stopped, nothing but the record shows that it was not ready in time."""
    exp = shared.new_experiment(name)
    python(exp, "server", FOREVER).ready(log="^never$", timeout=0.5)
    python(exp, "client", FOREVER).starts_after("server")
    if end == "client":
        exp.ends_with = ["client"]
    shared.launch(exp)
    if end == "stop":
        shared.wait(name, until="ready", timeout=60)
        shared.stop(name)
    server, client = shared.wait(name, timeout=60)
    reasons = {"client": "the experiment ended with client", "stop": "stopped"}
    assert (server.stopped, server.reason) == (True, reasons[end])
    assert client.reason == "never started: server was not ready within 0.5 s"
    shared.delete(name)


def test_processes_wait_for_members_of_a_group(kube_cluster, shared, name):
    exp = shared.new_experiment(name)
    group = exp.new_process_group("team")
    python(group, "one", f"print('one is up'); {FOREVER}").ready(log="up")
    python(group, "two", f"print('two is up'); {FOREVER}").ready(log="up")
    python(exp, "after", FOREVER).starts_after("one").starts_after("two")
    shared.launch(exp)
    shared.wait(name, until="started", timeout=60)
    pod = kube_cluster.raw.call("GET", kube_cluster.path(f"pods/{name}-team"))
    assert pod["metadata"]["annotations"]["symphony/ready"] == "one,two"
    assert f"{name}-after" in managed_objects(kube_cluster)["pods"]
    shared.delete(name)


# A process that is ready when a file exists.
READY_LATER = """
import os, sys, time
print("begins", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
print("up", flush=True)
time.sleep(99)
"""


def test_process_for_which_nobody_waits_is_ready_when_its_log_shows_it(
    kube_cluster, shared, name, tmp_path
):
    """Nothing supervises the experiment. Whoever asks reads the log, and records the result."""
    gate = tmp_path / "gate"
    exp = shared.new_experiment(name)
    python(exp, "server", READY_LATER, str(gate)).ready(log="^up")
    python(exp, "other", f"print('up'); {FOREVER}").ready(log="^up")
    shared.launch(exp)
    until(shared, name, all_running)
    wait_until(lambda: shared.describe_process(name, "other").ready)
    assert not shared.describe_process(name, "server").ready
    with shared.watch_experiment(name) as read:
        assert [process.ready for process in read().statuses[0]] == [False, True]
        gate.touch()
        shared.wait(name, until="ready", timeout=60)
        assert [process.ready for process in read().statuses[0]] == [True, True]
    for process in ("server", "other"):
        pod = kube_cluster.raw.call("GET", kube_cluster.path(f"pods/{name}-{process}"))
        assert pod["metadata"]["annotations"]["symphony/ready"] == process
    shared.delete(name)


def test_events_show_when_a_process_was_ready_before_it_was_observed(shared, name):
    exp = shared.new_experiment(name)
    python(exp, "server", UP).ready(log="^up")
    python(exp, "other", FOREVER)
    shared.launch(exp)
    shared.wait(name, until="ready", timeout=60)
    events = list(shared.iter_events(name))
    kinds = {
        process: [event.kind for event in events if event.process == process]
        for process in ("server", "other")
    }
    assert kinds == {
        "server": [EventKind.STARTED, EventKind.READY],
        "other": [EventKind.STARTED],
    }
    shared.delete(name)


def test_process_is_ready_although_nobody_read_its_log_in_time(shared, name):
    exp = shared.new_experiment(name)
    python(exp, "server", UP).ready(log="^up", timeout=0.001)
    python(exp, "silent", FOREVER).ready(log="^never$", timeout=0.001)
    shared.launch(exp)
    wait_until(lambda: shared.get_log(name, "server") == "up\n")
    server, silent = shared.wait(name, until="ready", timeout=60)
    assert (server.ready, server.not_ready_in_time) == (True, False)
    assert (silent.ready, silent.not_ready_in_time) == (False, True)
    shared.delete(name)


LAST_WORD = """
import signal, time
def stop(*_):
    time.sleep(SECONDS)
    print(time.time(), flush=True)
    raise SystemExit
signal.signal(15, stop)
print("up", flush=True)
time.sleep(99)
"""


def test_wait_until_started_and_ready(shared, name, tmp_path):
    experiment = shared.new_experiment(name)
    late = f"{HELD_BY_FILE}\nprint('up')\n{FOREVER}"
    python(experiment, "server", late, str(tmp_path / "go")).ready(log="^up", timeout=600)
    python(experiment, "bad", "raise SystemExit(3)")
    # Otherwise the log of the server would not be searched.
    python(experiment, "after", FOREVER).starts_after("server")
    both = ["server", "bad"]
    shared.launch(experiment)
    with pytest.raises(
        TimeoutError, match=f"experiment '{name}' is not ready after 0.1 s: .*server"
    ):
        shared.wait(name, until="ready", timeout=0.1, processes=both)
    started = shared.wait(name, until="started", timeout=60, processes=both)
    assert all(item.started for item in started.processes[:2])
    assert not started.processes[0].ready
    until(shared, name, lambda status: status.processes[1].state is State.FAILED)
    (tmp_path / "go").touch()
    ready = shared.wait(name, until="ready", timeout=60, processes=both)
    assert ready.processes[0].ready
    assert ready.processes[1].state is State.FAILED
    with pytest.raises(
        TimeoutError, match=f"experiment '{name}' is still running after 0.1 s: server"
    ):
        shared.wait(name, timeout=0.1)
    shared.delete(name)


def test_delete_follows_the_reverse_of_the_start_order(shared, name):
    exp = shared.new_experiment(name)
    python(exp, "db", LAST_WORD.replace("SECONDS", "0")).ready(log="^up")
    app = python(exp, "app", LAST_WORD.replace("SECONDS", "0.5"))
    app.starts_after("db", "ready")
    shared.launch(exp)
    wait_until(lambda: len(list(shared.iter_logs(name))) == 2)
    shared.delete(name)
    run = next(run for run in shared.list_runs() if run.experiment == name)
    record = shared.at_run(run)
    _, app_exit = record.get_log(name, "app").splitlines()
    _, db_exit = record.get_log(name, "db").splitlines()
    assert float(app_exit) <= float(db_exit)


def test_pods_that_a_user_deletes(kube_cluster, shared, name):
    """A Pod is created again, also if it is the only one, unless its restart policy is Never.

    `start` says why it does not start such a process, and `up` starts it.
    """
    exp = shared.new_experiment(name)
    python(exp, "server", FOREVER).restart_policy("Always")
    shared.launch(exp)
    wait_until(lambda: all_running(shared.describe_experiment(name)))
    (first,) = running_pods(kube_cluster, name).values()
    kube_cluster.raw.call("DELETE", kube_cluster.path(f"pods/{first}"))
    (second,) = wait_until(lambda: set(running_pods(kube_cluster, name).values()) - {first})
    wait_until(lambda: all_running(shared.describe_experiment(name)))
    (process,) = shared.describe_experiment(name)
    assert process.reason.startswith("lost: its Pod was deleted; started again on ")
    python(exp, "task", FOREVER)
    shared.up(exp)
    task = kube_cluster.path(f"pods/{name}-task")
    kube_cluster.raw.call("DELETE", task)
    wait_until(lambda: kube_cluster.raw.find(task) is None)
    with pytest.raises(BackendError, match="task cannot be started, because the Pod was deleted"):
        shared.start_processes(name, ["task"])
    changes = shared.up(exp)
    assert changes.names("started") == ["task"]
    wait_until(lambda: all_running(shared.describe_experiment(name)))
    assert second in running_pods(kube_cluster, name).values()
    shared.delete(name)
    assert running_pods(kube_cluster, name) == {}


def test_a_supervisor_of_another_machine_starts_nothing_during_a_deletion(
    kube_cluster, kube_faults, open_cluster, name, monkeypatch
):
    """`delete` stops the client before the server, and does not find the supervisor here."""
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    python(exp, "server", FOREVER).restart_policy("Always")
    client = python(exp, "client", FOREVER).restart_policy("Always")
    client.starts_after("server", "started")
    cluster.launch(exp)
    wait_until(lambda: all_running(cluster.describe_experiment(name)))
    supervisor = os.pidfd_open(
        directory_of(KubeExperiment(cluster.api, cluster.scope(name))).holder()
    )
    created = kube_faults.count(method="POST", path="/pods")
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    cluster.delete(name)
    select.select([supervisor], [], [])
    os.close(supervisor)
    assert kube_faults.count(method="POST", path="/pods") == created
    assert managed_objects(kube_cluster) == {}


def kill_supervisor(cluster, name):
    """Kill the supervisor of an experiment. The next command starts another one."""
    pid = directory_of(KubeExperiment(cluster.api, cluster.scope(name))).holder()
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([process], [], [])
    os.close(process)


def test_killed_supervisors_complete_the_restart_of_a_unit(
    kube_cluster, kube_faults, open_cluster, name
):
    """A unit starts again because the Pod of a rank is deleted. Its supervisors are killed when the
    restart was recorded in only one of the other ranks, and before the new Pods are created.
    """
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    for process in exp.new_ranks("unit", 3, command=["python3", "-u", "-c", FOREVER]):
        process.restart_policy("OnFailure", max_restarts=1).termination_grace_period(1)
    cluster.launch(exp)
    wait_until(lambda: all_running(cluster.describe_experiment(name)))
    kube_faults.drop(method="PATCH", path="/pods/.*unit-2")
    deleted = kube_cluster.path(f"pods/{name}-unit-1")
    kube_cluster.raw.call("DELETE", deleted, {"gracePeriodSeconds": 0})
    wait_until(lambda: kube_faults.count(method="PATCH", path="/pods/.*unit-2"))
    kill_supervisor(cluster, name)
    kube_faults.clear()
    created = kube_faults.count(method="POST", path="/pods")
    kube_faults.drop(method="POST", path="/pods")
    # The next command starts another supervisor.
    cluster.describe_experiment(name)
    wait_until(lambda: kube_faults.count(method="POST", path="/pods") > created)
    reason = "lost: unit-1 (its Pod was deleted)"
    assert reason in [process.reason for process in cluster.describe_experiment(name)]
    kill_supervisor(cluster, name)
    kube_faults.clear()

    def has_started_again():
        status = cluster.describe_experiment(name)
        reasons = {process.reason.partition("; started again on ")[0] for process in status}
        return all_running(status) and reasons == {reason}

    wait_until(has_started_again)
    cluster.delete(name)


def test_each_change_is_reported_once_and_in_order(shared, name):
    experiment = shared.new_experiment(name)
    python(experiment, "p", "import time; time.sleep(1)")
    shared.launch(experiment)
    statuses = []
    status = shared.wait(name, timeout=60, on_change=statuses.append)
    assert statuses[-1] == status
    assert all(before != after for before, after in itertools.pairwise(statuses))
    states = [now.processes[0].state for now in statuses]
    assert states == sorted(states, key=[State.PENDING, State.RUNNING, State.SUCCEEDED].index)
    assert shared.wait(name, timeout=1) == status


def test_new_list_notices_deleted_pods(kube_cluster, shared, through, kube_faults, name):
    experiment = shared.new_experiment(name)
    for process in ("first", "second"):
        python(experiment, process, FOREVER)
    shared.launch(experiment)
    done = []

    def lose(status):
        if not done and all(item.state is State.RUNNING for item in status):
            done.append(True)
            kube_faults.answer(410, path="watch=true", times=1)
            kube_cluster.raw.call(
                "DELETE", kube_cluster.path(f"pods/{name}-second"), {"gracePeriodSeconds": 0}
            )
            cut(kube_faults)

    def second_is_lost(status):
        lose(status)
        return status.processes[1].state is State.UNKNOWN

    assert until(through, name, second_is_lost).processes[0].state is State.RUNNING


def test_killed_supervisor_is_started_again_by_the_next_command(
    kube_cluster, kube_faults, open_cluster, name, tmp_path
):
    """The next supervisor continues the start order and the record of the resource use."""
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)

    def serve(cpu, second):
        kube_faults.clear()
        answer = served(metrics(first=(cpu, "3Mi")), second=second)
        kube_faults.respond(answer, path=r"/metrics\.k8s\.io/")

    def recorded(count):
        samples = cluster.recorded_usage(name)
        return samples if len(samples) == count else None

    exp = cluster.new_experiment(name, record_usage=True)
    gate = tmp_path / "gate"
    python(exp, "first", HELD_BY_FILE, str(gate))
    python(exp, "second", "pass").starts_after("first", "succeeded")
    assert cluster.manifest(exp).ignored == ()
    serve("250m", second=0)
    manifest = cluster.launch(exp)
    directory = directory_of(KubeExperiment(cluster.api, cluster.scope(name)))
    pid = directory.holder()
    assert manifest.notes == (
        f"the start order is continued by process {pid} on this machine; configure "
        "supervisor_image to run it in the cluster",
    )
    assert directory.path.stat().st_mode & 0o777 == 0o700
    wait_until(lambda: recorded(1))
    kill_supervisor(cluster, name)
    serve("750m", second=15)
    assert cpu_of(wait_until(lambda: recorded(2))) == [0.25, 0.75]
    usage = {"mean": 0.5, "peak": 0.75, "samples": 2}
    assert find_run_usage(cluster, run_of(cluster, name)).summary["first"]["cpu"].to_dict() == usage
    gate.touch()
    assert [item.state for item in cluster.wait(name, timeout=60)] == [State.SUCCEEDED] * 2
    wait_until(lambda: not directory.path.exists())
    cluster.delete(name)
    run = run_of(cluster, name)
    assert run.is_archived
    assert cpu_of(cluster.at_run(run).recorded_usage(name)) == [0.25, 0.75]


def test_nothing_is_deleted_if_the_logs_cannot_be_kept(kube_cluster, shared, name, monkeypatch):
    exp = shared.new_experiment(name)
    python(exp, "worker", UP)
    shared.launch(exp)
    until(shared, name, all_running)
    with monkeypatch.context() as patched:
        patched.setenv("SYMPHONY_STATE_DIR", "/proc/no-such")
        message = (
            rf"experiment '{name}' was not deleted.*/proc/no-such.*; free some space, .*--purge"
        )
        with pytest.raises(BackendError, match=message):
            shared.delete(name)
        assert shared.describe_process(name, "worker").state is State.RUNNING
        shared.delete(name, purge=True)
    assert managed_objects(kube_cluster) == {}


# A process that runs until it is stopped.
UP = f"print('up'); {FOREVER}"


def test_clients_that_are_killed_and_clients_that_act_at_the_same_time(
    kube_cluster, shared, name, monkeypatch
):
    exp = shared.new_experiment(name)
    python(exp, "server", UP).restart_policy("Always").ready(log="^up")
    python(exp, "worker", UP).restart_policy("OnFailure").ready(log="^up")
    unschedulable(exp, "waiting").starts_after("worker", "succeeded")
    shared.launch(exp)
    until(shared, name, lambda status: all_running(status.processes[:2]))

    # The client is killed before it creates the new Pod.
    def fail(*_):
        raise KeyboardInterrupt

    supervisor = directory_of(KubeExperiment(shared.api, shared.scope(name))).holder()
    os.kill(supervisor, signal.SIGSTOP)  # It would create the Pod as well.
    try:
        with monkeypatch.context() as patched:
            patched.setattr(attempts, "Creation", fail)
            with pytest.raises(KeyboardInterrupt):
                shared.restart_processes(name, ["server"])
        assert shared.describe_process(name, "server").state is State.PENDING
    finally:
        os.kill(supervisor, signal.SIGCONT)
    # Two clients and the supervisor continue at the same time.
    arguments = (name, ["server"])
    clients = [threading.Thread(target=shared.start_processes, args=arguments) for _ in "ab"]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    status = shared.describe_process(name, "server")
    assert (status.state, status.restarts) == (State.RUNNING, 1)
    pods = managed_objects(kube_cluster)["pods"]
    assert pods == [f"{name}-server", f"{name}-server--2", f"{name}-worker"]
    # A client is killed after it has recorded the first of two requests.
    request = attempts.request

    def request_first(*arguments):
        patched.setattr(attempts, "request", fail)
        return request(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(attempts, "request", request_first)
        with pytest.raises(KeyboardInterrupt):
            shared.restart_processes(name, ["server", "worker"])
    assert shared.describe_experiment(name).note == (
        "restart was interrupted after 'server' and before worker; repeat the command"
    )
    repeated = shared.restart_processes(name, ["server", "worker"])
    assert [(item.state, item.restarts) for item in repeated[:2]] == [
        (State.RUNNING, 2),
        (State.RUNNING, 1),
    ]
    stopped = {item.name: item.displayed_state for item in shared.stop_processes(name)}
    assert stopped == {"server": "stopped", "worker": "stopped", "waiting": "pending"}
    assert shared.describe_process(name, "waiting").reason == (
        "waiting for worker to succeed (worker is stopped)"
    )
    # A stop for good also ends the processes that wait, and keeps the logs.
    shared.stop(name)
    status = shared.describe_experiment(name)
    assert (status.displayed_state, status.ended) == ("stopped", True)
    with pytest.raises(BackendError, match="has finished; launch it again"):
        shared.start_processes(name)
    assert shared.get_log(name, "worker").startswith("up\n")
    shared.delete(name)


# A process that is stopped as soon as the file exists that is its first argument.
STOPS_LATER = """
import os, signal, sys, time
def stop(*_):
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    raise SystemExit
signal.signal(15, stop)
print("up", flush=True)
while True:
    time.sleep(1)
"""


def test_a_stop_cancels_an_interrupted_restart_before_it_can_complete_it(
    kube_cluster, shared, name, monkeypatch, tmp_path
):
    """The restart was recorded in `server` only. It would be complete with a stop of `worker`."""
    gate = tmp_path / "gate"
    exp = shared.new_experiment(name)
    server = python(exp, "server", STOPS_LATER, str(gate)).restart_policy("Always")
    server.ready(log="^up").termination_grace_period(60)
    python(exp, "worker", UP).restart_policy("OnFailure").ready(log="^up")
    shared.launch(exp)
    shared.wait(name, until="ready", timeout=60)
    request = attempts.request

    def request_first(*arguments):
        patched.setattr(attempts, "request", interrupt)
        return request(*arguments)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(attempts, "request", request_first)
        with pytest.raises(KeyboardInterrupt):
            shared.restart_processes(name, ["server", "worker"])
    starts = []

    def note_starts(experiment, unit, *arguments):
        if unit.pods[-1].unit == "worker":
            pod = kube_cluster.raw.call("GET", kube_cluster.path(f"pods/{name}-server"))
            control = decode_control(pod["metadata"]["annotations"]["symphony/control"])
            starts.append(control.start)
            gate.touch()
        return request(experiment, unit, *arguments)

    monkeypatch.setattr(attempts, "request", note_starts)
    stopped = {item.name: item.displayed_state for item in shared.stop_processes(name)}
    assert starts == [0.0]
    assert stopped == {"server": "stopped", "worker": "stopped"}
    shared.delete(name)


def test_a_unit_that_is_started_again_during_a_stop_is_stopped(
    kube_cluster, shared, name, monkeypatch, tmp_path
):
    """The client of a restart is killed. The supervisor completes it before the stop is recorded,
    but after the stop has read the state.
    """
    gate = tmp_path / "gate"
    exp = shared.new_experiment(name)
    server = python(exp, "server", STOPS_LATER, str(gate)).restart_policy("Always")
    server.ready(log="^up").termination_grace_period(60)
    shared.launch(exp)
    shared.wait(name, until="ready", timeout=60)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Operation, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            shared.restart_processes(name, ["server"])
    request = attempts.request

    def request_later(*arguments):
        gate.touch()
        second = kube_cluster.path(f"pods/{name}-server--2")
        wait_until(lambda: kube_cluster.raw.find(second))
        return request(*arguments)

    monkeypatch.setattr(attempts, "request", request_later)
    (stopped,) = shared.stop_processes(name)
    assert stopped.displayed_state == "stopped"
    shared.delete(name)


def test_graph_completion_and_dry_runs_of_the_command_line(
    kube_cluster, shared, name, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    exp = shared.new_experiment(name)
    python(exp, "server", FOREVER).binds({"db": 7400})
    python(exp, "client", FOREVER).connects("db")
    shared.launch(exp)
    kube_cluster.wait_for_pod(f"{name}-server")
    options = ["-b", "kube", "--kubeconfig", str(kube_cluster.kubeconfig)]
    options += ["--namespace", kube_cluster.namespace]

    def symphony(*words):
        return in_process.run(words, cwd=tmp_path, timeout=60)

    graph = symphony("graph", *options, name)
    assert "binds db:7400 ← client" in graph.stdout, graph.stderr
    assert "connects db:7400 → server" in graph.stdout
    completed = symphony("__complete", *options, "forward", name, "").stdout
    assert completed.split() == ["server", "client", "db"]
    for words, message in {
        ("attach", name, "server"): f"would attach this terminal to server of {name}",
        ("forward", name, "db"): f"to port 7400 of db of {name}",
        ("forward", name, "server", "80:8080"): f"to port 80 of server of {name}",
        ("visit", name, "db"): f"to port 7400 of db of {name}",
        ("cp", name, "server:/etc/hosts", "hosts"): "would copy server:/etc/hosts to hosts",
    }.items():
        done = symphony(*words, *options, "--dry-run")
        assert (done.returncode, done.stdout) == (0, "")
        assert message in done.stderr
    done = symphony("forward", name, "sever", *options, "--dry-run")
    assert "no process or service 'sever'; did you mean 'server'?" in done.stderr


def test_deleted_pod_and_deleted_experiment(kube_cluster, shared, name):
    experiment = shared.new_experiment(name)
    for process in ("first", "second"):
        python(experiment, process, FOREVER)
    shared.launch(experiment)
    until(shared, name, lambda status: all(item.state is State.RUNNING for item in status))
    scope = shared.scope(name)
    pod = f"/api/v1/namespaces/{scope.namespace}/pods/{scope.object_name('second')}"
    deleted = []

    def delete_second(status):
        # The Pod must exist when the status is followed.
        if not deleted:
            kube_cluster.raw.call("DELETE", pod, {"gracePeriodSeconds": 0})
            deleted.append(pod)
        return status.processes[1].state is State.UNKNOWN

    status = until(shared, name, delete_second)
    assert status.processes[1].reason == "exit status unknown: its Pod was deleted"
    assert status.processes[0].state is State.RUNNING
    # The roster is on the first Pod, so the second process is still known.
    again = shared.describe_experiment(name)
    assert [item.name for item in again] == ["first", "second"]

    deletion = threading.Thread(target=shared.delete, args=(name,))

    def delete(status):
        if not deletion.ident:
            deletion.start()

    try:
        with pytest.raises(NotFound, match=f"experiment '{name}' was deleted"):
            shared.wait(name, timeout=60, on_change=delete)
    finally:
        deletion.join()


def test_processes_are_known_when_all_pods_are_gone(kube_cluster, own_namespaces, name):
    """The last state is what a client reports that did not see the Pods, too."""
    experiment = own_namespaces.new_experiment(name)
    python(experiment, "only", FOREVER)
    own_namespaces.launch(experiment)
    scope = own_namespaces.scope(name)
    pod = f"/api/v1/namespaces/{scope.namespace}/pods/{scope.object_name('only')}"
    deleted = []

    def delete_once(status):
        if not deleted and status.processes[0].state is State.RUNNING:
            kube_cluster.raw.call("DELETE", pod, {"gracePeriodSeconds": 0})
            deleted.append(pod)

    for on_change in (delete_once, None):
        status = own_namespaces.wait(name, timeout=60, on_change=on_change)
        assert [(item.name, item.state, item.reason) for item in status] == [
            ("only", State.UNKNOWN, "exit status unknown: its Pod was deleted")
        ]
        assert status.exit_code == 1
    assert name in own_namespaces.list_experiments()


def test_nothing_known_is_not_success(kube_cluster, own_namespaces, name):
    body = {"metadata": {"name": name, "labels": own_namespaces.scope(name).labels}}
    kube_cluster.raw.call("POST", "/api/v1/namespaces", body)
    status = own_namespaces.describe_experiment(name)
    assert (status.state, status.exit_code) == (State.UNKNOWN, 1)
    assert status.note.startswith("nothing of it is left but its namespace")


def test_one_list_contains_the_metrics_of_an_experiment(
    kube_cluster, kube_faults, open_cluster, name
) -> None:
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    python(exp, "a", FOREVER)
    cluster.launch(exp)
    kube_faults.respond(served(metrics(a=("250m", "3Mi"))), path=r"/metrics\.k8s\.io/")
    samples = cluster.iter_usage(name, ["a"])
    assert next(samples).processes == (ProcessUsage(process="a", cpu=0.25, memory=3 << 20),)
    *_, call = kube_faults.calls(path=r"/metrics\.k8s\.io/")
    selector = parse_qs(urlsplit(call.path).query)["labelSelector"][0]
    pods = kube_cluster.raw.call("GET", f"{kube_cluster.path('pods')}?labelSelector={selector}")
    assert [pod["metadata"]["labels"]["symphony/unit"] for pod in pods["items"]] == ["a"]
    cluster.delete(name)
    assert list(samples) == []
