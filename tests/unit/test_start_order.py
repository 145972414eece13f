"""The start order: groups spelled out, and a cycle found exactly where there is one."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony import Experiment, SpecError
from symphony.plan.resolve import start_order


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
    """Start again and again who waits for nobody that has not: the check in its plainest form."""
    started: set[str] = set()
    for _ in waits:
        started |= {name for name, others in waits.items() if started.issuperset(others)}
    return len(started) == len(waits)


@given(graphs())
def test_a_cycle_is_found_exactly_where_there_is_one(waits: dict[str, list[str]]) -> None:
    experiment = experiment_of(waits)
    if can_all_start(waits):
        found = start_order(experiment)
        assert {name: list(others) for name, others in found.items()} == waits
        return
    with pytest.raises(SpecError) as refusal:
        start_order(experiment)
    head, _, rest = str(refusal.value).partition(": ")
    assert head == "the start order is a cycle"
    trail = [word.strip("'") for word in rest.removesuffix("; break it").split(" waits for ")]
    assert trail[0] == trail[-1]
    assert len(set(trail)) == len(trail) - 1 > 0
    assert all(after in waits[name] for name, after in itertools.pairwise(trail))


def test_a_long_chain_is_no_cycle_and_no_recursion() -> None:
    count = 1200  # more than Python recurses
    waits = {f"p{index}": [f"p{index + 1}"] if index + 1 < count else [] for index in range(count)}
    assert len(start_order(experiment_of(waits))) == count


def test_a_group_is_spelled_out_on_both_sides() -> None:
    experiment = Experiment("e")
    for group in ("servers", "clients"):
        members = experiment.new_process_group(group)
        for number in (1, 2):
            members.new_process(f"{group}-{number}", command="c")
    experiment.new_process("last", command="c").starts_after("clients", "succeeded")
    experiment.get_process_group("clients").starts_after("servers").starts_after(
        "servers-1", "started"
    )
    assert start_order(experiment) == {
        "servers-1": {},
        "servers-2": {},
        "clients-1": {"servers-1": "started", "servers-2": "ready"},
        "clients-2": {"servers-1": "started", "servers-2": "ready"},
        "last": {"clients-1": "succeeded", "clients-2": "succeeded"},
    }


def grouped() -> Experiment:
    experiment = Experiment("e")
    experiment.new_process("lone", command="c")
    experiment.new_process_group("group").new_process("member", command="c")
    return experiment


@pytest.mark.parametrize(
    ("wait", "message"),
    [
        (lambda e: e.get_process("lone").starts_after("meber"),
         "'lone' starts after 'meber', which is not in the experiment; did you mean 'member'"),
        (lambda e: e.get_process("lone").starts_after("lone"), "'lone' starts after 'lone': it cannot wait for itself"),
        (lambda e: e.get_process_group("group").starts_after("group"), "'group' starts after 'group': it cannot wait"),
        (lambda e: e.get_process_group("group").starts_after("member"), "'group' starts after 'member': it cannot"),
    ],
)  # fmt: skip
def test_a_wait_that_cannot_be(wait: Callable[[Experiment], object], message: str) -> None:
    experiment = grouped()
    wait(experiment)
    with pytest.raises(SpecError) as refusal:
        start_order(experiment)
    assert message in str(refusal.value)


def test_a_cycle_through_a_group_is_found() -> None:
    experiment = grouped()
    experiment.get_process("lone").starts_after("group")
    experiment.get_process_group("group").starts_after("lone", "started")
    with pytest.raises(
        SpecError, match=r"cycle: 'lone' waits for 'member' waits for 'lone'; break it"
    ):
        start_order(experiment)
