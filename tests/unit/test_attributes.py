"""Attributes that a program sets, values that it changes in place, and random sequences of calls.

A wrong value is refused with a `SymphonyError` of one line when it is set or, if it is changed in
place, at the latest when the experiment is resolved or dumped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from symphony import (
    AddressBook,
    Experiment,
    Process,
    ProcessGroup,
    SpecError,
    SymphonyConfig,
    SymphonyError,
)
from symphony.addons import DockerBuilder
from symphony.local import LocalCluster
from symphony.model.settings.table import SETTINGS
from symphony.plan.resolve import resolve
from tests.unit import strategies
from tests.unit.test_wrong_arguments import VALUES, experiment, valid


def process() -> Process:
    return experiment().get_process("p")


def shell_process() -> Process:
    return Process("p", cmd="true")


def member() -> Process:
    return experiment().get_process("q")


def group() -> ProcessGroup:
    return experiment().get_process_group("g")


@pytest.mark.parametrize(
    ("create", "name", "value", "message"),
    [
        (process, "command", {}, "command must be a string or a list of strings, not {}"),
        (process, "command", [None], "element 0 of command must be text, not None"),
        (process, "cmds", "x", "cannot have cmds, because it has command; set command to None"),
        (shell_process, "args", "x", "cannot have args, because it has cmds; set cmds to None"),
        (process, "comand", "x", "Process has no attribute 'comand'; did you mean 'command'"),
        (process, "env", {"A": "1"}, "Process has no attribute 'env'; did you mean 'set_env'"),
        (process, "binds", ["x"], "binds is a method of Process and cannot be set to ['x']; call"),
        (process, "name", "x", "name of Process is read-only"),
        (process, "group", None, "group of Process is read-only"),
        (process, "experiment", None, "experiment of Process is read-only"),
        (process, "kind", "x", "kind of Process is read-only"),
        (process, "pod_yml", {"a": {"b": {1}}}, "pod_yml.a.b must be text, a number, true"),
        (process, "container_yml", {"a": [float("nan")]}, "container_yml.a[0] must be a finite"),
        (group, "start_dir", "", "start_dir is empty"),
        (group, "preamble_cmds", [" "], "preamble_cmds has an empty line"),
        (experiment, "env", {"A": True}, "variable 'A' must be text, not True"),
        (experiment, "secrets", object(), "secrets must be text, not"),
        (experiment, "port_range", 5, "port_range must be the first and the last port"),
        (experiment, "base_dir", 5, "base_dir must be a path, not 5"),
        (
            experiment,
            "secret",
            ["x"],
            "Experiment has no attribute 'secret'; did you mean 'secrets'",
        ),
        (SymphonyConfig, "username", "x", "username of SymphonyConfig is read-only"),
        (SymphonyConfig, "user", "x", "SymphonyConfig has no attribute 'user'; did you mean"),
        (lambda: DockerBuilder("Dockerfile"), "image_id", "x", "image_id of DockerBuilder is read"),
        (LocalCluster, "configuration", 5, "configuration must be a SymphonyConfig, not 5"),
        (LocalCluster, "defaults", 5, "defaults of LocalCluster is read-only"),
        (LocalCluster, "requires_image", "no", "requires_image must be true or false, not 'no'"),
        (lambda: process().settings, "env", 5, "env must be a mapping, not 5"),
        (lambda: process().settings, "bind", 5, "there is no setting 'bind'; did you mean 'binds'"),
    ],
)
def test_a_wrong_attribute_is_refused_and_not_changed(
    create: Callable[[], Any], name: str, value: object, message: str
) -> None:
    target = create()
    before = repr(vars(target))
    with pytest.raises(SpecError) as caught:
        setattr(target, name, value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert repr(vars(target)) == before


def test_attributes_are_normalized_and_can_be_unset() -> None:
    target = process()
    target.command, target.preamble_cmds = None, "a"  # type: ignore[assignment]
    target.cmds = ["x"]
    assert target.dump()["cmds"] == ["x"]
    assert target.preamble_cmds == ["a"]
    whole = target.experiment
    assert whole is not None
    whole.env, whole.secrets = {"A": 1}, None  # type: ignore[assignment, dict-item]
    assert (whole.env, whole.secrets) == ({"A": "1"}, {})
    with pytest.raises(SpecError, match="preamble_cmds of Process cannot be deleted"):
        del target.preamble_cmds


def test_a_class_of_another_package_can_have_attributes_of_its_own() -> None:
    class Own(Experiment):
        def list_processes(self) -> list[Process]:
            return super().list_processes()[:1]

    own = Own("e")
    own.note = "x"  # type: ignore[attr-defined]
    own.list_processes = list  # type: ignore[method-assign]
    with pytest.raises(SpecError, match="env must be a mapping"):
        own.env = 5  # type: ignore[assignment]


def test_an_address_book_contains_only_endpoints() -> None:
    with pytest.raises(SpecError, match="endpoints must be a tuple of Endpoint, not 5"):
        AddressBook(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.env.update(A=5), "experiment 'e': env must be {'A': '5'}, not {'A': 5}"),
        (lambda e: e.secrets.update(a=5), "experiment 'e': secrets must be {'a': '5'}, not"),
        (
            lambda e: e.get_process("p").command.append(None),
            "process 'p': element 1 of command must be text, not None",
        ),
        (
            lambda e: e.get_process("q").settings.env.update({"0": "x"}),
            "process 'g/q': variable name '0' is not valid",
        ),
        (
            lambda e: e.get_process("p").settings.volumes.append({"nfz": {}}),
            "process 'p': a volume has the unknown key 'nfz'; did you mean 'nfs'?",
        ),
        (
            lambda e: e.get_process("p").settings.volumes.append({"nfs": {}}),
            "process 'p': a volume of kind nfs needs mount_path",
        ),
        (
            lambda e: e.get_process_group("g").pod_yml.update(a=[object]),
            "group 'g': pod_yml.a[0] must be text, a number, true, false, null, a list or",
        ),
        (
            lambda e: e.get_process_group("g").settings.starts_after.update(p="redy"),
            "group 'g': the condition of starts_after must be one of ready, started, succeeded",
        ),
    ],
)
def test_a_value_that_is_changed_in_place_is_refused_by_every_use(
    change: Callable[[Experiment], Any], message: str
) -> None:
    changed = experiment()
    change(changed)
    for use in (changed.dump_dict, lambda: resolve(changed, strategies.SCHEME)):
        with pytest.raises(SpecError) as caught:
            use()
        assert str(caught.value).startswith(message)
        assert caught.value.path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.ends_with.append([]), "element 0 of ends_with must be text, not []"),
        (lambda e: e.get_process("p").settings.binds.update({5: 1}), "process 'p': "),
        (lambda e: e.get_process("p").settings.connects.append({}), "process 'p': "),
    ],
)
def test_a_value_that_is_changed_in_place_is_refused_by_a_selection(
    change: Callable[[Experiment], Any], message: str
) -> None:
    changed = experiment()
    change(changed)
    with pytest.raises(SpecError) as caught:
        changed.subset(["p"])
    assert message in str(caught.value)


def test_the_path_of_an_env_file_is_on_one_line() -> None:
    changed = experiment()
    changed.env_file.append("a\x85b")
    with pytest.raises(SymphonyError) as caught:
        resolve(changed, strategies.SCHEME)
    assert str(caught.value) == "'a\\x85b': no such file"


METHODS = {
    cls: [
        name
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith(("_", "dump_file", "load"))
    ]
    for cls in (Experiment, Process, ProcessGroup)
}
ATTRIBUTES = {cls: [*cls._parsers, "name", "kind", "binds", "x"] for cls in METHODS}


class Changes(RuleBasedStateMachine):
    """Random calls, assignments and changes in place. After an error, nothing has changed."""

    @initialize()
    def create(self) -> None:
        self.experiment = experiment()
        self.is_damaged = False

    def targets(self) -> list[Any]:
        return [self.experiment, *self.experiment.list_components()]

    def attempt(self, run: Callable[[], object]) -> None:
        before = None if self.is_damaged else self.experiment.dump_dict()
        error = None
        try:
            run()
        except SymphonyError as exc:
            error = exc
        if before is not None:
            after = self.experiment.dump_dict()
            assert error is None or after == before
        assert error is None or len(str(error).splitlines()) == 1

    @rule(data=st.data())
    def call(self, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from(self.targets()))
        name = data.draw(st.sampled_from(METHODS[type(target)]))
        method = getattr(target, name)
        arguments: dict[str, Any] = {}
        for parameter in inspect.signature(method).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            is_required = parameter.default is parameter.empty
            if is_required or data.draw(st.booleans()):
                is_valid = data.draw(st.booleans())
                arguments[parameter.name] = (
                    valid(name, parameter.name) if is_valid else data.draw(VALUES)
                )
        self.attempt(lambda: method(**arguments))

    @rule(data=st.data(), value=VALUES)
    def assign(self, data: st.DataObject, value: object) -> None:
        target = data.draw(st.sampled_from(self.targets()))
        name = data.draw(st.sampled_from(ATTRIBUTES[type(target)]))
        self.attempt(lambda: setattr(target, name, value))

    @rule(data=st.data(), value=VALUES)
    def assign_setting(self, data: st.DataObject, value: object) -> None:
        target = data.draw(st.sampled_from(self.experiment.list_components()))
        name = data.draw(st.sampled_from([*SETTINGS, "x"]))
        self.attempt(lambda: setattr(target.settings, name, value))

    @precondition(lambda self: not self.is_damaged)
    @rule(data=st.data(), value=VALUES)
    def change_in_place(self, data: st.DataObject, value: object) -> None:
        target = data.draw(st.sampled_from(self.targets()))
        values = [vars(target)[name] for name in target._parsers]
        if target is not self.experiment:
            values += vars(target.settings).values()
        container = data.draw(st.sampled_from([v for v in values if isinstance(v, (list, dict))]))
        if isinstance(container, list):
            container.append(value)
        else:
            container[data.draw(st.sampled_from(["a", "cpu", "A"]))] = value
        try:
            self.experiment.dump_dict()
        except SpecError:
            self.is_damaged = True

    @rule()
    def resolve(self) -> None:
        self.attempt(lambda: resolve(self.experiment, strategies.SCHEME).to_dict())


TestChanges = Changes.TestCase
TestChanges.settings = settings(stateful_step_count=20)
