"""What a launch would do, told while the experiment runs: its own ports are not in its way, those of others are."""

import os
import signal
import socket

import pytest

from symphony import Cluster, SpecError
from symphony.errors import AlreadyExists
from symphony.host.resources.leases import PortLeases
from symphony.host.resources.ports import ExperimentPorts
from symphony.host.run.directory import RunDirectory
from symphony.testing.programs import FOREVER

from .conftest import kill, python, supervisor_of

LISTEN = (
    "import socket, sys, time\n"
    "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
    "print('listening', flush=True)\n"
    "time.sleep(1000)"
)


@pytest.fixture
def port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def serving(cluster, port, name="exp", **ports):
    """An experiment whose process listens on a port, which it declares as these services."""
    experiment = cluster.new_experiment(name)
    process = python(experiment, "learner", LISTEN, str(port)).ready(log="listening")
    if ports:
        process.exposes(ports)
    return experiment


def launched(cluster, experiment):
    cluster.launch(experiment)
    cluster.wait(experiment.name, until="ready", timeout=60)
    return cluster.describe_experiment(experiment.name)


def port_of(manifest, service="board"):
    return int(manifest.services[service].rpartition(":")[2])


def test_its_own_fixed_port_is_free_and_stays_its(cluster, port):
    experiment = serving(cluster, port, board=port)
    before = launched(cluster, experiment)
    assert port_of(cluster.manifest(experiment)) == port
    assert port_of(cluster.launch(experiment, force=True, dry_run=True)) == port
    assert cluster.describe_experiment("exp") == before
    socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(AlreadyExists, match="is running and was not changed"):
        cluster.launch(experiment, dry_run=True)


def test_a_port_that_was_chosen_is_chosen_again(cluster, port):
    experiment = serving(cluster, port, board=None)
    cluster.launch(experiment)
    assert (
        cluster.manifest(experiment).services
        == RunDirectory(cluster._root / "exp").load_manifest()["services"]
    )


def test_a_port_on_which_it_listens_without_a_service_is_free_too(cluster, port):
    launched(cluster, serving(cluster, port))
    assert port_of(cluster.manifest(serving(cluster, port, board=port))) == port
    with pytest.raises(SpecError, match="is in use by pid"):
        cluster.manifest(serving(cluster, port, "another", board=port))


def test_the_same_port_of_another_experiment_is_not(cluster, port, tmp_path):
    launched(cluster, serving(cluster, port, board=port))
    for other, name in (
        (cluster, "another"),
        (Cluster.new("local", state_dir=tmp_path / "elsewhere"), "exp"),
    ):
        experiment = serving(other, port, name, board=port)
        for look in (
            other.manifest,
            lambda exp, at=other: at.launch(exp, force=True, dry_run=True),
        ):
            with pytest.raises(
                SpecError, match=f"port {port} .* is reserved by another running experiment"
            ):
                look(experiment)


def test_a_port_that_it_had_and_another_has_is_not(cluster, port):
    ended = cluster.new_experiment("exp")
    python(ended, "learner", FOREVER).exposes({"board": port})
    cluster.launch(ended)
    cluster.stop("exp")
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(SpecError, match=f"is in use by pid {os.getpid()}"):
            cluster.manifest(serving(cluster, port, board=port))
    launched(cluster, serving(cluster, port, "another", board=port))
    with pytest.raises(SpecError, match="is reserved by another running experiment"):
        cluster.manifest(serving(cluster, port, board=port))


def test_what_its_processes_listen_on_counts_when_its_supervisor_died(cluster, port):
    (process,) = launched(cluster, serving(cluster, port, board=port))
    kill(supervisor_of(cluster))
    assert port_of(cluster.manifest(serving(cluster, port, board=port))) == port
    os.kill(process.pid, signal.SIGKILL)


def test_a_record_that_is_broken_gives_nothing_free(tmp_path):
    run = RunDirectory(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    for own in (ExperimentPorts(run), ExperimentPorts(None)):
        assert (own.reserved, own.listening) == (frozenset(), frozenset())


def test_a_free_port_is_not_held_of_it_while_its_server_may_bind_it(cluster, port):
    """A look takes nothing from what runs: the port of a server that comes late can be bound meanwhile."""
    experiment = cluster.new_experiment("exp")
    python(experiment, "learner", FOREVER).exposes({"board": port})
    cluster.launch(experiment)
    with PortLeases(ExperimentPorts(RunDirectory(cluster._root / "exp"))) as ports:
        assert ports.reserve(port) is None
        assert (ports.leases, ports.holds) == ({}, {})


@pytest.mark.parametrize("leftover", ["", "setsid sleep 1000 & "], ids=["nothing", "a process"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_who_has_waited_for_the_end_may_use_the_port_again(cluster, port, leftover, dry_run):
    """The supervisor has yet to see to what was left behind, and has the port for so long."""
    for name in ("one", "two", "three"):
        experiment = cluster.new_experiment(name)
        experiment.new_process("p", cmd=f"{leftover}true").binds({"board": port})
        if dry_run:
            assert port_of(cluster.manifest(experiment)) == port
        cluster.launch(experiment)
        assert cluster.wait(name, timeout=60).exit_code == 0


def test_the_port_of_one_that_lives_is_not_waited_for(cluster, port):
    live = cluster.new_experiment("live")
    python(live, "p", FOREVER).binds({"board": port})
    cluster.launch(live)
    other = cluster.new_experiment("other")
    python(other, "p", FOREVER).binds({"board": port})
    with pytest.raises(SpecError, match="is reserved by another running experiment"):
        cluster.launch(other)
