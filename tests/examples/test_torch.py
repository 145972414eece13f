"""Train with the example of torch.distributed on each backend.

SYMPHONY_TEST_TORCH is the path of a Python that has PyTorch. With the devcluster, `scripts/test`
sets it to Debian's PyTorch, from which the image for Kubernetes is made.
"""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from devcluster import cluster as devcluster
from devcluster import paths, torch
from machines import record, store
from symphony import Cluster, Experiment, ExperimentStatus, State

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch"
NAME = "torch"
RANKS = [f"trainer-{rank}" for rank in range(4)]
# Each node would need several seconds to unpack the image.
NODE = "node1"
PYTHON = os.environ.get("SYMPHONY_TEST_TORCH", "")

pytestmark = pytest.mark.skipif(
    not PYTHON,
    reason="NOT TESTED WITH PYTORCH: run scripts/test --with-cluster, or set SYMPHONY_TEST_TORCH",
)


@pytest.mark.parametrize(
    ("machine", "killed"), [("local", "trainer-2"), ("tmux", None)], indirect=["machine"]
)
def test_four_ranks_train_on_one_machine(
    machine: Cluster, killed: str | None, tmp_path: Path
) -> None:
    parameters = {"python": PYTHON, "checkpoint": tmp_path / "training.pt"}
    experiment = Experiment.load_file(EXAMPLE / "torch.yml", parameters=parameters)
    for process in experiment.list_all_processes():
        # The steps must last longer than the test needs to notice the first one.
        process.command = [*(process.command or ()), "--pause", "0.05" if killed else "0"]
    machine.launch(experiment)
    if killed is not None:
        lines = machine.get_log(NAME, RANKS[0], follow=True)
        next(line for line in lines if line.startswith("step 1:"))
        machine.signal_processes(NAME, [killed], signal.SIGKILL)
    status = machine.wait(NAME, timeout=100)
    logs = _check(machine, status, restarts=0 if killed is None else 1)
    for log in logs:
        assert ("resumes at step" in log) == (killed is not None)


# test_ranks_live.py tests that ranks in several Pods find each other.
@pytest.mark.long
def test_four_ranks_train_on_kubernetes(kube_cluster: Any) -> None:
    if kube_cluster.session.cluster.kind != "devcluster":
        pytest.skip("only the devcluster has an image with PyTorch")
    cluster = Cluster.new(
        "kube",
        kubeconfig=str(kube_cluster.kubeconfig),
        namespace=kube_cluster.namespace,
        image=_load_image(),
    )
    experiment = Experiment.load_file(EXAMPLE / "torch.yml")
    for process in experiment.list_all_processes():
        process.node_selector("kubernetes.io/hostname", NODE)
    try:
        cluster.launch(experiment)
        _check(cluster, cluster.wait(NAME, timeout=100), restarts=0)
    finally:
        cluster.delete(NAME)


def _check(cluster: Cluster, status: ExperimentStatus, *, restarts: int) -> list[str]:
    """Check the result of the training, and return the logs of the ranks."""
    logs = [cluster.get_log(NAME, rank) for rank in RANKS]
    assert [process.state for process in status] == [State.SUCCEEDED] * 4, logs
    assert [process.restarts for process in status] == [restarts] * 4
    for rank, log in enumerate(logs):
        assert log.splitlines()[-1] == f"rank {rank} of 4 has learned 3.000"
    return logs


def _load_image() -> str:
    """Load an image with PyTorch and the example into a node, and return its name."""
    locations = paths.find(os.environ, Path.home())
    running = record.load(locations.record)
    assert running is not None
    program = EXAMPLE / "train.py"
    # Another test run can use the same cluster with another version of the example.
    tag = store.key(torch.cache_entry(locations.cache).name, store.digest(program))
    name = f"docker.io/library/symphony-{NAME}:{tag}"
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory) / "image.tar"
        torch.write_image(locations.cache, archive, name=name, files={program.name: program})
        devcluster.load_image(locations, running, NODE, archive)
    return name
