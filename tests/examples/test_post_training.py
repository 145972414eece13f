"""Test the example of a post-training with ranks, replicas and an orchestrator."""

from __future__ import annotations

from pathlib import Path

from symphony import Cluster, Experiment

FILE = Path(__file__).parents[2] / "examples" / "post_training" / "post_training.yml"


def test_the_ranks_learn_from_all_replicas(tmp_path: Path) -> None:
    cluster = Cluster.new("local", state_dir=tmp_path)
    experiment = Experiment.load_file(FILE)
    cluster.launch(experiment)
    try:
        status = cluster.wait(experiment.name, timeout=60)
        log = cluster.get_log(experiment.name, "orchestrator")
    finally:
        cluster.delete(experiment.name)
    assert status.exit_code == 0
    assert log.splitlines()[-1].startswith("all answers are correct after")


def test_the_description_is_short() -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 60
