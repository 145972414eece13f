"""Ports: unique on the machine, held until their server starts, refused if they are in use."""

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


def launch_concurrently(states, names):
    """Launch every experiment in its own process, all at the same moment. Return the outputs."""
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


def test_concurrent_launches_share_no_port(tmp_path):
    states = [tmp_path / ("one" if number % 2 else "other") for number in range(6)]
    names = [f"exp-{number}" for number in range(6)]
    try:
        outputs = [json.loads(text) for text in launch_concurrently(states, names)]
        ports = [address for services in outputs for address in services.values()]
        assert len(ports) == len(set(ports)) == 30
    finally:
        for state, name in zip(states, names, strict=True):
            Cluster.new("local", state_dir=state).delete(name)


def test_one_of_several_concurrent_launches_of_a_name_succeeds(state, cluster):
    outputs = launch_concurrently([state] * 4, ["exp"] * 4)
    assert sorted(text == "refused" for text in outputs) == [False] + [True] * 3
    assert all_running(cluster.describe_experiment("exp"))
    assert [name for name in os.listdir(state) if name != ".lock"] == ["exp"]


def test_ports_are_repeatable_and_skip_ports_in_use(cluster, experiment):
    # Tests that run at the same time use the first ports of the default range.
    experiment.port_range = (8900, 8949)
    python(experiment, "server", FOREVER).binds(["a", "b"]).exposes({"c": 8949})
    services = cluster.manifest(experiment).services
    assert cluster.launch(experiment).services == services
    cluster.delete("exp")
    assert cluster.manifest(experiment).services == services
    with socket.create_server(("127.0.0.1", int(services["a"].rpartition(":")[2]))):
        assert cluster.manifest(experiment).services["a"] != services["a"]


def test_fixed_port_in_use_is_refused_before_anything_starts(cluster, experiment):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        python(experiment, "server", FOREVER).binds({"a": port})
        message = rf"port {port} of service 'a' \('server'\) is in use by pid {os.getpid()}"
        with pytest.raises(SpecError, match=message):
            cluster.launch(experiment)
    assert cluster.list_experiments() == []


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


# Each case has its own port: a closed connection keeps a plain server off its port for a minute.
@pytest.mark.parametrize(
    ("hold", "server", "outcome", "port"),
    [
        ("started", "reuse", "bound", 7451),
        ("started", "plain", "bound", 7452),
        ("bound", "reuse", "bound", 7453),
        ("bound", "plain", "refused", 7454),
    ],
)
def test_hold_ports_sets_how_long_a_port_is_held(state, tmp_path, hold, server, outcome, port):
    """The server has started and has not bound its port yet."""
    cluster = Cluster.new("local", state_dir=state, hold_ports=hold)
    experiment = cluster.new_experiment("exp", port_range=(port, port))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    python(experiment, "server", SLOW_SERVER, str(gate), server).binds("a").ready(log="up")
    experiment.new_process("after", command="true").starts_after("server")
    cluster.launch(experiment)
    try:
        until(cluster, "exp", lambda now: now.processes[0].ready)
        with contextlib.closing(socket.socket()) as competitor:
            if hold == "bound":
                with pytest.raises(OSError, match="in use"):
                    competitor.bind(("127.0.0.1", port))
            else:
                competitor.bind(("127.0.0.1", port))
        other = cluster.new_experiment("other", port_range=(port, port + 1))
        python(other, "server", FOREVER).binds("a")
        assert cluster.manifest(other).services["a"] == f"127.0.0.1:{port + 1}"
        gate.write_text("go")
        cluster.wait("exp", timeout=20)
        assert cluster.get_log("exp", "server").split()[1] == outcome
    finally:
        cluster.delete("exp")
