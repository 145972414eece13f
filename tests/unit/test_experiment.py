"""Putting an experiment together: members and their names, wrong constructors, and looking things up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, NotFound, Process, ProcessGroup, SpecError


@pytest.mark.parametrize("make", [Experiment, Process, ProcessGroup])
def test_a_bad_name_is_refused_with_the_corrected_one(make: Callable[[str], Any]) -> None:
    with pytest.raises(SpecError, match=r"name 'My_exp' is not valid.*for example 'my-exp'"):
        make("My_exp")


@pytest.mark.parametrize(
    ("make", "word"), [(Experiment, "experiment"), (Process, "process"), (ProcessGroup, "group")]
)
def test_the_message_says_whose_name_is_bad(make: Callable[[Any], Any], word: str) -> None:
    with pytest.raises(SpecError, match=f"^{word} name"):
        make("A")


def test_an_error_of_the_description_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="not valid"):
        Experiment("A")


# --- processes ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"comand": "c"}, "process 'p' knows no 'comand'; did you mean 'command'"),
        ({"image": "c"}, "process 'p' knows no 'image'"),
        (
            {"cmd": "a", "command": "b"},
            "process 'p' has cmd and command: give a shell line or an argument list",
        ),
        ({"cmds": ["a"], "command": "b"}, "process 'p' has cmds and command"),
        ({"cmd": "a", "args": ["b"]}, "process 'p' has cmd and args"),
        ({"cmd": "a", "cmds": ["b"]}, "process 'p' has cmd and cmds: put the one line into cmds"),
        ({"cmd": ""}, "cmd has an empty line"),
        ({"cmds": ["a", ""]}, "cmds has an empty line"),
        ({"cmd": ["a"]}, "cmd is text, not ['a']"),
        ({"command": {"a": 1}}, "command is a string or a list of strings"),
        ({"command": ["a", None]}, "element 1 of command is text, not None"),
        ({"args": ["a\0"]}, "element 0 of args holds a NUL character"),
        ({"container_image": ""}, "container_image is empty"),
        ({"start_dir": ""}, "start_dir is empty"),
        ({"preamble_cmds": [" "]}, "preamble_cmds has an empty line"),
        ({"env": ["A"]}, "env is a mapping"),
        ({"env": {"A": None}}, "variable 'A' is text, not None"),
    ],
)
def test_a_wrong_option_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    experiment = Experiment("e")
    with pytest.raises(SpecError) as refusal:
        experiment.new_process("p", **options)
    assert message in str(refusal.value)
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
def test_what_runs(options: dict[str, Any], command: Any, args: Any, cmds: Any) -> None:
    process = Process("p", **options)
    assert (process.command, process.args, process.cmds) == (command, args, cmds)


def test_paths_and_names() -> None:
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
            "experiment 'e' has a process 'lone' already; names are unique",
        ),
        (
            lambda e: e.new_process("group"),
            "experiment 'e' has a group 'group' already; names are unique",
        ),
        (
            lambda e: e.new_process("member"),
            "has a process 'member' already, in group 'group'; names are unique",
        ),
        (lambda e: e.add_process(Process("lone")), "has a process 'lone' already"),
        (lambda e: e.new_process_group("group"), "experiment 'e' has a group 'group' already"),
        (lambda e: e.new_process_group("lone"), "experiment 'e' has a process 'lone' already"),
        (
            lambda e: e.get_process_group("group").new_process("member"),
            "group 'group' has a process 'member' already",
        ),
        (
            lambda e: e.get_process_group("group").new_process("lone"),
            "has a process 'lone' already",
        ),
        (lambda e: e.new_process_group("other").new_process("member"), "already, in group 'group'"),
    ],
)
def test_a_name_stands_once(add: Callable[[Experiment], Any], message: str) -> None:
    experiment = small()
    with pytest.raises(SpecError) as refusal:
        add(experiment)
    assert message in str(refusal.value)
    assert names(experiment) == ["lone", "group/member"]


def test_a_group_that_is_added_whole_brings_no_name_twice() -> None:
    experiment = small()
    group = ProcessGroup("other")
    group.add_processes([Process("fresh"), Process("member")])
    with pytest.raises(SpecError, match="'member' already, in group 'group'"):
        experiment.add_process_group(group)
    assert names(experiment) == ["lone", "group/member"]
    assert group.experiment is None


def test_a_process_is_in_one_group() -> None:
    experiment = small()
    member = experiment.get_process("member")
    with pytest.raises(SpecError, match="process 'member' is in group 'group' already"):
        ProcessGroup("other").add_process(member)
    with pytest.raises(SpecError, match="process 'member' is in group 'group': add the group"):
        Experiment("f").add_process(member)


def test_a_group_is_in_one_experiment() -> None:
    with pytest.raises(SpecError, match="group 'group' is in experiment 'e' already"):
        Experiment("f").add_process_group(small().get_process_group("group"))


def test_a_whole_experiment_in_declaration_order() -> None:
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


def test_looking_up() -> None:
    experiment = small()
    assert experiment.get_process("lone").path == "lone"
    assert experiment.get_process("member").path == "group/member"
    assert experiment.get_process_group("group").get_process("member").path == "group/member"


@pytest.mark.parametrize(
    ("look", "message"),
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
def test_what_is_not_there_is_not_found_with_the_near_miss(
    look: Callable[[Experiment], Any], message: str
) -> None:
    with pytest.raises(NotFound) as refusal:
        look(small())
    assert message in str(refusal.value)


# --- the experiment's own options ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"secrets": {"a/b": "c"}}, "secrets: 'a/b' is no plain file name"),
        ({"secrets": ["a/t", "b/t"]}, "secrets: two files are named 't'"),
        ({"port_range": (9000, 8000)}, "port_range begins at 9000"),
        ({"port_range": 8000}, "port_range is its first and last port"),
        ({"preamble_cmds": [""]}, "preamble_cmds has an empty line"),
        ({"start_dir": ""}, "start_dir is empty"),
        ({"env": {"A": []}}, "variable 'A' is text"),
    ],
)
def test_a_wrong_option_of_an_experiment(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as refusal:
        Experiment("e", **options)
    assert message in str(refusal.value)


def test_the_options_of_an_experiment() -> None:
    experiment = Experiment(
        "e", secrets="a/token", port_range=range(7000, 7010), preamble_cmds="true", env={"A": 1}
    )
    assert experiment.secrets == {"token": "a/token"}
    assert experiment.port_range == (7000, 7009)
    assert experiment.preamble_cmds == ["true"]
    assert experiment.env == {"A": "1"}
    assert experiment.set_env("B", 2).set_envs({"A": "x"}).env == {"A": "x", "B": "2"}


# --- a lone process and a group may not share a name, whichever comes first ---


def test_a_group_and_a_process_of_one_name_are_refused_in_any_order() -> None:
    lone_first, group_first = Experiment("e"), Experiment("e")
    lone_first.new_process("x")
    with pytest.raises(SpecError):
        lone_first.new_process_group("x")
    group_first.new_process_group("x")
    with pytest.raises(SpecError):
        group_first.new_process("x")


@pytest.mark.parametrize("group", ["one", "other"])
def test_a_group_and_a_member_of_one_name_are_refused_in_any_order(group: str) -> None:
    experiment = Experiment("e")
    experiment.new_process_group("one").new_process("other")
    with pytest.raises(SpecError):
        ProcessGroup(group).new_process(group)
    with pytest.raises(SpecError):
        experiment.new_process_group("other")


def test_a_lone_process_of_an_experiment_joins_no_group_afterwards() -> None:
    experiment = Experiment("e")
    process = experiment.new_process("p", command="c")
    with pytest.raises(SpecError):
        ProcessGroup("g").add_process(process)
