"""The order in which processes are stopped."""

from __future__ import annotations

import time

import pytest

from symphony.plan.stop_order import longest_stop, stop_waves

START_ORDER = {
    "db": [],
    "cache": [],
    "migrate": ["db"],
    "app": ["migrate", "cache"],
    "web": ["app"],
    "worker": ["cache"],
}


@pytest.mark.parametrize(
    ("names", "waves"),
    [
        ([], []),
        (["db"], [["db"]]),
        (START_ORDER, [["web"], ["app"], ["migrate", "worker"], ["db", "cache"]]),
        # The process between the two has finished.
        (["db", "app"], [["app"], ["db"]]),
        (["db", "unknown"], [["db", "unknown"]]),
    ],
)
def test_processes_stop_in_the_reverse_of_the_start_order(
    names: list[str], waves: list[list[str]]
) -> None:
    assert stop_waves(names, START_ORDER) == waves


def test_the_longest_stop_is_the_sum_over_the_waves() -> None:
    graces = {"db": 30.0, "cache": 5.0, "migrate": 1.0, "app": 10.0, "worker": 2.0}
    assert longest_stop(graces, START_ORDER) == 30.0 + 2.0 + 10.0
    assert longest_stop({}, START_ORDER) == 0


def test_a_cycle_in_a_damaged_file_does_not_prevent_a_stop() -> None:
    waves = stop_waves(["a", "b", "c"], {"a": ["b"], "b": ["c"], "c": ["a"]})
    assert sorted(name for wave in waves for name in wave) == ["a", "b", "c"]


def test_long_chains_and_wide_layers_take_linear_time() -> None:
    chain = {f"p{index}": [f"p{index - 1}"] if index else [] for index in range(20_000)}
    wide = {"first": [], **{f"p{index}": ["first"] for index in range(20_000)}}
    begin = time.process_time()
    assert len(stop_waves(chain, chain)) == 20_000
    assert len(stop_waves(wide, wide)) == 2
    assert time.process_time() - begin < 2
