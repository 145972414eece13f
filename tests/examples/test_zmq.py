"""Test the ZeroMQ example with local processes."""

import os
import runpy
import sys
from pathlib import Path

import pytest
import zmq

from symphony import Cluster, Experiment, SpecError

EXAMPLE = Path(__file__).parents[2] / "examples" / "zmq"


@pytest.fixture
def experiment(monkeypatch):
    """Return the experiment of the example, with this interpreter on the PATH as python3."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    module = runpy.run_path(str(EXAMPLE / "experiment.py"))
    experiment = Experiment(module["NAME"])
    experiment.base_dir = EXAMPLE
    module["build"](experiment)
    return experiment


def test_example_succeeds(experiment, tmp_path):
    cluster = Cluster.new("local", state_dir=tmp_path)
    try:
        cluster.launch(experiment)
        status = cluster.wait("zmq", timeout=60)
        client, server = cluster.get_log("zmq", "client"), cluster.get_log("zmq", "server")
        assert status.exit_code == 0, client + server
        assert client.count("round trip ") == 20
        assert "20 round trips, 4 MB moved" in client
        assert server.endswith("answered 20 requests\n")
    finally:
        cluster.delete("zmq")


def test_client_has_a_connect_timeout(monkeypatch):
    """A connection to a Service that has no endpoint yet may never be accepted or rejected."""
    seen = []

    def connect(socket, address):
        seen.append((address, socket.connect_timeout))
        raise InterruptedError

    monkeypatch.setattr(zmq.Socket, "connect", connect)
    monkeypatch.setenv("SYMPH_EXAMPLE_ADDR", "127.0.0.1:7000")
    with pytest.raises(InterruptedError):
        runpy.run_path(str(EXAMPLE / "client.py"))["main"]()
    assert seen == [("tcp://127.0.0.1:7000", 1500)]


def test_base_directory_can_be_text(experiment, tmp_path):
    (tmp_path / "token").write_text("swordfish")
    experiment.secrets = {"token": "token"}
    experiment.base_dir = str(tmp_path)
    assert experiment.base_dir == tmp_path
    for backend, options in (
        ("local", {"state_dir": tmp_path / "state"}),
        ("kube", {"image": "i"}),
    ):
        assert "token" in str(Cluster.new(backend, **options).manifest(experiment))
    with pytest.raises(SpecError, match="base_dir is empty"):
        experiment.base_dir = ""


def test_example_survives_dump_and_load(experiment, tmp_path):
    experiment.dump_file(tmp_path / "zmq.yml")
    loaded = Experiment.load_file(tmp_path / "zmq.yml")
    cluster = Cluster.new("local", state_dir=tmp_path / "state")
    assert loaded.dump_dict() == experiment.dump_dict()
    # Another launch of this machine can reserve the port of the first manifest for a moment.
    names = [manifest.services.keys() for manifest in map(cluster.manifest, (experiment, loaded))]
    assert names[0] == names[1] == {"example"}
