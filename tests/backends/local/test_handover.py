"""The handover from a launcher to its supervisor: no failure of either leaves anything behind."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from symphony import (
    BackendError,
    Cluster,
    Experiment,
    ExperimentStatus,
    LaunchFailed,
    SpecError,
    State,
)
from symphony.supervised import preflight
from symphony.supervised.cluster import HostCluster
from symphony.supervised.processes.membership import RunProcesses
from symphony.supervised.record import directory
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.resources.leases import take_lease
from symphony.supervised.supervisor import handover

from .conftest import eventually, run_id_of, supervisor_of

# Another run of the tests on this machine has other ports. Both ports are below those that the
# system chooses itself.
PORT = 10_000 + os.getpid() * 2 % 10_000

# The moment after which the launcher receives a signal, and the function that ends there.
MOMENTS = {
    "the supervisor was spawned": "handover._spawn_supervisor",
    "the launcher has checked": "preflight.check",
    "the manifest is written": "directory.RunDirectory.write_manifest",
    "the descriptors are sent": "leases.PortLeases.release",
    "the orders are sent": "handover._send_orders",
}
INTERRUPTED = """
import os, sys
from symphony import Cluster
from symphony.supervised import preflight
from symphony.supervised.record import directory
from symphony.supervised.resources import leases
from symphony.supervised.supervisor import handover
state, function, number = sys.argv[1:]
*path, name = function.split(".")
modules = {"preflight": preflight, "handover": handover, "leases": leases, "directory": directory}
owner = modules[path[0]]
for part in path[1:]:
    owner = getattr(owner, part)
usual = getattr(owner, name)

def interrupted(*args):
    usual(*args)
    os.kill(os.getpid(), int(number))

setattr(owner, name, interrupted)
cluster = Cluster.new("local", state_dir=state)
experiment = cluster.new_experiment("exp")
experiment.new_process("p", command=["sleep", "1000"]).binds({"a": PORT})
cluster.launch(experiment)
""".replace("PORT", str(PORT))


def interrupt(
    state: Path, moment: str, number: signal.Signals, mark: str
) -> subprocess.CompletedProcess[str]:
    """Run a launcher that receives a signal. Its processes have the mark in their environment."""
    return subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(state), MOMENTS[moment], str(int(number))],
        env={**os.environ, "TEST_MARK": mark},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def marked_processes(mark: str) -> list[psutil.Process]:
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


def is_unlocked(state: Path) -> bool:
    return not any(RunDirectory(state / name).is_locked() for name in left_in(state))


def is_leased(port: int) -> bool:
    lease = take_lease("port", str(port))
    if lease is not None:
        os.close(lease)
    return lease is None


@pytest.fixture
def mark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A mark in the environment of everything that this test starts, including supervisors."""
    mark = f"{os.getpid()}-{request.node.name}"
    monkeypatch.setenv("TEST_MARK", mark)
    yield mark
    for process in marked_processes(mark):
        with contextlib.suppress(psutil.NoSuchProcess):  # it may exit at this moment
            process.kill()


# --- an interrupted launcher ---


@pytest.mark.parametrize("moment", MOMENTS)
def test_interrupted_launch_is_rolled_back(state: Path, moment: str, mark: str) -> None:
    launcher = interrupt(state, moment, signal.SIGINT, mark)
    assert launcher.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert left_in(state) == []
    assert not is_leased(PORT)
    eventually(lambda: marked_processes(mark) == [])


@pytest.mark.parametrize(
    "moment", [moment for moment in MOMENTS if moment != "the orders are sent"]
)
def test_launcher_killed_before_its_orders_leaves_no_supervisor(
    cluster: HostCluster, experiment: Experiment, state: Path, moment: str, mark: str
) -> None:
    assert interrupt(state, moment, signal.SIGKILL, mark).returncode == -signal.SIGKILL
    eventually(lambda: is_unlocked(state) and marked_processes(mark) == [])
    assert not is_leased(PORT)
    assert cluster.list_experiments() == []
    experiment.new_process("p", command="true").binds({"a": PORT})
    cluster.launch(experiment)
    assert left_in(state) == ["exp"]


def test_launch_completes_if_the_launcher_is_killed_after_its_orders(
    cluster: HostCluster, state: Path, mark: str
) -> None:
    interrupt(state, "the orders are sent", signal.SIGKILL, mark)
    # The guardian, the supervisor, the program that copies output, and the process.
    eventually(lambda: cluster.list_experiments() == ["exp"] and len(marked_processes(mark)) == 4)
    assert is_leased(PORT)
    cluster.delete("exp")
    eventually(lambda: marked_processes(mark) == [])


# --- a refused launch ---


def no_command(experiment: Experiment) -> None:
    experiment.new_process("p").binds({"a": PORT})


def no_such_command(experiment: Experiment) -> None:
    experiment.new_process("p", command="no-such-thing").binds({"a": PORT})


def too_many_gpus(experiment: Experiment) -> None:
    experiment.new_process("p", command="true").binds({"a": PORT}).resource_limit(gpu=2)


def port_of_another(experiment: Experiment) -> None:
    experiment.new_process("p", command="true").binds({"a": PORT}).binds({"b": PORT + 1})


@pytest.mark.parametrize("wrong", [no_command, no_such_command, too_many_gpus, port_of_another])
def test_refused_launch_leaves_nothing_behind(
    state: Path, wrong: Callable[[Experiment], None], mark: str
) -> None:
    gpu = f"test-{mark}"
    cluster = Cluster.new("local", state_dir=state, gpus=[gpu])
    experiment = cluster.new_experiment("exp")
    wrong(experiment)
    with socket.create_server(("127.0.0.1", PORT + 1)), pytest.raises((SpecError, LaunchFailed)):
        cluster.launch(experiment)
    assert left_in(state) == []
    assert not is_leased(PORT)
    eventually(lambda: marked_processes(mark) == [])


# --- a supervisor that fails before its orders ---


@pytest.fixture
def use_children(
    cluster: HostCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str | None], None]:
    """Let the supervisor import its ``Children`` from a module with the given text."""

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
def test_supervisor_that_cannot_import_its_modules_is_a_failed_launch(
    cluster: HostCluster,
    experiment: Experiment,
    use_children: Callable[[str | None], None],
    state: Path,
    mark: str,
    text: str | None,
    reason: str,
) -> None:
    use_children(text)
    experiment.new_process("p", command="true").binds({"a": PORT})
    with pytest.raises(
        BackendError, match=f"the supervisor of 'exp' died while launching: .*{reason}"
    ):
        cluster.launch(experiment)
    assert left_in(state) == []
    assert not is_leased(PORT)
    eventually(lambda: marked_processes(mark) == [])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            "RuntimeError('not today')",
            "the supervisor of 'exp' failed while launching: .*not today",
        ),
        ("OSError(28, 'No space left')", "cannot write to {}: No space left; .* KiB are free"),
    ],
)
def test_supervisor_that_fails_before_the_first_start_is_a_failed_launch(
    cluster: HostCluster,
    experiment: Experiment,
    use_children: Callable[[str | None], None],
    state: Path,
    error: str,
    message: str,
) -> None:
    use_children(f"class Children:\n    def __init__(self, *_):\n        raise {error}\n")
    experiment.new_process("p", command="true").binds({"a": PORT})
    with pytest.raises(BackendError, match=message.replace("{}", str(state / "exp"))):
        cluster.launch(experiment)
    assert left_in(state) == []
    assert not is_leased(PORT), "the next launch can use the port at once"


def test_launch_on_a_full_disk_names_the_directory_and_the_remedy(
    cluster: HostCluster,
    experiment: Experiment,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    experiment.new_process("p", command="true")
    message = (
        f"^cannot write to {state}: No space left; [0-9]+ KiB are free, and an experiment of one "
        "process needs about 84 KiB without its logs; free some space, or set SYMPHONY_STATE_DIR"
    )
    for function in ("launch_lock", "staging_directory"):
        with monkeypatch.context() as patch:
            patch.setattr(directory, function, fail)
            with pytest.raises(BackendError, match=message):
                cluster.launch(experiment)
    monkeypatch.setattr(RunDirectory, "write_manifest", fail)
    with pytest.raises(BackendError, match=message):
        cluster.launch(experiment)
    assert left_in(state) == []


def test_replaced_experiment_keeps_running_if_its_replacement_cannot_be_prepared(
    cluster: HostCluster,
    experiment: Experiment,
    state: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    template = tmp_path / "template"
    template.write_text("${a.addr}")
    process = experiment.new_process("p", command=["sleep", "1000"]).binds("a")
    process.configs({"config": str(template)})
    cluster.launch(experiment)
    before = cluster.describe_experiment("exp")
    steps = [
        (preflight, "write_code"),
        (preflight, "write_secrets"),
        (preflight, "write_configs"),
        (RunDirectory, "write_manifest"),
        (directory, "check_free_space"),
        (handover, "_spawn_supervisor"),
    ]
    for module, function in steps:
        with monkeypatch.context() as patch:
            patch.setattr(module, function, fail)
            with pytest.raises(BackendError, match="No space left"):
                cluster.launch(experiment, force=True)
        assert cluster.describe_experiment("exp") == before, function
        assert left_in(state) == ["exp"]
    manifest = cluster.launch(experiment, force=True)
    assert cluster.describe_experiment("exp").processes[0].pid != before.processes[0].pid
    (config,) = (state / "exp" / "configs" / "p").glob("*/config")
    assert config.read_text() == manifest.services["a"]


HAS_NO_FALLOCATE = """
import errno
from symphony.supervised.supervisor.capture import file_blocks
from symphony.supervised.supervisor.local_children import LocalChildren as Children

def refuse(*_):
    raise OSError(errno.EOPNOTSUPP, "not supported")

file_blocks._call = refuse
"""


def test_launch_reports_what_the_file_system_does_not_support(
    cluster: HostCluster,
    experiment: Experiment,
    use_children: Callable[[str | None], None],
    state: Path,
) -> None:
    use_children(HAS_NO_FALLOCATE)
    experiment.new_process("p", command="true")
    statuses: list[ExperimentStatus] = []
    cluster.launch(experiment, on_change=statuses.append)
    (status,) = statuses
    assert status.note.startswith(
        "log_limit has no effect and events are not recorded while the disk is full, because the "
        f"file system of {state / 'exp'} does not support fallocate"
    )
    assert cluster.wait("exp", timeout=20).note == ""


FAILS_LATER = """
import os
from symphony.supervised.supervisor.local_children import LocalChildren

class Children(LocalChildren):
    def start(self, processes, env):
        specs = list(processes)
        if any(spec.name == "broken" for spec in specs):
            raise RuntimeError("not today")
        yield from super().start(specs, env)

    def _reap(self, child):
        if child.name == "collected":
            os.waitpid(child.pid, 0)
        super()._reap(child)
"""


def test_supervisor_survives_an_error_after_the_launch(
    cluster: HostCluster, experiment: Experiment, use_children: Callable[[str | None], None]
) -> None:
    use_children(FAILS_LATER)
    experiment.new_process("first", command="true")
    experiment.new_process("broken", command="true").starts_after("first", "succeeded")
    experiment.new_process("last", command="true").starts_after("broken", "succeeded")
    experiment.new_process("collected", cmd="exit 3")
    cluster.launch(experiment)
    status = cluster.wait("exp", timeout=20)
    assert "internal error" in status.note
    assert "RuntimeError: not today" in status.note
    processes = {process.name: process for process in status}
    assert processes["first"].state is State.SUCCEEDED
    assert (processes["broken"].state, processes["broken"].reason) == (
        State.FAILED,
        "cannot start 'true': not today",
    )
    assert processes["last"].state is State.FAILED
    assert (processes["collected"].state, processes["collected"].exit_code) == (State.UNKNOWN, None)


def test_refused_launch_does_not_wait_for_the_supervisor(
    cluster: HostCluster,
    experiment: Experiment,
    use_children: Callable[[str | None], None],
    state: Path,
    mark: str,
) -> None:
    use_children("import time; time.sleep(1000)")
    experiment.new_process("p", command="no-such-thing")
    with pytest.raises(SpecError, match="was not found"):
        cluster.launch(experiment)
    assert left_in(state) == []
    eventually(lambda: marked_processes(mark) == [])


# --- descriptors ---


def test_hundreds_of_descriptors_are_handed_over_and_released_in_time(
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
        assert all(is_leased(port) for port in ports)
        with socket.socket() as competitor, pytest.raises(OSError, match="in use"):
            competitor.bind(("127.0.0.1", ports[-1]))
        assert is_gpu_leased(names[0])
        resources = cluster.explain_process("exp", "one").resources
        assert resources == {"gpu": "1", "gpu devices": names[0]}
        eventually(lambda: not any(is_gpu_leased(name) for name in names[1:]))
        assert is_gpu_leased(names[0])
    finally:
        cluster.delete("exp")
    assert not any(is_leased(port) for port in ports)


def is_gpu_leased(name: str) -> bool:
    lease = take_lease("gpu", name)
    if lease is not None:
        os.close(lease)
    return lease is None


CROWDED = """
import errno, os, resource, socket, threading
from symphony.supervised.supervisor import handover
if os.getuid() == 0:
    os.setuid(65534)  # the limit does not apply to root
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
ours, theirs = socket.socketpair()
descriptors = [0] * 40
for _ in range(2):
    handover.send_descriptors(ours, descriptors)
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
handover.send_descriptors(ours, descriptors)
"""


@pytest.mark.without_coverage
def test_descriptors_wait_until_others_in_transit_are_received() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CROWDED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ETOOMANYREFS\n", "", 0)


TOO_FEW_DESCRIPTORS = """
import resource, sys
from symphony import Cluster, SymphonyError
cluster = Cluster.new(sys.argv[1], state_dir=sys.argv[2])
experiment = cluster.new_experiment("exp")
for number in range(10):
    experiment.new_process(f"p-{number}", command=["sleep", "1000"]).binds(f"s-{number}")
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for limits in ((30, hard), (30, 30)):
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    try:
        cluster.launch(experiment)
    except SymphonyError as exc:
        print(exc)
"""


@pytest.mark.without_coverage
def test_low_limit_of_open_files_is_reported_before_the_launch(state: Path) -> None:
    command = [sys.executable, "-c", TOO_FEW_DESCRIPTORS, "local", str(state)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    soft, hard = done.stdout.splitlines()
    # 10 ports have 20 descriptors.
    assert soft.startswith("experiment 'exp' needs up to 52 open files, but the limit is 30 ")
    assert soft.endswith("raise it with: ulimit -n 52")
    assert hard.startswith("experiment 'exp' needs up to 52 open files, but the hard limit is 30 ")
    assert not state.exists()


def test_supervisor_does_not_belong_to_its_own_run(
    cluster: HostCluster, experiment: Experiment
) -> None:
    process = experiment.new_process("p", command=["sleep", "1000"])
    cluster.launch(experiment)
    found = [item.pid for item in RunProcesses(run_id_of(cluster)).find()]
    assert found == [cluster.describe_process("exp", process.name).pid]
    assert supervisor_of(cluster) not in found


def test_supervisor_writes_no_compiled_modules_while_it_supervises() -> None:
    """On a full disk, it would write a part of one, and no program could import the module."""
    program = """
import sys
from unittest.mock import Mock
from symphony.supervised.supervisor import handover
supervisor = Mock()
supervisor.run = lambda: print(sys.dont_write_bytecode)
handover._supervise(supervisor, Mock())
"""
    environment = {
        key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
    }
    printed = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert printed == "True\n"
