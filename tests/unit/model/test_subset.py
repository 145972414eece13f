"""Subsets of experiments: selected processes, and the processes that they need."""

from __future__ import annotations

import pytest

from symphony import Experiment
from symphony.errors import NotFound, SpecError

FILE = {
    "name": "rl",
    "processes": {
        "learner": {"cmd": "true", "connects": ["replay", "params"]},
        "servers": {
            "binds": ["params"],
            "processes": {
                "replay": {"cmd": "true", "binds": ["replay"], "starts_after": []},
                "ps": {"cmd": "true"},
            },
        },
        "crew": {
            "starts_after": {"warm-up": "succeeded"},
            "processes": {
                "agent": {"cmd": "true", "replicas": 2, "connects": ["replay"]},
                "spare": {"cmd": "true"},
            },
        },
        "warm-up": {"cmd": "true"},
        "alone": {"cmd": "true"},
    },
}


def described(**options: object) -> Experiment:
    return Experiment.load_dict({**FILE, **options})


def names(experiment: Experiment) -> list[str]:
    return [process.name for process in experiment.list_all_processes()]


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        (["alone"], ["alone"]),
        (["learner"], ["learner", "replay", "ps"]),
        (["replay"], ["replay"]),
        (["agent"], ["replay", "agent-0", "agent-1", "warm-up"]),
        (["crew/agent-1", "al*"], ["replay", "agent-1", "warm-up", "alone"]),
        (["servers"], ["replay", "ps"]),
    ],
)
def test_subset_contains_what_the_selected_processes_need(
    selected: list[str], expected: list[str]
) -> None:
    experiment = described()
    before = experiment.dump_dict()
    subset = experiment.subset(selected)
    assert names(subset) == expected
    assert experiment.dump_dict() == before
    kept = {name: value for name, value in before.items() if name != "processes"}
    assert {name: subset.dump_dict()[name] for name in kept} == kept
    again = Experiment.load_dict(subset.dump_dict())
    assert names(again) == expected


def test_process_that_the_experiment_ends_with_must_be_selected() -> None:
    with pytest.raises(SpecError, match="ends with agent-0, which is not selected; select it too"):
        described(ends_with=["learner", "agent"]).subset(["learner", "agent-1"])
    subset = described(ends_with=["agent"]).subset(["crew"])
    assert subset.ends_with_components() == ["agent-0", "agent-1"]


def test_unknown_name_is_refused() -> None:
    with pytest.raises(NotFound, match="no process or group 'lerner'; did you mean 'learner'"):
        described().subset(["lerner"])
