"""The ZeroMQ example, on every backend that can run here."""

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
    """The example, with this interpreter as the python3 of the PATH: it has pyzmq."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    module = runpy.run_path(str(EXAMPLE / "experiment.py"))
    experiment = Experiment(module["NAME"])
    experiment.base_dir = EXAMPLE
    module["build"](experiment)
    return experiment


@pytest.mark.parametrize("backend", ["local"])
def test_the_conversation_ends_well(experiment, backend, tmp_path):
    cluster = Cluster.new(backend, state_dir=tmp_path)
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


def test_a_connection_without_an_answer_is_begun_again(monkeypatch):
    """What is sent to a Service before it knows its Pod may never get an answer."""
    seen = []

    def connect(socket, address):
        seen.append((address, socket.connect_timeout))
        raise InterruptedError

    monkeypatch.setattr(zmq.Socket, "connect", connect)
    monkeypatch.setenv("SYMPH_EXAMPLE_ADDR", "127.0.0.1:7000")
    with pytest.raises(InterruptedError):
        runpy.run_path(str(EXAMPLE / "client.py"))["main"]()
    assert seen == [("tcp://127.0.0.1:7000", 1500)]


def test_the_folder_of_an_experiment_may_be_text(experiment, tmp_path):
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


def test_it_is_the_same_in_a_file(experiment, tmp_path):
    experiment.dump_file(tmp_path / "zmq.yml")
    loaded = Experiment.load_file(tmp_path / "zmq.yml")
    cluster = Cluster.new("local", state_dir=tmp_path / "state")
    assert loaded.dump_dict() == experiment.dump_dict()
    assert cluster.manifest(loaded).services == cluster.manifest(experiment).services
