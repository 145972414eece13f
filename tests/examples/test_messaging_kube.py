"""Run a messaging example on a real Kubernetes cluster, from an image of its Dockerfile.

`test_messaging.py` runs all of them on this machine, and `test_zmq_kube.py` runs another example
on a cluster.
"""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from symphony import Cluster, Experiment
from tests.examples.conftest import push_image
from tests.examples.messaging import DIRECTORY, check


@pytest.mark.long
def test_example_succeeds(kube_cluster: Any) -> None:
    path = DIRECTORY / "integration/experiment.py"
    image = push_image(kube_cluster, path.parent)
    module = runpy.run_path(str(path))
    experiment = Experiment(module["NAME"])
    module["build"](experiment)
    cluster = Cluster.new(
        "kube",
        kubeconfig=str(kube_cluster.kubeconfig),
        namespace=kube_cluster.namespace,
        image=image,
    )
    try:
        cluster.launch(experiment)
        status = cluster.wait(experiment.name, timeout=90)
        logs = {process.name: cluster.get_log(experiment.name, process.name) for process in status}
        assert status.exit_code == 0, (status, logs)
        check(path, logs)
    finally:
        cluster.delete(experiment.name)
