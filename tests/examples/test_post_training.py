"""Test the example of a post-training with ranks, replicas and an orchestrator."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from symphony import Cluster, Experiment

FILE = Path(__file__).parents[2] / "examples" / "post_training" / "post_training.yml"


@pytest.mark.parametrize("killed", [pytest.param(None, marks=pytest.mark.long), "trainer-0"])
def test_the_training_also_finishes_if_a_rank_is_killed(killed: str | None, tmp_path: Path) -> None:
    cluster = Cluster.new("local", state_dir=tmp_path)
    # The iterations must last longer than the test needs to notice the first ones.
    experiment = Experiment.load_file(FILE, parameters={"pause": 0 if killed is None else 0.2})
    name = experiment.name
    cluster.launch(experiment)
    try:
        if killed is not None:
            lines = cluster.get_log(name, "orchestrator", follow=True)
            next(line for line in lines if line.startswith("iteration 1:"))
            cluster.signal_processes(name, [killed], signal.SIGKILL)
        status = cluster.wait(name, timeout=60)
        log = cluster.get_log(name, "orchestrator")
        trainer = cluster.get_log(name, "trainer-0").splitlines()
    finally:
        cluster.delete(name)
    assert status.exit_code == 0
    assert log.splitlines()[-1].startswith("all answers are correct after")
    ranks = [process for process in status if process.name.startswith("trainer-")]
    assert [rank.restarts for rank in ranks] == [0 if killed is None else 1] * 2
    assert trainer[0] == "continues with the weight 0.0000"
    assert len(set(trainer)) == (1 if killed is None else 2)


def test_the_description_is_short() -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 60
