"""Run the ZeroMQ example on a real Kubernetes cluster, from an image of its Dockerfile."""

import json
from pathlib import Path

from tests.cli import in_process
from tests.examples.conftest import push_image

EXAMPLE = Path(__file__).parents[2] / "examples" / "zmq"


def test_example_succeeds(kube_cluster, tmp_path):
    image = push_image(kube_cluster, EXAMPLE)
    options = ["-b", "kube", "--kubeconfig", str(kube_cluster.kubeconfig)]
    options += ["--namespace", kube_cluster.namespace]
    name = f"zmq-{kube_cluster.namespace[-8:]}"

    def symphony(*arguments):
        return in_process.run([*arguments, *options], cwd=tmp_path, timeout=100)

    try:
        launch = ["launch", str(EXAMPLE / "experiment.py"), "--name", name]
        done = symphony(*launch, "--follow", "--image", image)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("round trip ") == 20
        assert "20 round trips, 4 MB moved" in done.stdout
        client = symphony("logs", name, "client").stdout
        assert client.count("round trip ") == 20
        status = json.loads(symphony("ps", name, "--json").stdout)
        exit_codes = {process["name"]: process["exit_code"] for process in status["processes"]}
        assert exit_codes == {"server": 0, "client": 0}
    finally:
        deleted = symphony("delete", "-f", name)
    assert deleted.returncode == 0, deleted.stderr
    assert json.loads(symphony("ls", "--json").stdout) == []
