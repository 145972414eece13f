"""Run the reinforcement learning example on a real Kubernetes cluster with one command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from symphony.addons import clean_images
from tests.examples.test_rl import EXAMPLE, GOOD


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


# The other examples test an image that is built and pushed, and test_rl.py tests the training.
@pytest.mark.long
@pytest.mark.timeout(300)  # the training needs the processors that other tests use, too
def test_groups_of_agents_learn_on_assigned_nodes(
    kube_cluster: Any, engine: Any, tmp_path: Path
) -> None:
    """devcluster.yml uses the labels of the nodes and the registry of the test cluster.

    The nodes run on this machine and share its files. Only the learner is restarted with changed
    code, which ends the run.
    """
    code = shutil.copytree(EXAMPLE, tmp_path / "rl", ignore=shutil.ignore_patterns("__pycache__"))
    configuration = code / "mounted.yml"
    settings = yaml.safe_load((code / "devcluster.yml").read_text())
    settings |= {"code": {"host_path": str(code)}, "run": {"forever": True, "updates": 200}}
    configuration.write_text(yaml.safe_dump(settings))
    image = f"{engine.registry}/{kube_cluster.namespace}-rl"
    command = [sys.executable, str(code / "launch.py"), "-b", "kube"]
    command += ["--kubeconfig", str(kube_cluster.kubeconfig)]
    command += ["--namespace", kube_cluster.namespace]

    def example(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)

    train = [*command, "train", "--config", str(configuration), "--follow", "--build"]
    train += ["--repository", image, "--base", kube_cluster.image]
    train += ["--host-path", str(tmp_path / "results")]
    try:
        with following(train) as output:
            read_until(output, "evaluator-0: version ")
            copied = example("exec", "rl", "agent-0", "--", "cat", "/app/roles/learner.py")
            assert "BATCH = 256" in copied.stdout, copied.stderr
            before = uids(kube_cluster)
            program = code / "roles" / "learner.py"
            changed = program.read_text().replace("BATCH = 256", "BATCH = 512")
            program.write_text(changed.replace("while settings.forever or (", "while ("))
            restarted = example("restart", "rl", "learner")
            assert restarted.stdout.startswith("restarted learner of rl\n"), restarted.stderr
            rest = read_until(output, "rl succeeded after ")
        after = uids(kube_cluster)
        assert before.items() <= after.items()
        assert after.keys() - before.keys() == {"rl-learner--2"}
        assert pools(kube_cluster) == {
            "rl-learner": "gpu",
            "rl-learner--2": "gpu",
            "rl-servers": "gpu",
            "rl-agents-0": "plain",
            "rl-agents-1": "plain",
            "rl-evaluator-0": "reserved",
        }
        continued = re.search(r"version (\d+), batches of 512", rest)
        assert continued is not None, rest
        assert int(continued[1]) >= 10
        status = json.loads(example("ps", "rl", "--json").stdout)
        found = {
            (process["group"], process["name"]): process["state"] for process in status["processes"]
        }
        assert len(found) == 7 + 4 + 1
        grouped = {("servers", "replay"), ("agents-0", "agent-1"), ("agents-1", "agent-2")}
        assert grouped <= set(found)
        assert found.pop((None, "learner")) == "succeeded"
        assert set(found.values()) == {"stopped"}
        result = json.loads((tmp_path / "results" / "result.json").read_text())
        assert result["last"] > GOOD, rest
    finally:
        deleted = example("delete", "-f", "rl")
    assert deleted.returncode == 0, deleted.stderr


@contextmanager
def following(command: list[str]) -> Iterator[IO[str]]:
    """Run a command, and yield its output. Check that the command succeeds."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


def read_until(output: IO[str], text: str) -> str:
    """Return the output until the line that contains ``text``."""
    lines: list[str] = []
    for line in output:
        lines.append(line)
        if text in line:
            return "".join(lines)
    pytest.fail(f"the command did not print {text!r}:\n{''.join(lines)}")


def uids(kube_cluster: Any) -> dict[str, str]:
    """Return the uid of each Pod by its name."""
    pods = kube_cluster.raw.call("GET", kube_cluster.path("pods"))["items"]
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


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
