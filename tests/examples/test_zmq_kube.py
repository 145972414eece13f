"""The ZeroMQ example on a real Kubernetes, by the command line, from an image built as its Dockerfile says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "zmq"

pytestmark = [pytest.mark.client, pytest.mark.namespaces]


@pytest.fixture
def image(kube_cluster):
    """The example's image, where the nodes find it."""
    if kube_cluster.session.cluster.engine is None:
        pytest.skip(
            f"the cluster '{kube_cluster.session.cluster.kind}' has no registry of its own to push to"
        )
    engine = kube_cluster.engine
    name = f"{engine.registry}/{kube_cluster.namespace}-zmq:1"
    engine.docker("build", "--build-arg", f"BASE={kube_cluster.image}", "--tag", name, str(EXAMPLE))
    engine.docker("push", name)
    return name


@pytest.mark.parametrize(
    "own_namespaces", [True, False], ids=["own namespaces", "shared namespace"]
)
def test_the_conversation_ends_well(kube_cluster, image, own_namespaces, tmp_path):
    where = ["-b", "kube", "--kubeconfig", str(kube_cluster.kubeconfig)]
    where += [] if own_namespaces else ["--namespace", kube_cluster.namespace]
    name = f"zmq-{kube_cluster.namespace[-8:]}"

    def symphony(*words):
        command = [sys.executable, "-m", "symphony", *words, *where]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=100, env={**os.environ}
        )

    try:
        done = symphony(
            "launch", str(EXAMPLE / "experiment.py"), "--name", name, "--follow", "--image", image
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("round trip ") == 20
        assert "20 round trips, 4 MB moved" in done.stdout
        client = symphony("logs", name, "client").stdout
        assert client.count("round trip ") == 20
        status = json.loads(symphony("ps", name, "--json").stdout)
        assert {process["name"]: process["exit_code"] for process in status["processes"]} == {
            "server": 0,
            "client": 0,
        }
    finally:
        gone = symphony("delete", "-f", name)
    assert gone.returncode == 0, gone.stderr
    assert json.loads(symphony("ls", "--json").stdout) == []
