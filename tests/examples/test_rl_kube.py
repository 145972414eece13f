"""The example of the size of real research on a real Kubernetes: built, pushed, placed on nodes and run by one line."""

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
    """The cluster's engine as the one that `--build` finds; the image that is made is removed from it."""
    found = kube_cluster.engine
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(Path(found.client).parent), os.environ["PATH"]])
    )
    monkeypatch.setenv("DOCKER_HOST", found.host)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for variable in ("SYMPHONY_CONTAINER_ENGINE", "SYMPHONY_BACKEND", "RL_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    yield found
    clean_images(f"*{kube_cluster.namespace}*", force=True)


def test_agents_in_groups_learn_on_nodes_that_the_dispatcher_chose(
    kube_cluster: Any, engine: Any, tmp_path: Path
) -> None:
    """It is as devcluster.yml says: what that names, the labels of nodes and a registry, is there alone."""
    where = [
        "-b",
        "kube",
        "--kubeconfig",
        str(kube_cluster.kubeconfig),
        "--namespace",
        kube_cluster.namespace,
    ]
    image = f"{engine.registry}/{kube_cluster.namespace}-rl"

    def example(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(EXAMPLE / "launch.py"), *where, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=110)

    try:
        words = [
            "--repository",
            image,
            "--base",
            kube_cluster.image,
            "--build",
            "--host-path",
            tmp_path / "results",
        ]
        done = example("train", "--config", EXAMPLE / "devcluster.yml", *words, "--follow")
        assert done.returncode == 0, done.stdout + done.stderr
        first, last = returns(example("logs", "rl", "learner").stdout)
        assert first == -100
        assert last > GOOD, done.stdout
        status = json.loads(example("ps", "rl", "--json").stdout)
        found = {
            (process["group"], process["name"]): process["exit_code"]
            for process in status["processes"]
        }
        assert len(found) == 7 + 4 + 1
        grouped = {
            ("nonagent", "learner"),
            ("agents-0", "agent-1"),
            ("agents-1", "agent-2"),
            (None, "evaluator-0"),
        }
        assert grouped < set(found)
        assert set(found.values()) == {0}
        assert pools(kube_cluster) == {
            "rl-nonagent": "gpu", "rl-agents-0": "plain", "rl-agents-1": "plain", "rl-evaluator-0": "reserved",
        }  # fmt: skip
        # The nodes are machines within this one, and have its files.
        assert json.loads((tmp_path / "results" / "result.json").read_text())["last"] > GOOD
    finally:
        gone = example("delete", "-f", "rl")
    assert gone.returncode == 0, gone.stderr


def pools(kube_cluster: Any) -> dict[str, str]:
    """By Pod the pool of the node on which it ran, and that it ran from just the image that was pushed."""
    nodes = {
        item["metadata"]["name"]: item["metadata"]["labels"]["symphony.test/pool"]
        for item in kube_cluster.raw.call("GET", "/api/v1/nodes")["items"]
    }
    pods = kube_cluster.raw.call("GET", kube_cluster.path("pods"))["items"]
    images = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    assert len(images) == 1
    assert "@sha256:" in images.pop()
    return {pod["metadata"]["name"]: nodes[pod["spec"]["nodeName"]] for pod in pods}
