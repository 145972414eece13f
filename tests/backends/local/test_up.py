"""Changing a running experiment: what changes, what does not, and interruptions."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from symphony import AlreadyExists, BackendError, Cluster, LaunchFailed, SpecError
from symphony.supervised.record import change_directory
from symphony.supervised.record.directory import RunDirectory, launch_lock, staging_directory
from symphony.supervised.record.status import StatusReader
from symphony.supervised.resources.leases import PortLeases
from symphony.supervised.user_requests import request_change, requests
from symphony.testing import until
from symphony.testing.contract import all_running

from .conftest import eventually, kill, kill_supervision, marked, python, run_id_of, supervisor_of
from .test_control import in_background, is_stopping
from .test_stopping import STUBBORN

SLEEP = ["sleep", "1000"]
SHOW = """
import os
print(os.environ['TOKEN'], os.environ['CUDA_VISIBLE_DEVICES'], os.environ.get('OWN'), flush=True)
"""


def events(cluster, kind, name="exp"):
    lines = (cluster._root / name / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def sockets_of(pid):
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        # The process can close the descriptor at this moment.
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(path))
    return {link for link in found if link.startswith("socket:")}


def leases(cluster, name="exp"):
    """Return the names of the leases that the supervisor holds."""
    sockets = sockets_of(supervisor_of(cluster, name))
    for pid in marked(run_id_of(cluster, name)):
        assert sockets.isdisjoint(sockets_of(pid)), f"process {pid} has inherited a lease"
    lines = Path("/proc/net/unix").read_text().splitlines()
    found = (line.split() for line in lines if "@symphony/" in line)
    return {words[7] for words in found if f"socket:[{words[6]}]" in sockets}


def sleeper(experiment, name, **options):
    return experiment.new_process(name, command=SLEEP, **options)


def test_up_keeps_ports_and_gpus_and_releases_those_of_removed_processes(state, tmp_path):
    token = tmp_path / "token"
    token.write_text("first")
    cluster = Cluster.new("local", state_dir=str(state), gpus=["0", "1", "2"])

    def describe(learner_gpus, *names, removed=False):
        experiment = cluster.new_experiment("exp", secrets={"token": str(token)})
        if removed:
            sleeper(experiment, "removed").binds("removed").resource_limit(gpu=1)
        sleeper(experiment, "server").binds("kept")
        learner = python(experiment, "learner", f"{SHOW}\nimport time; time.sleep(1000)")
        learner.set_env_secret("TOKEN", "token").resource_limit(gpu=learner_gpus)
        learner.connects("kept").ready(log="0|1|2")
        for name in names:
            added = sleeper(experiment, name, env={"OWN": name})
            added.binds(name).resource_limit(gpu=1)
        return experiment

    try:
        cluster.launch(describe(1, removed=True))
        before = cluster.wait("exp", until="ready", timeout=20)
        port = cluster.describe_topology("exp").services[1].port
        token.write_text("second")
        changes = cluster.up(describe(1))
        assert changes.names("restarted") == ["learner"]
        assert "the contents of secret 'token' have changed" in str(changes)
        # The program prints its variables before the next change stops it.
        cluster.wait("exp", until="ready", timeout=20)
        assert cluster.up(describe(2, "added")).summary == "1 added, 1 restarted, 1 unchanged"
        after = cluster.wait("exp", until="ready", timeout=20)
        assert after.processes[0] == before.processes[1]
        assert cluster.get_log("exp", "learner").splitlines() == [
            "first 1 None", "second 1 None", "second 1,0 None",
        ]  # fmt: skip
        services = {item.name: item.port for item in cluster.describe_topology("exp").services}
        assert services["kept"] == port
        ports = {f"@symphony/port/{number}" for number in services.values()}
        gpus = {f"@symphony/gpu/{number}" for number in range(3)}
        assert leases(cluster) == ports | gpus
        with pytest.raises(LaunchFailed, match="only 0 of 3 are free"):
            cluster.up(describe(2, "added", "too-many"))
        assert cluster.describe_experiment("exp") == after
        cluster.up(describe(1))
        assert leases(cluster) == {f"@symphony/port/{port}", "@symphony/gpu/1"}
        cluster.wait("exp", until="ready", timeout=20)
        # Variables of other processes are not inherited.
        assert cluster.get_log("exp", "learner").splitlines()[-1] == "second 1 None"
    finally:
        cluster.delete("exp")


def test_policies_and_start_conditions_change_without_a_restart(cluster, experiment):
    sleeper(experiment, "db").ready(command=["false"], timeout=1000)
    web = sleeper(experiment, "web").starts_after("db", "ready")
    cluster.launch(experiment)
    db = cluster.describe_process("exp", "db")
    web.starts_after("db", "started").restart_policy("Always")
    experiment.get_process("db").termination_grace_period(0)
    changes = cluster.up(experiment)
    assert changes.summary == "2 updated"
    status = until(cluster, "exp", all_running, timeout=10)
    assert status.processes[0] == db
    kill(status.processes[1].pid)
    until(cluster, "exp", lambda status: status.processes[1].restarts == 1, timeout=10)
    experiment.deadline = 0.1
    assert [change.setting for change in cluster.up(experiment).policies] == ["deadline"]
    ended = cluster.wait("exp", timeout=10)
    assert {process.reason for process in ended} == {"deadline exceeded"}
    # An experiment that has finished is launched.
    experiment.deadline = None
    assert cluster.up(experiment).launch == "it has finished"


def test_change_goes_on_if_its_client_and_supervisor_are_killed_and_the_next_waits(
    cluster, experiment
):
    sleeper(experiment, "kept")
    removed = python(experiment, "stubborn", STUBBORN).binds("old")
    removed.ready(log="up").termination_grace_period(100)
    cluster.launch(experiment)
    kept, stubborn = cluster.wait("exp", until="ready", timeout=20)
    second = cluster.new_experiment("exp")
    sleeper(second, "kept")
    # The first command and the supervisor are killed, but the change goes on, and the second
    # command waits for it.
    program = (
        "import sys; from symphony import Cluster, Experiment\n"
        "experiment = Experiment('exp')\n"
        "experiment.new_process('kept', command=['sleep', '1000'])\n"
        "Cluster.new('local', state_dir=sys.argv[1]).up(experiment)\n"
    )
    client = subprocess.Popen([sys.executable, "-c", program, str(cluster._root)])
    status = until(cluster, "exp", is_stopping, timeout=20)
    assert [process.name for process in status] == ["kept", "stubborn"]
    client.send_signal(signal.SIGKILL)
    client.wait()
    port = leases(cluster)
    assert len(port) == 1
    kill_supervision(cluster)
    assert is_stopping(cluster.describe_experiment("exp"))
    assert cluster.describe_process("exp", "stubborn").pid == stubborn.pid
    # Until the next supervisor has the lease, launches examine the processes of the run.
    until(cluster, "exp", lambda _: leases(cluster) == port, timeout=20)
    assert cluster.diff(second).names("removed") == ["stubborn"]
    sleeper(second, "added")
    result = in_background(cluster.up, second)
    os.kill(stubborn.pid, signal.SIGKILL)
    assert result().names("added") == ["added"]
    status = cluster.describe_experiment("exp")
    assert [process.name for process in status] == ["kept", "added"]
    assert status.processes[0] == kept
    assert leases(cluster) == set()
    assert [event["revision"] for event in events(cluster, "changed")] == [1, 2]
    assert not any(name.startswith("change-") for name in os.listdir(cluster._root / "exp"))


def test_up_that_is_refused_changes_nothing(cluster, experiment):
    sleeper(experiment, "p")
    cluster.launch(experiment)
    before = (cluster._root / "exp" / "events.jsonl").read_bytes()
    experiment.new_process("q", command=["no-such-program"])
    for call in (cluster.diff, cluster.up):
        with pytest.raises(SpecError, match="no-such-program"):
            call(experiment)
    os.kill(RunDirectory(cluster._root / "exp").supervisor().pid, signal.SIGSTOP)
    experiment.get_process("q").command = SLEEP
    with pytest.raises(Exception, match="suspended"):
        cluster.up(experiment)
    os.kill(RunDirectory(cluster._root / "exp").recorded_supervisor().pid, signal.SIGCONT)
    assert (cluster._root / "exp" / "events.jsonl").read_bytes() == before
    cluster.up(experiment)
    eventually(lambda: all_running(cluster.describe_experiment("exp")))


def test_experiment_of_another_backend_is_not_launched_a_second_time(tmp_path, monkeypatch):
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path))
    here = Cluster.new("local")
    elsewhere = Cluster.new("local", state_dir=str(tmp_path / "tmux"))
    experiment = here.new_experiment("exp")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # The port is reserved on the other backend.
    sleeper(experiment, "p").binds({"web": port})
    elsewhere.launch(experiment)
    try:
        assert here.diff(experiment).relaunch == ("it runs on the backend tmux, not on local",)
        with pytest.raises(AlreadyExists, match="it runs on the backend tmux"):
            here.up(experiment)
        assert here.list_experiments() == []
    finally:
        elsewhere.delete("exp")


def test_new_supervisor_completes_a_change_that_is_not_recorded(cluster, experiment):
    sleeper(experiment, "kept")
    sleeper(experiment, "changed")
    sleeper(experiment, "removed").binds("old")
    cluster.launch(experiment)
    before = {process.name: process.pid for process in cluster.describe_experiment("exp")}
    run = RunDirectory(cluster._root / "exp")
    manifest = run.load_manifest()
    kept, changed, removed = manifest["processes"]
    added = {**removed, "name": "added", "releases": [], "env_secrets": {"TOKEN": "token"}}
    change = {"event": "changed", "at": 1.0, "revision": 1, "directory": "change-1"}
    previous = {key: manifest[key] for key in ("env", "services")}
    names = {"added": ["added"], "removed": ["removed"], "restarted": ["changed"]}
    manifest.update(
        processes=[kept, changed, added],
        services={},
        previous={**previous, "processes": [changed, removed]},
        change={**change, **names},
    )
    kill_supervision(cluster)
    directory = cluster._root / "exp" / "change-1"
    (directory / "secrets").mkdir(parents=True)
    (directory / "secrets" / "token").write_text("new")
    (directory / "manifest.json").write_text(json.dumps(manifest))
    change_directory.commit(run, "change-1")
    reader = StatusReader(run)
    assert [process.name for process in reader.read()] == ["kept", "changed", "added", "removed"]
    assert [name for name, track in reader.state.tracks.items() if track.outdated] == ["changed"]
    cluster.describe_experiment("exp")

    def is_done(now):
        # The process that is restarted is running until it is stopped.
        is_restarted = now.processes[1].pid != before["changed"]
        return all_running(now) and len(now.processes) == 3 and is_restarted

    after = {process.name: process.pid for process in until(cluster, "exp", is_done)}
    assert list(after) == ["kept", "changed", "added"]
    assert after["kept"] == before["kept"]
    # A process is reported as running before it has executed its program.
    eventually(lambda: sorted(marked(run_id_of(cluster))) == sorted(after.values()))
    environment = Path(f"/proc/{after['added']}/environ")
    eventually(lambda: b"TOKEN=new" in environment.read_bytes())
    eventually(lambda: events(cluster, "request-done"))
    assert leases(cluster) == set()
    assert [event["revision"] for event in events(cluster, "changed")] == [1]


@pytest.fixture
def with_port(state):
    """Return a cluster, an experiment that needs a port, and the port."""
    cluster = Cluster.new("local", state_dir=str(state))
    experiment = cluster.new_experiment("exp")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sleeper(experiment, "server").binds({"web": port})
    return cluster, experiment, port


def noting(calls, function):
    """Return a function that sets the event ``calls`` and calls another one."""

    def note_and_call(*args):
        calls.set()
        return function(*args)

    return note_and_call


def test_up_avoids_ports_with_closed_connections(cluster):
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", closed)) as client:
            # The side that closes a connection first keeps its state.
            server.accept()[0].close()
            client.recv(1)

    def describe(*names):
        experiment = cluster.new_experiment("exp", port_range=(closed, min(closed + 50, 65535)))
        for name in names:
            sleeper(experiment, name).binds(name)
        return experiment

    cluster.launch(describe("one"))
    assert cluster.up(describe("one", "two")).names("added") == ["two"]
    ports = [service.port for service in cluster.describe_topology("exp").services]
    assert len(set(ports)) == 2
    assert closed not in ports


def test_up_waits_for_a_launch_in_progress(with_port, monkeypatch):
    cluster, experiment, port = with_port
    has_waited = threading.Event()
    monkeypatch.setattr(RunDirectory, "is_locked", noting(has_waited, RunDirectory.is_locked))
    with ThreadPoolExecutor() as executor:
        # The launcher has reserved the port, and was killed before the experiment had its name.
        with staging_directory(cluster._root, "exp"), PortLeases() as ports:
            assert ports.reserve(port) is None
            difference = executor.submit(cluster.diff, experiment)
            while not has_waited.is_set():
                assert not difference.done(), difference.result()
        assert difference.result().launch == "it does not exist"


def test_up_changes_an_experiment_that_another_command_has_just_launched(
    cluster, experiment, monkeypatch
):
    sleeper(experiment, "first")
    other = cluster.new_experiment("exp")
    sleeper(other, "second")
    compare = cluster.diff

    def compare_and_launch_other(described, **options):
        changes = compare(described, **options)
        monkeypatch.setattr(cluster, "diff", compare)
        cluster.launch(other)
        return changes

    monkeypatch.setattr(cluster, "diff", compare_and_launch_other)
    changes = cluster.up(experiment)
    assert (changes.launch, changes.names("added")) == ("", ["first"])
    assert [process.name for process in cluster.describe_experiment("exp")] == ["first"]


def test_up_beside_a_launch_asks_the_user_to_wait(cluster, experiment, monkeypatch):
    sleeper(experiment, "worker")
    launching = cluster.diff(experiment)
    cluster.launch(experiment)
    before = cluster.describe_experiment("exp")
    # Kubernetes does not show what another command has not created yet.
    monkeypatch.setattr(cluster, "diff", lambda *_, **options: launching)
    with pytest.raises(AlreadyExists, match="is launching experiment 'exp'.*run the command again"):
        cluster.up(experiment)
    assert cluster.describe_experiment("exp") == before


def test_two_comparisons_at_once_do_not_compete_for_ports(with_port, monkeypatch):
    cluster, experiment, port = with_port
    cluster._root.mkdir(parents=True, mode=0o700)
    with ThreadPoolExecutor() as executor:
        with launch_lock(cluster._root), PortLeases() as ports:
            assert ports.reserve(port) is None
            has_waited = threading.Event()
            monkeypatch.setattr(fcntl, "flock", noting(has_waited, fcntl.flock))
            difference = executor.submit(cluster.diff, experiment)
            while not has_waited.is_set():
                assert not difference.done(), difference.result()
        assert difference.result().launch == "it does not exist"


@pytest.mark.parametrize("kind", ["field", "value"])
def test_supervisor_of_another_version_is_reported(cluster, experiment, monkeypatch, kind):
    """The client sends what the supervisor of the other version does not know."""
    sleeper(experiment, "worker")
    cluster.launch(experiment)
    sleeper(experiment, "added")
    next_manifest, send = request_change.next_manifest, requests.send_request

    def with_new_field(*args):
        manifest = next_manifest(*args)
        return {
            **manifest,
            "processes": [{**item, "new_field": 1} for item in manifest["processes"]],
        }

    def with_new_value(run, request, **options):
        send(run, {**request, "new_value": 1}, **options)

    with monkeypatch.context() as patched:
        if kind == "field":
            patched.setattr(request_change, "next_manifest", with_new_field)
        else:
            patched.setattr(requests, "send_request", with_new_value)
        with pytest.raises(BackendError, match="launched by another version of symphony, whose"):
            cluster.up(experiment)
    assert [process.name for process in cluster.describe_experiment("exp")] == ["worker"]
    assert cluster.up(experiment).names("added") == ["added"]


# --- configuration files and scratch directories ---

SHOW_FILES = """
import os, pathlib, time
config, scratch = (
    pathlib.Path(os.environ[f"SYMPHONY_{name}_DIR"]) for name in ("CONFIG", "SCRATCH")
)
print((config / "a.conf").read_text(), sorted(path.name for path in scratch.iterdir()))
# Some tools remove the permission to write from their directories.
(scratch / "cache").mkdir(exist_ok=True)
(scratch / "cache/file").touch()
(scratch / "cache").chmod(0o500)
time.sleep(1000)
"""


def test_a_changed_file_restarts_its_process_and_the_scratch_files_are_removed_at_the_end(
    cluster, tmp_path
):
    template = tmp_path / "a.in"

    def described(text):
        template.write_text(text)
        experiment = cluster.new_experiment("exp")
        sleeper(experiment, "db").binds("db")
        show = python(experiment, "show", SHOW_FILES, configs={"a.conf": str(template)})
        show.connects("db").ready(log=r"\[")
        return experiment

    cluster.launch(described("db=${db.addr}"))
    until(cluster, "exp", lambda status: all(item.ready for item in status))
    run = RunDirectory(cluster._root / "exp")
    address = run.load_manifest()["services"]["db"]
    (written,) = (run.path / "configs/show").rglob("a.conf")
    assert written.stat().st_mode & 0o777 == 0o600
    assert cluster.up(described("db=${db.addr}")).is_empty
    changes = cluster.up(described("changed ${db.port}"))
    assert changes.names("restarted") == ["show"]
    assert [change.setting for change in changes.processes[1].settings] == ["configs.a.conf"]
    until(cluster, "exp", lambda status: all(item.ready for item in status))
    port = address.rpartition(":")[2]
    log = f"db={address} []\nchanged {port} ['cache']\n"
    assert cluster.get_log("exp", "show") == log
    cluster.delete("exp")
    # The record of the run contains the configuration files, and no scratch files.
    assert len(list(tmp_path.rglob("a.conf"))) == 2
    assert list(tmp_path.rglob("scratch")) == []


def test_force_keeps_the_old_experiment_if_a_port_or_a_gpu_of_the_new_one_is_missing(state):
    # Another program on this machine, such as another run of this test, can have leased a device.
    devices = [f"GPU-{os.getpid()}-{number}" for number in range(2)]
    cluster = Cluster.new("local", state_dir=str(state), gpus=devices)

    def describe(port, gpus):
        experiment = cluster.new_experiment("exp")
        sleeper(experiment, "server").binds({"web": port}).resource_limit(gpu=gpus)
        return experiment

    try:
        with socket.create_server(("127.0.0.1", 0)) as used, socket.create_server(("", 0)) as free:
            own = free.getsockname()[1]
            free.close()
            cluster.launch(describe(own, 2))
            before = cluster.describe_experiment("exp")
            with pytest.raises(SpecError, match=str(used.getsockname()[1])):
                cluster.launch(describe(used.getsockname()[1], 1), force=True)
            with pytest.raises(LaunchFailed, match="requests 3 GPUs"):
                cluster.launch(describe(own, 3), force=True)
            assert cluster.describe_experiment("exp") == before
            # The port and the GPUs of the old experiment are free for the new one.
            cluster.launch(describe(own, 2), force=True)
            assert cluster.describe_experiment("exp").processes[0].pid != before.processes[0].pid
    finally:
        cluster.delete("exp")
