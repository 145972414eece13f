"""Test the example of a data-parallel training, with a Python that has torch.

Torch is too large for CI. Set SYMPHONY_TEST_TORCH to the path of such a Python to run the test.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from symphony import Cluster, Experiment, State
from symphony.testing import until

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch"
PYTHON = os.environ.get("SYMPHONY_TEST_TORCH")


@pytest.mark.skipif(PYTHON is None, reason="SYMPHONY_TEST_TORCH is not set")
@pytest.mark.parametrize("killed", [None, 0, 2])
def test_the_training_resumes_after_a_rank_was_killed(killed: int | None, tmp_path: Path) -> None:
    cluster = Cluster.new("local", state_dir=tmp_path / "state")
    checkpoint = tmp_path / "training.pt"
    experiment = Experiment.load_file(
        EXAMPLE / "torch.yml", parameters={"python": PYTHON, "checkpoint": checkpoint}
    )
    for process in experiment.list_all_processes():
        # A step must last longer than the test needs to notice the first checkpoint.
        process.command = [*(process.command or ()), "--pause", "0.05"]
    cluster.launch(experiment)
    try:
        if killed is not None:
            running = until(cluster, "torch", lambda _: checkpoint.exists())
            os.kill(running.processes[killed].pid or 0, signal.SIGKILL)
        status = cluster.wait("torch", timeout=120)
        logs = [cluster.get_log("torch", f"trainer-{rank}") for rank in range(4)]
    finally:
        cluster.delete("torch")
    assert [process.state for process in status] == [State.SUCCEEDED] * 4
    assert [process.restarts for process in status] == [0 if killed is None else 1] * 4
    for rank, log in enumerate(logs):
        assert f"rank {rank} of 4 has learned 3.000" in log
        assert ("resumes at step" in log) == (killed is not None)
