"""Run the reinforcement learning example on a real Kubernetes cluster with one command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from symphony.addons import clean_images
from tests.examples.test_rl import EXAMPLE, GOOD, returns


@pytest.fixture
def engine(kube_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Let `--build` use the engine of the cluster. Remove the images of the test from it."""
    engine = kube_cluster.engine
    monkeypatch.setenv("PATH", f"{Path(engine.client).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for variable in ("SYMPHONY_CONTAINER_ENGINE", "SYMPHONY_BACKEND", "RL_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    yield engine
    clean_images(f"*{kube_cluster.namespace}*", force=True)


def test_groups_of_agents_learn_on_assigned_nodes(
    kube_cluster: Any, engine: Any, tmp_path: Path
) -> None:
    """devcluster.yml uses the labels of the nodes and the registry of the test cluster."""
    options = ["-b", "kube", "--kubeconfig", str(kube_cluster.kubeconfig)]
    options += ["--namespace", kube_cluster.namespace]
    image = f"{engine.registry}/{kube_cluster.namespace}-rl"

    def example(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(EXAMPLE / "launch.py"), *options, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=110)

    try:
        train = ["train", "--config", EXAMPLE / "devcluster.yml", "--follow"]
        build = ["--build", "--repository", image, "--base", kube_cluster.image]
        done = example(*train, *build, "--host-path", tmp_path / "results")
        assert done.returncode == 0, done.stdout + done.stderr
        first, last = returns(example("logs", "rl", "learner").stdout)
        assert first == -100
        assert last > GOOD, done.stdout
        status = json.loads(example("ps", "rl", "--json").stdout)
        found = {
            (process["group"], process["name"]): process["state"] for process in status["processes"]
        }
        assert len(found) == 7 + 4 + 1
        grouped = {
            (None, "learner"),
            ("servers", "replay"),
            ("agents-0", "agent-1"),
            ("agents-1", "agent-2"),
            (None, "evaluator-0"),
        }
        assert grouped <= set(found)
        assert found.pop((None, "learner")) == "succeeded"
        assert set(found.values()) == {"stopped"}
        assert pools(kube_cluster) == {
            "rl-learner": "gpu",
            "rl-servers": "gpu",
            "rl-agents-0": "plain",
            "rl-agents-1": "plain",
            "rl-evaluator-0": "reserved",
        }
        # The nodes run on this machine and share its files.
        assert json.loads((tmp_path / "results" / "result.json").read_text())["last"] > GOOD
    finally:
        deleted = example("delete", "-f", "rl")
    assert deleted.returncode == 0, deleted.stderr


def pools(kube_cluster: Any) -> dict[str, str]:
    """Return the pool of the node of each Pod. Check that all Pods run the pushed image."""
    # Another test may have added hollow nodes, which have no pool, at the same time.
    nodes = {
        item["metadata"]["name"]: item["metadata"]["labels"].get("symphony.test/pool", "")
        for item in kube_cluster.raw.call("GET", "/api/v1/nodes")["items"]
    }
    pods = kube_cluster.raw.call("GET", kube_cluster.path("pods"))["items"]
    images = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    assert len(images) == 1
    assert "@sha256:" in images.pop()
    return {pod["metadata"]["name"]: nodes[pod["spec"]["nodeName"]] for pod in pods}
