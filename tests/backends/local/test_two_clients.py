"""Several launchers, hosts and containers that use the same name in the same state directory."""

import fcntl
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from symphony import AlreadyExists, BackendError, Cluster, NotFound, State
from symphony.supervised.processes.identity import identify
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.status import StatusReader
from symphony.supervised.user_requests import stop
from symphony.testing.contract import all_running

from .conftest import kill_supervision, marked, run_id_of, supervisor_of

SLEEP = ["sleep", "1000"]


@pytest.fixture
def sleeper(experiment):
    """An experiment with one process that does not exit by itself."""
    experiment.new_process("p", command=SLEEP)
    return experiment


@pytest.mark.parametrize("force", [True, False])
def test_simultaneous_launches_of_one_name_do_not_compete_for_a_port(
    cluster, sleeper, state, force
):
    """Each forced launch replaces the one before it. Of several other launches, one succeeds."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    sleeper.list_all_processes()[0].binds({"a": port})

    def launch(_):
        try:
            return Cluster.new("local", state_dir=state).launch(sleeper, force=force).run_id
        except AlreadyExists:
            return None

    count = 3
    with ThreadPoolExecutor(count) as pool:
        launched = [run_id for run_id in pool.map(launch, range(count)) if run_id]
    assert len(launched) == (count if force else 1)
    current = run_id_of(cluster)
    assert current in launched
    assert all_running(cluster.describe_experiment("exp"))
    assert [run_id for run_id in launched if marked(run_id)] == [current]


def test_replaced_experiment_is_not_removed(cluster, sleeper):
    """A program has stopped a run, but another program has replaced it in the meantime."""
    cluster.launch(sleeper)
    with RunDirectory(cluster._root / "exp").pin() as first:
        manifest = cluster.launch(sleeper, force=True)
        stop.stop(first)
        cluster.implementation.deletion.remove(first)
    assert run_id_of(cluster) == manifest.run_id
    assert all_running(cluster.describe_experiment("exp"))


def test_waiting_ends_if_the_experiment_is_replaced(cluster, sleeper):
    cluster.launch(sleeper)
    reader = StatusReader(RunDirectory(cluster._root / "exp"))
    assert all_running(reader.read())
    cluster.launch(sleeper, force=True)
    with pytest.raises(NotFound, match="'exp' was replaced by another launch"):
        reader.read()


def test_supervisor_that_is_stopped_before_its_first_process_stops_the_experiment(
    cluster, sleeper, state, monkeypatch
):
    """Another program deletes the experiment as soon as the supervisor has claimed the name."""
    modules = state.parent / "modules"
    modules.mkdir()
    (modules / "signaled_children.py").write_text(
        "import os, signal\n"
        "from symphony.supervised.supervisor.local_children import LocalChildren\n"
        "class Children(LocalChildren):\n"
        "    def __init__(self, *arguments):\n"
        "        super().__init__(*arguments)\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setattr(type(cluster), "children", "signaled_children:Children")
    cluster.launch(sleeper)
    (process,) = cluster.wait("exp", timeout=20)
    assert process.stopped


@pytest.mark.parametrize("damaged", ["missing", "damaged"])
def test_supervisor_without_a_record_is_found_by_its_lock(cluster, sleeper, damaged):
    cluster.launch(sleeper)
    run_id, supervisor = run_id_of(cluster), supervisor_of(cluster)
    directory = cluster._root / "exp"
    if damaged == "missing":
        (directory / "supervisor.json").unlink()
    else:
        for name in ("supervisor.json", "manifest.json", "events.jsonl"):
            (directory / name).write_bytes(b"\0\xff\n")
    cluster.delete("exp")
    assert marked(run_id) == []
    assert identify(supervisor) is None
    assert sorted(os.listdir(cluster._root)) == [".lock", ".runs"]


def test_run_that_an_unknown_process_has_locked_is_refused(cluster, sleeper, monkeypatch):
    """The supervisor cannot be observed, so its processes cannot be stopped."""
    cluster.launch(sleeper)
    run_id = run_id_of(cluster)
    lock = os.open(cluster._root / "exp" / "lock", os.O_RDONLY)
    kill_supervision(cluster)
    fcntl.flock(lock, fcntl.LOCK_EX)
    monkeypatch.setattr(stop, "LOCK_TIMEOUT_SECONDS", 0.1)
    for forbidden in (cluster.stop, cluster.delete):
        with pytest.raises(BackendError, match="'exp' is in use by a process that cannot be"):
            forbidden("exp")
    assert len(marked(run_id)) == 1
    os.close(lock)
    cluster.delete("exp")
    assert marked(run_id) == []


@pytest.mark.parametrize("kind", ["directory", "file", "link"])
def test_foreign_entry_of_the_state_directory_is_kept(cluster, sleeper, kind):
    path = cluster._root / "exp"
    cluster._root.mkdir()
    if kind == "directory":
        path.mkdir()
        (path / "notes.txt").touch()
    elif kind == "file":
        path.touch()
    else:
        path.symlink_to("exp")
    for force in (False, True):
        with pytest.raises(BackendError, match=f"{path} is not a run directory of symphony"):
            cluster.launch(sleeper, force=force)
    cluster.delete("exp")
    assert cluster.list_experiments() == []
    assert sorted(os.listdir(cluster._root)) == [".lock", "exp"]


# --- two containers ---

LAUNCHER = """
import sys
from symphony import Cluster
cluster = Cluster.new("local", state_dir=sys.argv[1])
experiment = cluster.new_experiment("exp")
experiment.new_process("p", command=["sleep", "1000"])
cluster.launch(experiment)
print("launched", flush=True)
for line in sys.stdin:
    cluster.stop("exp")
    print("stopped", flush=True)
"""


@pytest.fixture
def container(state):
    """A process that has launched an experiment in a PID namespace of its own."""
    namespace = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0:
        namespace += ["--user", "--map-root-user"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system does not let this user create a PID namespace")
    process = subprocess.Popen(
        [*namespace, sys.executable, "-c", LAUNCHER, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "launched\n"
    yield process
    process.kill()
    process.communicate()


def test_experiment_of_another_container_is_refused_until_it_has_finished(
    container, cluster, sleeper
):
    run_id = run_id_of(cluster)
    refusal = "'exp' was launched on .* in another PID namespace; delete it there"
    actions = {
        "stop": lambda: cluster.stop("exp"),
        "delete": lambda: cluster.delete("exp"),
        "force": lambda: cluster.launch(sleeper, force=True),
    }
    for action in actions.values():
        with pytest.raises(BackendError, match=refusal):
            action()
    assert run_id_of(cluster) == run_id
    assert len(marked(run_id)) == 1, "a parent namespace can observe the process"
    assert all_running(cluster.describe_experiment("exp")), "the supervisor writes the events"
    container.stdin.write("stop\n")
    container.stdin.flush()
    assert container.stdout.readline() == "stopped\n"
    (process,) = cluster.describe_experiment("exp")
    assert process.state is State.FAILED
    assert process.stopped
    cluster.delete("exp")
    assert cluster.list_experiments() == []
