"""The examples run on Kubernetes with an image that contains only what they install."""

from __future__ import annotations

from pathlib import Path

import pytest

from symphony.cluster import Cluster
from symphony.lint import Machine, Target, lint
from symphony.model import Experiment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = [*sorted(EXAMPLES.glob("programs/*/experiment.yml")), EXAMPLES / "testing/experiment.yml"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_an_example_needs_no_file_of_this_machine(path: Path) -> None:
    exp = Experiment.load_file(path)
    machine = Machine(home="/home/me", base=str(path.parent), exists=lambda p: Path(p).exists())
    target = Target("kube", Cluster.new("kube", image="probe", namespace="team-a"))
    found = lint(exp, [target], machine=machine, offline=True)
    rules = ("local-file", "local-path", "localhost")
    assert [item.problem for item in found if item.rule in rules] == []
