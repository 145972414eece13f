"""Start dependencies: groups are replaced by their members, and every cycle is found."""

from __future__ import annotations

import itertools
import sys
import time

from hypothesis import given
from hypothesis import strategies as st

from symphony import Experiment
from symphony.plan.resolution.dependencies import check_start_order, find_cycle, start_dependencies


def experiment_of(waits: dict[str, list[str]]) -> Experiment:
    experiment = Experiment("e")
    for name in waits:
        experiment.new_process(name, command="c")
    for name, others in waits.items():
        for other in others:
            experiment.get_process(name).starts_after(other)
    return experiment


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    """Up to seven processes, each waiting for some of the others."""
    names = [f"p{index}" for index in range(draw(st.integers(1, 7)))]
    return {
        name: draw(st.lists(st.sampled_from(others), unique=True, max_size=3)) if others else []
        for name, others in ((name, [other for other in names if other != name]) for name in names)
    }


def can_all_start(waits: dict[str, list[str]]) -> bool:
    """Start every process whose dependencies have started, until no more processes start."""
    started: set[str] = set()
    for _ in waits:
        started |= {name for name, others in waits.items() if started.issuperset(others)}
    return len(started) == len(waits)


@given(graphs())
def test_a_cycle_is_found_if_and_only_if_there_is_one(waits: dict[str, list[str]]) -> None:
    experiment = experiment_of(waits)
    dependencies = start_dependencies(experiment)
    assert {name: list(others) for name, others in dependencies.items()} == waits
    cycle = find_cycle(dependencies)
    assert bool(cycle) is not can_all_start(waits)
    assert bool(cycle) is bool(list(check_start_order(experiment)))
    if cycle:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1 > 0
        assert all(after in waits[name] for name, after in itertools.pairwise(cycle))


def test_a_chain_may_be_longer_than_the_recursion_limit() -> None:
    count = sys.getrecursionlimit() + 200
    waits = {f"p{index}": [f"p{index + 1}"] if index + 1 < count else [] for index in range(count)}
    assert find_cycle(start_dependencies(experiment_of(waits))) == []


def test_a_group_is_replaced_by_its_members_on_both_sides() -> None:
    experiment = Experiment("e")
    for group in ("servers", "clients"):
        members = experiment.new_process_group(group)
        for number in (1, 2):
            members.new_process(f"{group}-{number}", command="c")
    experiment.new_process("last", command="c").starts_after("clients", "succeeded")
    experiment.get_process_group("clients").starts_after("servers").starts_after(
        "servers-1", "started"
    )
    assert start_dependencies(experiment) == {
        "servers-1": {},
        "servers-2": {},
        "clients-1": {"servers-1": "started", "servers-2": "ready"},
        "clients-2": {"servers-1": "started", "servers-2": "ready"},
        "last": {"clients-1": "succeeded", "clients-2": "succeeded"},
    }


def test_a_long_cycle_is_found_in_linear_time_and_shortened_in_the_error() -> None:
    count = 20_000
    waits = {f"p{index}": {f"p{(index + 1) % count}": "started"} for index in range(count)}
    begin = time.process_time()
    assert len(find_cycle(waits)) == count + 1
    assert time.process_time() - begin < 2
    experiment = Experiment("e")
    for name, conditions in list(waits.items())[:99]:
        experiment.new_process(name, command=["true"]).starts_after(conditions)
    experiment.new_process("p99", command=["true"]).starts_after({"p0": "started"})
    (finding,) = check_start_order(experiment)
    assert finding.problem == (
        "the start order is a cycle: 'p0' waits for 'p1' waits for 'p2' waits for 95 others, the "
        "last of which waits for 'p98' waits for 'p99' waits for 'p0'"
    )
