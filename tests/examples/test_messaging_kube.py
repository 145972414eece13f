"""The examples of messaging on a real Kubernetes, each from an image built as its Dockerfile says."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from symphony import Cluster, Experiment
from tests.examples.messaging import EXAMPLES, check

pytestmark = pytest.mark.client


@pytest.fixture
def image(kube_cluster: Any, request: pytest.FixtureRequest) -> str:
    """An example's image, where the nodes find it."""
    if kube_cluster.session.cluster.engine is None:
        pytest.skip(
            f"the cluster '{kube_cluster.session.cluster.kind}' has no registry of its own to push to"
        )
    engine, folder = kube_cluster.engine, request.getfixturevalue("path").parent
    name = f"{engine.registry}/{kube_cluster.namespace}-{folder.name}:1"
    engine.docker("build", "--build-arg", f"BASE={kube_cluster.image}", "--tag", name, str(folder))
    engine.docker("push", name)
    return str(name)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_example_ends_well(kube_cluster: Any, image: str, path: Path) -> None:
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
