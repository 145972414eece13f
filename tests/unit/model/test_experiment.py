"""Building an experiment: its members, their names, and the options of constructors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, NotFound, Process, ProcessGroup, SpecError


@pytest.mark.parametrize(
    ("make", "kind"), [(Experiment, "experiment"), (Process, "process"), (ProcessGroup, "group")]
)
def test_a_name_that_is_not_valid_is_refused_with_a_valid_one(
    make: Callable[[str], Any], kind: str
) -> None:
    with pytest.raises(SpecError, match=rf"^{kind} name 'My_exp' is not valid.*example 'my-exp'"):
        make("My_exp")


def test_a_spec_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not valid"):
        Experiment("A")


# --- processes ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"comand": "c"}, "process 'p' has the unknown key 'comand'; did you mean 'command'"),
        ({"replicas": 3}, "the unknown key 'replicas'; in Python, use new_replicas('p', 3)"),
        ({"count": 3}, "the unknown key 'count'; in Python, use new_replicas('p', 3)"),
        ({"ranks": 3}, "the unknown key 'ranks'; in Python, use new_ranks('p', 3)"),
        ({"cmd": "a", "command": "b"}, "process 'p' has cmd and command; give either shell lines"),
        ({"cmds": ["a"], "command": "b"}, "process 'p' has cmds and command"),
        ({"cmd": "a", "args": ["b"]}, "process 'p' has cmd and args"),
        ({"cmd": "a", "cmds": ["b"]}, "process 'p' has cmd and cmds; add the line of cmd to cmds"),
        ({"cmd": ["a"]}, "cmd must be one shell line, not a list; write command for"),
        ({"cmd": {}}, "cmd must be text, not {}"),
        ({"container_image": ""}, "container_image is empty"),
    ],
)
def test_an_option_that_is_not_valid_is_refused(options: dict[str, Any], message: str) -> None:
    experiment = Experiment("e")
    with pytest.raises(SpecError) as caught:
        experiment.new_process("p", **options)
    assert message in str(caught.value)
    assert experiment.list_processes() == []


@pytest.mark.parametrize(
    ("options", "command", "args", "cmds"),
    [
        ({"command": "a b", "args": "c d"}, ["a b"], ["c d"], None),
        ({"command": ("a", 1), "args": [Path("/x")]}, ["a", "1"], ["/x"], None),
        ({"cmd": "a | b"}, None, None, ["a | b"]),
        ({"cmds": ["a", "b"]}, None, None, ["a", "b"]),
        ({"cmds": "a"}, None, None, ["a"]),
        ({"command": None, "cmd": "a"}, None, None, ["a"]),
        ({}, None, None, None),
    ],
)
def test_the_forms_of_a_program(
    options: dict[str, Any], command: Any, args: Any, cmds: Any
) -> None:
    process = Process("p", **options)
    assert (process.command, process.args, process.cmds) == (command, args, cmds)


def test_the_path_and_the_representation_of_components() -> None:
    group = ProcessGroup("g")
    assert Process("p").path == "p"
    assert group.new_process("p").path == "g/p"
    assert repr(group) == "ProcessGroup('g')"
    assert repr(Process("p")) == "Process('p')"


# --- names in an experiment ---


def small() -> Experiment:
    experiment = Experiment("e")
    experiment.new_process("lone", command="c")
    experiment.new_process_group("group").new_process("member", command="c")
    return experiment


def names(experiment: Experiment) -> list[str]:
    return [process.path for process in experiment.list_all_processes()]


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (
            lambda e: e.new_process("lone"),
            "experiment 'e' already has a process 'lone'; names are unique",
        ),
        (
            lambda e: e.new_process("group"),
            "experiment 'e' already has a group 'group'; names are unique",
        ),
        (
            lambda e: e.new_process("member"),
            "already has a process 'member', in group 'group'",
        ),
        (lambda e: e.add_process(Process("lone")), "already has a process 'lone'"),
        (lambda e: e.new_process_group("group"), "experiment 'e' already has a group 'group'"),
        (lambda e: e.new_process_group("lone"), "experiment 'e' already has a process 'lone'"),
        (
            lambda e: e.get_process_group("group").new_process("member"),
            "group 'group' already has a process 'member'",
        ),
        (
            lambda e: e.get_process_group("group").new_process("lone"),
            "already has a process 'lone'",
        ),
        (
            lambda e: e.new_process_group("other").new_process("member"),
            "in group 'group'; names are unique",
        ),
    ],
)
def test_names_are_unique(add: Callable[[Experiment], Any], message: str) -> None:
    experiment = small()
    with pytest.raises(SpecError) as caught:
        add(experiment)
    assert message in str(caught.value)
    assert names(experiment) == ["lone", "group/member"]


def test_a_group_with_a_taken_name_is_not_added() -> None:
    experiment = small()
    group = ProcessGroup("other")
    group.add_processes([Process("fresh"), Process("member")])
    with pytest.raises(SpecError, match="already has a process 'member', in group 'group'"):
        experiment.add_process_group(group)
    assert names(experiment) == ["lone", "group/member"]
    assert group.experiment is None


def test_a_process_can_be_in_one_group_only() -> None:
    experiment = small()
    member = experiment.get_process("member")
    with pytest.raises(SpecError, match="process 'member' is already in group 'group'"):
        ProcessGroup("other").add_process(member)
    with pytest.raises(SpecError, match="process 'member' is in group 'group'; add the group"):
        Experiment("f").add_process(member)


def test_a_group_can_be_in_one_experiment_only() -> None:
    with pytest.raises(SpecError, match="group 'group' is already in experiment 'e'"):
        Experiment("f").add_process_group(small().get_process_group("group"))


def test_members_are_listed_in_declaration_order() -> None:
    experiment = Experiment("e")
    experiment.add_processes([Process("z"), Process("a")])
    group = ProcessGroup("g")
    group.add_processes([Process("y"), Process("b")])
    experiment.add_process_groups([group])
    experiment.new_process("m")
    assert names(experiment) == ["z", "a", "g/y", "g/b", "m"]
    assert [process.name for process in experiment.list_processes()] == ["z", "a", "m"]
    assert [group.name for group in experiment.list_process_groups()] == ["g"]
    assert repr(experiment) == "Experiment('e', 5 processes)"


def test_members_are_found_by_name() -> None:
    experiment = small()
    assert experiment.get_process("lone").path == "lone"
    assert experiment.get_process("member").path == "group/member"
    assert experiment.get_process_group("group").get_process("member").path == "group/member"


@pytest.mark.parametrize(
    ("find", "message"),
    [
        (
            lambda e: e.get_process("mebmer"),
            "experiment 'e' has no process 'mebmer'; did you mean 'member'",
        ),
        (lambda e: e.get_process("group"), "experiment 'e' has no process 'group'"),
        (
            lambda e: e.get_process_group("goup"),
            "experiment 'e' has no group 'goup'; did you mean 'group'",
        ),
        (
            lambda e: e.get_process_group("group").get_process("membre"),
            "group 'group' has no process 'membre'; did",
        ),
    ],
)
def test_a_name_that_is_not_found_gets_a_suggestion(
    find: Callable[[Experiment], Any], message: str
) -> None:
    with pytest.raises(NotFound) as caught:
        find(small())
    assert message in str(caught.value)


# --- the experiment's own options ---


def test_the_options_of_an_experiment() -> None:
    experiment = Experiment(
        "e", secrets="a/token", port_range=range(7000, 7010), preamble_cmds="true", env={"A": 1}
    )
    assert experiment.secrets == {"token": "a/token"}
    assert experiment.port_range == (7000, 7009)
    assert experiment.preamble_cmds == ["true"]
    assert experiment.env == {"A": "1"}
    assert experiment.set_env("B", 2).set_envs({"A": "x"}).env == {"A": "x", "B": "2"}


def test_a_group_and_its_member_cannot_have_the_same_name() -> None:
    with pytest.raises(SpecError, match="group 'x' cannot have a process with its own name"):
        ProcessGroup("x").new_process("x")


def test_a_process_of_an_experiment_cannot_join_a_group() -> None:
    experiment = Experiment("e")
    process = experiment.new_process("p", command="c")
    with pytest.raises(SpecError):
        ProcessGroup("g").add_process(process)
