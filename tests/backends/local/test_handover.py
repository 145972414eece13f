"""How a launcher hands over to its supervisor, which prepares itself meanwhile: whoever fails, nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from symphony import BackendError, Cluster, Experiment, LaunchFailed, SpecError
from symphony.host.cluster import HostCluster
from symphony.host.processes.tree import find_run_processes
from symphony.host.resources.leases import take_lease
from symphony.host.run.directory import RunDirectory

from .conftest import eventually, run_id_of, supervisor_of

PORT = 7461

# What the launcher does next when it is struck, and what is struck there.
MOMENTS = {
    "the supervisor was spawned": "detach._spawn_supervisor",
    "the launcher decides": "checks.check",
    "the manifest is written": "checks.write",
    "the descriptors are sent": "leases.PortLeases.release_holds",
    "the orders are given": "detach._send_orders",
}
STRUCK = """
import os, sys
from symphony import Cluster
from symphony.host import preflight as checks
from symphony.host.resources import leases
from symphony.host.supervisor import handover as detach
state, where, number = sys.argv[1:]
*path, name = where.split(".")
owner = {"checks": checks, "detach": detach, "leases": leases}[path[0]]
for part in path[1:]:
    owner = getattr(owner, part)
usual = getattr(owner, name)

def struck(*args):
    usual(*args)
    os.kill(os.getpid(), int(number))

setattr(owner, name, struck)
cluster = Cluster.new("local", state_dir=state)
experiment = cluster.new_experiment("exp")
experiment.new_process("p", command=["sleep", "1000"]).binds({"a": PORT})
cluster.launch(experiment)
""".replace("PORT", str(PORT))


def strike(
    state: Path, moment: str, number: signal.Signals, mark: str
) -> subprocess.CompletedProcess[str]:
    """A launcher that a signal meets at a moment of its launch. All that it starts carries the mark."""
    return subprocess.run(
        [sys.executable, "-c", STRUCK, str(state), MOMENTS[moment], str(int(number))],
        env={**os.environ, "TEST_MARK": mark},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def carrying(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get("TEST_MARK") == mark
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def left_in(state: Path) -> list[str]:
    return [path.name for path in state.iterdir() if path.name != ".lock"]


def nobody_keeps(state: Path) -> bool:
    return not any(RunDirectory(state / name).is_locked() for name in left_in(state))


def leased(port: int) -> bool:
    lease = take_lease("port", str(port))
    if lease is not None:
        os.close(lease)
    return lease is None


@pytest.fixture
def mark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A mark of this test's own on all that it starts, supervisors too."""
    mark = f"{os.getpid()}-{request.node.name}"
    monkeypatch.setenv("TEST_MARK", mark)
    yield mark
    for process in carrying(mark):
        with contextlib.suppress(psutil.NoSuchProcess):  # it may be about to end by itself
            process.kill()


# --- a launcher that is struck ---


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupted_launch_is_taken_back(state: Path, moment: str, mark: str) -> None:
    launcher = strike(state, moment, signal.SIGINT, mark)
    assert launcher.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert left_in(state) == []
    assert not leased(PORT)
    eventually(lambda: carrying(mark) == [])


@pytest.mark.parametrize(
    "moment", [moment for moment in MOMENTS if moment != "the orders are given"]
)
def test_a_launcher_that_is_killed_before_its_orders_leaves_no_supervisor(
    cluster: HostCluster, experiment: Experiment, state: Path, moment: str, mark: str
) -> None:
    assert strike(state, moment, signal.SIGKILL, mark).returncode == -signal.SIGKILL
    eventually(lambda: nobody_keeps(state) and carrying(mark) == [])
    assert not leased(PORT)
    assert cluster.list_experiments() == []
    experiment.new_process("p", command="true").binds({"a": PORT})
    cluster.launch(experiment)
    assert left_in(state) == ["exp"]


def test_orders_are_obeyed_when_the_launcher_is_killed_after_them(
    cluster: HostCluster, state: Path, mark: str
) -> None:
    strike(state, "the orders are given", signal.SIGKILL, mark)
    eventually(lambda: cluster.list_experiments() == ["exp"] and len(carrying(mark)) == 2)
    assert leased(PORT)
    cluster.delete("exp")
    assert carrying(mark) == []


# --- a launch that is refused ---


def no_command(experiment: Experiment) -> None:
    experiment.new_process("p").binds({"a": PORT})


def no_such_command(experiment: Experiment) -> None:
    experiment.new_process("p", command="no-such-thing").binds({"a": PORT})


def too_many_gpus(experiment: Experiment) -> None:
    experiment.new_process("p", command="true").binds({"a": PORT}).resource_limit(gpu=2)


def port_of_another(experiment: Experiment) -> None:
    experiment.new_process("p", command="true").binds({"a": PORT}).binds({"b": PORT + 1})


@pytest.mark.parametrize("wrong", [no_command, no_such_command, too_many_gpus, port_of_another])
def test_a_refused_launch_leaves_nothing_behind(
    state: Path, wrong: Callable[[Experiment], None], mark: str
) -> None:
    gpu = f"test-{mark}"
    cluster = Cluster.new("local", state_dir=state, gpus=[gpu])
    experiment = cluster.new_experiment("exp")
    wrong(experiment)
    with socket.create_server(("127.0.0.1", PORT + 1)), pytest.raises((SpecError, LaunchFailed)):
        cluster.launch(experiment)
    assert left_in(state) == []
    assert not leased(PORT)
    eventually(lambda: carrying(mark) == [])


# --- a supervisor that does not live to see its orders ---


@pytest.fixture
def children_of(
    cluster: HostCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str | None], None]:
    """Lets processes be started by ``Children`` of a module with that text."""

    def write(text: str | None) -> None:
        if text is not None:
            (tmp_path / "broken_children.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(type(cluster), "children", "broken_children:Children")

    return write


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No module named 'broken_children'"),
        ("raise RuntimeError('not today')", "RuntimeError: not today"),
        ("raise SystemExit('enough')", "SystemExit: enough"),
        ("Other = 1", "has no attribute 'Children'"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "it left no message"),
    ],
)
def test_a_supervisor_that_cannot_prepare_itself_is_a_failed_launch(
    cluster: HostCluster,
    experiment: Experiment,
    children_of: Callable[[str | None], None],
    state: Path,
    mark: str,
    text: str | None,
    reason: str,
) -> None:
    children_of(text)
    experiment.new_process("p", command="true").binds({"a": PORT})
    with pytest.raises(
        BackendError, match=f"the supervisor of 'exp' died while launching: .*{reason}"
    ):
        cluster.launch(experiment)
    assert left_in(state) == []
    assert not leased(PORT)
    eventually(lambda: carrying(mark) == [])


def test_a_refused_launch_waits_for_no_supervisor(
    cluster: HostCluster,
    experiment: Experiment,
    children_of: Callable[[str | None], None],
    state: Path,
    mark: str,
) -> None:
    children_of("import time; time.sleep(1000)")
    experiment.new_process("p", command="no-such-thing")
    with pytest.raises(SpecError, match="was not found"):
        cluster.launch(experiment)
    assert left_in(state) == []
    eventually(lambda: carrying(mark) == [])


# --- what is handed over ---


def test_hundreds_of_descriptors_are_handed_over_and_let_go_one_process_at_a_time(
    state: Path, mark: str
) -> None:
    names = [f"test-{os.getpid()}-{number}" for number in range(300)]
    cluster = Cluster.new("local", state_dir=state, gpus=names)
    experiment = cluster.new_experiment("exp", port_range=(7500, 7999))
    experiment.new_process("one", command=["sleep", "1000"]).resource_limit(gpu=1)
    experiment.new_process("rest", command="true").resource_limit(gpu=299)
    services = [f"s-{number}" for number in range(100)]
    experiment.new_process("server", command=["sleep", "1000"]).binds(services).starts_after(
        "one", "succeeded"
    )
    try:
        ports = [
            int(address.rpartition(":")[2])
            for address in cluster.launch(experiment).services.values()
        ]
        assert len(ports) == 100
        assert all(leased(port) for port in ports)
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", ports[-1]))
        assert gpu_is_leased(names[0])
        eventually(lambda: not any(gpu_is_leased(name) for name in names[1:]))
        assert gpu_is_leased(names[0])
    finally:
        cluster.delete("exp")
    assert not any(leased(port) for port in ports)


def gpu_is_leased(name: str) -> bool:
    lease = take_lease("gpu", name)
    if lease is not None:
        os.close(lease)
    return lease is None


CROWDED = """
import errno, os, resource, socket, threading
from symphony.host.supervisor import handover as detach
if os.getuid() == 0:
    os.setuid(65534)  # the kernel limits all but the superuser
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
ours, theirs = socket.socketpair()
descriptors = [0] * 40
for _ in range(2):
    detach._send_descriptors(ours, descriptors)
try:
    socket.send_fds(ours, [b" "], descriptors)
except OSError as exc:
    print(errno.errorcode[exc.errno])
received = []

def receive():
    while len(received) < 120:
        taken = socket.recv_fds(theirs, 1, 40)[1]
        received.extend(taken)
        for descriptor in taken:
            os.close(descriptor)

threading.Timer(0.1, receive).start()
detach._send_descriptors(ours, descriptors)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of Linux")
def test_descriptors_wait_for_those_that_nobody_has_received_yet() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CROWDED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ETOOMANYREFS\n", "", 0)


def test_a_supervisor_does_not_carry_the_mark_that_its_children_inherit(
    cluster: HostCluster, experiment: Experiment
) -> None:
    process = experiment.new_process("p", command=["sleep", "1000"])
    cluster.launch(experiment)
    found = [item.pid for item in find_run_processes(run_id_of(cluster))]
    assert found == [cluster.describe_process("exp", process.name).pid]
    assert supervisor_of(cluster) not in found
