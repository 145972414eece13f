"""The words that every backend shares: how names are matched, what is told of what is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symphony import Cluster, Experiment, ExperimentStatus, NotFound, ProcessStatus, SpecError
from symphony.cluster.matching import (
    experiment_exists,
    experiment_not_found,
    find_status,
    fuzzy_match,
)

STATUS = ExperimentStatus(
    name="e",
    backend="paper",
    processes=(ProcessStatus(name="lone"), ProcessStatus(name="member", group="g")),
)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("agent", ["agent"]),
        ("agent-", ["agent-1", "agent-2"]),
        ("-1", ["agent-1"]),
        ("gent", ["agent", "big-agent"]),
        ("big", ["big-agent"]),
        ("ent-", ["agent-1", "agent-2"]),
        ("x", []),
    ],
)
def test_fuzzy_match(name: str, found: list[str]) -> None:
    assert fuzzy_match(name, ["agent", "agent-1", "agent-2", "big-agent"]) == found


def test_a_process_is_found_by_name_and_by_its_group() -> None:
    assert find_status(STATUS, "member").group == "g"
    assert find_status(STATUS, "member", "g").name == "member"


@pytest.mark.parametrize(
    ("process", "group", "message"),
    [
        ("membre", None, "experiment 'e' has no process 'membre'; did you mean 'member'"),
        ("zzz", None, "experiment 'e' has no process 'zzz'; it has lone, member"),
        ("member", "h", "process 'member' of experiment 'e' is in group 'g', not in 'h'"),
        ("lone", "g", "process 'lone' of experiment 'e' is in no group, not in 'g'"),
    ],
)
def test_a_process_that_is_not_there(process: str, group: str | None, message: str) -> None:
    with pytest.raises(NotFound) as missing:
        find_status(STATUS, process, group)
    assert message in str(missing.value)


def test_an_experiment_that_is_not_there() -> None:
    assert (
        str(experiment_not_found("lerner", ["learner", "x"]))
        == "no experiment 'lerner'; did you mean 'learner'?"
    )
    assert str(experiment_not_found("zzz", ["rl"])) == "no experiment 'zzz'; there are rl"
    assert "left alone; delete it, or launch with force" in str(experiment_exists("rl"))


def test_a_new_experiment_takes_the_keywords_of_experiment() -> None:
    cluster = Cluster.new("local")
    made = cluster.new_experiment(
        "e", secrets="token", port_range=(1, 2), preamble_cmds="a", start_dir="d"
    )
    expected = Experiment("e", secrets="token", port_range=(1, 2), preamble_cmds="a", start_dir="d")
    assert made.dump_dict() == expected.dump_dict()


@pytest.mark.parametrize(("option", "near"), [("state_dri", "state_dir"), ("gpu", "gpus")])
def test_an_unknown_option_of_a_backend_is_refused_with_the_near_miss(
    option: str, near: str
) -> None:
    with pytest.raises(
        SpecError, match=rf"backend 'local' knows no option '{option}'; did you mean '{near}'"
    ):
        Cluster.new("local", **{option: "x"})


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("given", "what"), [("x1", "'x1'"), ({"name": "x1"}, "dict"), (None, "NoneType")]
)
def test_what_is_launched_is_an_experiment(
    tmp_path: Path, given: Any, what: str, dry_run: bool
) -> None:
    cluster = Cluster.new("local", state_dir=tmp_path)
    with pytest.raises(
        SpecError, match=rf"launch takes an Experiment, not {what}; make one with cluster\.new_exp"
    ):
        cluster.launch(given, dry_run=dry_run)


def test_a_wrong_option_of_a_backend_is_refused() -> None:
    with pytest.raises(
        SpecError, match="hold_ports is started, bound, not 'bounded'; did you mean 'bound'"
    ):
        Cluster.new("local", hold_ports="bounded")
