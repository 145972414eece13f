"""Run the ZeroMQ example in two windows."""

import os
import runpy
import sys
from pathlib import Path

from tests.backends.tmux.conftest import windows

EXAMPLE = Path(__file__).parents[3] / "examples" / "zmq"


def test_example_succeeds(cluster, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    module = runpy.run_path(str(EXAMPLE / "experiment.py"))
    experiment = cluster.new_experiment(module["NAME"])
    experiment.base_dir = EXAMPLE
    module["build"](experiment)
    cluster.launch(experiment)
    status = cluster.wait(experiment.name, timeout=60)
    client, server = cluster.get_log("zmq", "client"), cluster.get_log("zmq", "server")
    assert status.exit_code == 0, client + server
    assert client.count("round trip ") == 20
    assert server.endswith("answered 20 requests\n")
    assert len(windows("zmq")) == 2
