"""The options with which the user has loaded an experiment."""

from __future__ import annotations

import pytest

from symphony.model import Experiment
from symphony.model.experiment.given_options import GivenOptions

GIVEN = GivenOptions(
    parameters={"rate": "2", "api_token": "hunter2"},
    ends_with=("learner",),
    on_failure="stop",
    deadline="6h",
)


def test_options_that_others_set_are_left_out() -> None:
    assert GIVEN.without(GIVEN) == GivenOptions()
    assert GIVEN.without(GivenOptions()) == GIVEN
    others = GivenOptions(parameters={"rate": "3"}, deadline=60)
    assert GIVEN.without(others) == GivenOptions(
        parameters={"api_token": "hunter2"}, ends_with=("learner",), on_failure="stop"
    )
    assert not GivenOptions()
    assert GivenOptions(deadline=0)


def test_options_are_shown_as_on_the_command_line_without_secrets() -> None:
    assert GIVEN.words() == (
        "--set rate=2 --set 'api_token=(hidden)' --ends-with learner --on-failure stop "
        "--deadline 6h"
    )


@pytest.mark.parametrize("data", [None, {}, {"parameters": 3, "ends_with": []}, {"other": 1}, [1]])
def test_damaged_options_count_as_none(data: object) -> None:
    assert GivenOptions.from_dict(data) == GivenOptions()
    assert GivenOptions.from_dict(GIVEN.to_dict()) == GIVEN


def test_an_experiment_remembers_the_parameters_that_were_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = {"name": "e", "parameters": {"a": 1, "b": 2, "c": 3}, "processes": {}}
    monkeypatch.setenv("b", "5")
    experiment = Experiment.load_dict(document, parameters={"a": True})
    assert experiment.given.parameters == {"a": "true", "b": "5"}
