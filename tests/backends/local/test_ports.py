"""Ports: chosen once on a machine, held until their server starts, refused when taken."""

import contextlib
import json
import os
import socket
import subprocess
import sys

import pytest

from symphony import Cluster, SpecError
from symphony.testing import until
from symphony.testing.contract import all_running
from symphony.testing.programs import FOREVER

from .conftest import python

LAUNCHER = """
import json, sys
from symphony import AlreadyExists, Cluster
cluster = Cluster.new("local", state_dir=sys.argv[1])
experiment = cluster.new_experiment(sys.argv[2])
experiment.new_process("server", command=["sleep", "1000"]).binds([f"s-{n}" for n in range(5)])
print("ready", flush=True)
sys.stdin.read()
try:
    print(json.dumps(cluster.launch(experiment).services))
except AlreadyExists:
    print("refused")
"""


def launch_at_once(states, names):
    """Launch in as many processes at the same instant; what each printed."""
    read, write = os.pipe()
    launchers = [
        subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(state), name],
            stdin=read,
            stdout=subprocess.PIPE,
            text=True,
        )
        for state, name in zip(states, names, strict=True)
    ]
    os.close(read)
    for launcher in launchers:
        assert launcher.stdout.readline() == "ready\n"
    os.close(write)
    return [launcher.communicate(timeout=60)[0].strip() for launcher in launchers]


def test_twenty_launches_at_the_same_instant_share_no_port(tmp_path):
    states = [tmp_path / ("one" if number % 2 else "other") for number in range(20)]
    names = [f"exp-{number}" for number in range(20)]
    try:
        said = [json.loads(text) for text in launch_at_once(states, names)]
        ports = [address for services in said for address in services.values()]
        assert len(ports) == 100
        assert len(set(ports)) == 100
    finally:
        for state, name in zip(states, names, strict=True):
            Cluster.new("local", state_dir=state).delete(name)


def test_of_launches_of_one_name_at_the_same_instant_one_wins(state, cluster):
    said = launch_at_once([state] * 6, ["exp"] * 6)
    assert sorted(text == "refused" for text in said) == [False] + [True] * 5
    assert all_running(cluster.describe_experiment("exp"))
    assert [name for name in os.listdir(state) if name != ".lock"] == ["exp"]


def test_the_same_spec_gives_the_same_ports(cluster, experiment):
    python(experiment, "server", FOREVER).binds(["a", "b"]).exposes({"c": 7777})
    assert cluster.manifest(experiment).services == cluster.manifest(experiment).services
    first = cluster.launch(experiment).services
    cluster.delete("exp")
    assert cluster.launch(experiment).services == first


def test_a_port_in_use_is_passed_over(cluster, experiment):
    python(experiment, "server", FOREVER).binds("a")
    free = int(cluster.manifest(experiment).services["a"].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", free)):
        assert cluster.manifest(experiment).services["a"] != f"127.0.0.1:{free}"


def test_a_fixed_port_in_use_is_refused_before_anything_starts(cluster, experiment, state):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        python(experiment, "server", FOREVER).binds({"a": port})
        with pytest.raises(
            SpecError,
            match=rf"port {port} of service 'a' \('server'\) is in use by pid {os.getpid()}",
        ):
            cluster.launch(experiment)
    assert cluster.list_experiments() == []


def test_a_fixed_port_of_another_experiment_is_refused(cluster, experiment):
    python(experiment, "server", FOREVER).binds({"a": 7433})
    cluster.launch(experiment)
    other = cluster.new_experiment("other")
    python(other, "server", FOREVER).binds({"b": 7433})
    with pytest.raises(SpecError, match="7433.*reserved by another running experiment"):
        cluster.launch(other)
    cluster.delete("exp")
    cluster.launch(other)


SLOW_SERVER = """
import os, socket, sys
print("up", flush=True)
open(sys.argv[1]).read()
server = socket.socket()
if sys.argv[2] == "reuse":
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    server.bind((os.environ["SYMPH_A_BIND_HOST"], int(os.environ["SYMPH_A_PORT"])))
    server.listen()
    print("bound", flush=True)
except OSError as exc:
    print("refused", exc.errno, flush=True)
"""


@pytest.mark.parametrize(
    (
        "hold",
        "server",
        "outcome",
        "port",
    ),  # ports of their own: what others used lingers and refuses plain servers
    [
        ("started", "reuse", "bound", 7451),
        ("started", "plain", "bound", 7452),
        ("bound", "reuse", "bound", 7453),
        ("bound", "plain", "refused", 7454),
    ],
)
def test_how_long_a_port_is_held(state, tmp_path, hold, server, outcome, port):
    """A server that has started and not yet bound: who may take its port meanwhile, and whether it can bind."""
    cluster = Cluster.new("local", state_dir=state, hold_ports=hold)
    experiment = cluster.new_experiment("exp", port_range=(port, port))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    python(experiment, "server", SLOW_SERVER, str(gate), server).binds("a").ready(log="up")
    experiment.new_process("after", command="true").starts_after("server")
    cluster.launch(experiment)
    try:
        until(cluster, "exp", lambda now: now.processes[0].ready)
        stranger = socket.socket()
        with contextlib.closing(stranger):
            if hold == "bound":
                with pytest.raises(OSError, match="in use"):
                    stranger.bind(("127.0.0.1", port))
            else:
                stranger.bind(("127.0.0.1", port))
        other = cluster.new_experiment("other", port_range=(port, port + 1))
        python(other, "server", FOREVER).binds("a")
        assert cluster.manifest(other).services["a"] == f"127.0.0.1:{port + 1}"
        gate.write_text("go")
        cluster.wait("exp", timeout=20)
        assert cluster.get_log("exp", "server").split()[1] == outcome
    finally:
        cluster.delete("exp")


def test_a_port_is_held_until_its_server_starts(cluster, experiment):
    first = python(experiment, "first", FOREVER)
    python(experiment, "server", FOREVER).binds("a").starts_after(first, "succeeded")
    address = cluster.launch(experiment).services["a"]
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", int(address.rpartition(":")[2])))


def test_ports_are_free_again_when_an_experiment_has_ended(cluster, experiment):
    experiment.new_process("p", command="true").binds({"a": 7434})
    cluster.launch(experiment)
    cluster.wait("exp", timeout=20)
    assert cluster.launch(experiment).services == {"a": "127.0.0.1:7434"}
