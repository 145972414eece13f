"""Ports that a running or finishing experiment has reserved, in dry runs and in later launches."""

import os
import signal
import socket
from pathlib import Path

import pytest

from symphony import Cluster, SpecError
from symphony.errors import AlreadyExists
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.resources.leases import PortLeases
from symphony.supervised.resources.ports import ExperimentPorts, FinishingPorts
from symphony.testing.programs import FOREVER

from .conftest import kill_supervision, python

LISTEN = (
    "import socket, sys, time\n"
    "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
    "print('listening', flush=True)\n"
    "time.sleep(1000)"
)
RESERVED = "is reserved by another running experiment"


@pytest.fixture
def port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def serving(cluster, port, name="exp", **services):
    """An experiment whose process listens on a port. ``services`` declare it."""
    experiment = cluster.new_experiment(name)
    process = python(experiment, "learner", LISTEN, str(port)).ready(log="listening")
    if services:
        process.exposes(services)
    return experiment


def launched(cluster, experiment):
    cluster.launch(experiment)
    cluster.wait(experiment.name, until="ready", timeout=60)
    return cluster.describe_experiment(experiment.name)


def port_of(manifest, service="board"):
    return int(manifest.services[service].rpartition(":")[2])


def test_dry_run_may_use_the_fixed_port_of_the_experiment_itself(cluster, port):
    experiment = serving(cluster, port, board=port)
    before = launched(cluster, experiment)
    assert port_of(cluster.manifest(experiment)) == port
    assert port_of(cluster.launch(experiment, force=True, dry_run=True)) == port
    assert cluster.describe_experiment("exp") == before
    socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(AlreadyExists):
        cluster.launch(experiment, dry_run=True)


def test_dry_run_chooses_the_chosen_ports_again(cluster, port):
    experiment = serving(cluster, port, board=None)
    # Other tests can release a port that precedes the chosen one in the usual range.
    experiment.port_range = (port, port)
    cluster.launch(experiment)
    manifest = RunDirectory(cluster._root / "exp").load_manifest()
    assert cluster.manifest(experiment).services == manifest["services"]


def test_dry_run_may_use_a_port_that_only_the_experiment_listens_on(cluster, port):
    launched(cluster, serving(cluster, port))
    assert port_of(cluster.manifest(serving(cluster, port, board=port))) == port
    with pytest.raises(SpecError, match="is in use by pid"):
        cluster.manifest(serving(cluster, port, "another", board=port))


def test_port_of_another_experiment_is_refused(cluster, port, tmp_path):
    launched(cluster, serving(cluster, port, board=port))
    other_state = Cluster.new("local", state_dir=tmp_path / "other")
    for other, name in ((cluster, "another"), (other_state, "exp")):
        experiment = serving(other, port, name, board=port)
        with pytest.raises(SpecError, match=f"port {port} .* {RESERVED}"):
            other.manifest(experiment)
        with pytest.raises(SpecError, match=f"port {port} .* {RESERVED}"):
            other.launch(experiment, force=True)


def test_former_port_of_a_stopped_experiment_is_not_its_own(cluster, port):
    stopped = cluster.new_experiment("exp")
    python(stopped, "learner", FOREVER).exposes({"board": port})
    cluster.launch(stopped)
    cluster.stop("exp")
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(SpecError, match=f"is in use by pid {os.getpid()}"):
            cluster.manifest(serving(cluster, port, board=port))
    launched(cluster, serving(cluster, port, "another", board=port))
    with pytest.raises(SpecError, match=RESERVED):
        cluster.manifest(serving(cluster, port, board=port))


def test_listening_port_counts_after_the_supervisor_was_killed(cluster, port):
    (process,) = launched(cluster, serving(cluster, port, board=port))
    kill_supervision(cluster)
    assert port_of(cluster.manifest(serving(cluster, port, board=port))) == port
    os.kill(process.pid, signal.SIGKILL)


def test_unreadable_manifest_has_no_ports(tmp_path):
    (tmp_path / "manifest.json").write_text("{")
    for ports in (ExperimentPorts(RunDirectory(tmp_path)), ExperimentPorts(None)):
        assert (ports.reserved, ports.listening) == (frozenset(), frozenset())


def test_dry_run_does_not_hold_the_port_of_a_server_that_binds_later(cluster, port):
    experiment = cluster.new_experiment("exp")
    python(experiment, "learner", FOREVER).exposes({"board": port})
    cluster.launch(experiment)
    with PortLeases(ExperimentPorts(RunDirectory(cluster._root / "exp"))) as ports:
        assert ports.reserve(port) is None
        assert (ports.leases, ports.holds) == ({}, {})


@pytest.mark.parametrize("leftover", ["", "setsid sleep 1000 & "], ids=["nothing", "a process"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_port_can_be_used_again_after_the_end_of_an_experiment(cluster, port, leftover, dry_run):
    """The supervisor holds the port until it has stopped the remaining child processes."""
    for name in ("one", "two"):
        experiment = cluster.new_experiment(name)
        experiment.new_process("p", cmd=f"{leftover}true").binds({"board": port})
        if dry_run:
            assert port_of(cluster.manifest(experiment)) == port
        cluster.launch(experiment)
        assert cluster.wait(name, timeout=60).exit_code == 0


class ExitsBeforeItIsLookedFor(FinishingPorts):
    """A supervisor that holds a port, and exits just before a launch looks for it."""

    def __init__(self, root: Path, port: int) -> None:
        super().__init__(root, timeout=0)
        self.leases = PortLeases()
        assert self.leases.reserve(port) is None

    def wait_until_released(self, port: int) -> None:
        self.leases.release()
        super().wait_until_released(port)


def test_port_of_a_supervisor_that_exits_during_the_check_can_be_used(port, tmp_path):
    finishing = ExitsBeforeItIsLookedFor(tmp_path, port)
    with PortLeases(finishing=finishing) as ports:
        assert ports.reserve(port) is None
