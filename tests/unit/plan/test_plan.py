"""Resolving an experiment: addresses, merged settings, and plans that do not change."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony import Experiment, NotFound
from symphony.plan.ignored import Ignored, ignored_settings
from symphony.plan.plan import Plan, PlannedProcess
from symphony.plan.resolution.addresses import AddressBook, AddressScheme, Endpoint
from symphony.plan.resolve import Defaults, resolve
from tests.unit.strategies import SCHEME, experiments


def example() -> Experiment:
    experiment = Experiment("rl", env={"LEVEL": "experiment", "E": "1"})
    experiment.new_process("learner", command="python", args=["learner.py"]).binds(
        "replay-server"
    ).exposes({"board": 6006})
    group = experiment.new_process_group("agents").set_env("LEVEL", "group").set_env("G", "1")
    group.new_process(
        "agent", command="python", env={"LEVEL": "process", "SYMPH_RAY_ID": "7"}
    ).connects("replay-server")
    return experiment


def planned(plan: Plan, name: str) -> PlannedProcess:
    return next(process for process in plan if process.name == name)


def environment(experiment: Experiment, name: str) -> dict[str, str]:
    plan = resolve(experiment, SCHEME)
    return plan.environment(planned(plan, name))


# --- addresses ---

ADDRESSES = {
    "SYMPH_REPLAY_SERVER_HOST": "replay-server.example",
    "SYMPH_REPLAY_SERVER_PORT": "7000",
    "SYMPH_REPLAY_SERVER_ADDR": "replay-server.example:7000",
    "SYMPH_REPLAY_SERVER_BIND_HOST": "0.0.0.0",
    "SYMPH_BOARD_HOST": "board.example",
    "SYMPH_BOARD_PORT": "6006",
    "SYMPH_BOARD_ADDR": "board.example:6006",
    "SYMPH_BOARD_BIND_HOST": "0.0.0.0",
    "SYMPHONY_EXPERIMENT": "rl",
    "SYMPHONY_BACKEND": "paper",
}


def test_every_process_receives_all_addresses_and_its_identity() -> None:
    assert environment(example(), "learner") == {
        "LEVEL": "experiment",
        "E": "1",
        **ADDRESSES,
        "SYMPHONY_ROLE": "learner",
        "SYMPHONY_GROUP": "",
    }
    assert environment(example(), "agent") == {
        "LEVEL": "process",
        "E": "1",
        "G": "1",
        "SYMPH_RAY_ID": "7",
        **ADDRESSES,
        "SYMPHONY_ROLE": "agent",
        "SYMPHONY_GROUP": "agents",
    }


def test_addresses_take_precedence_over_variables_of_the_user() -> None:
    experiment = example()
    experiment.set_env("SYMPH_BOARD_PORT", "1").set_env("SYMPHONY_EXPERIMENT", "x")
    experiment.get_process("learner").set_env("SYMPH_REPLAY_SERVER_HOST", "x").set_env(
        "SYMPHONY_ROLE", "x"
    )
    assert environment(experiment, "learner") == environment(example(), "learner")


@given(experiments())
def test_every_process_has_four_variables_for_each_service(data: dict[str, Any]) -> None:
    plan = resolve(Experiment.load_dict(data), SCHEME)
    for process in plan:
        env = plan.environment(process)
        for name, endpoint in plan.addresses.items():
            prefix = f"SYMPH_{name.upper().replace('-', '_')}"
            assert env[f"{prefix}_HOST"] == f"{name}.example"
            assert env[f"{prefix}_PORT"] == str(endpoint.port)
            assert env[f"{prefix}_ADDR"] == f"{name}.example:{endpoint.port}"
            assert env[f"{prefix}_BIND_HOST"] == "0.0.0.0"


def test_an_address_book_is_a_mapping_in_declaration_order() -> None:
    addresses = resolve(example(), SCHEME).addresses
    assert list(addresses) == ["replay-server", "board"]
    assert len(addresses) == 2
    assert addresses["board"] == Endpoint(
        service="board",
        owner="learner",
        host="board.example",
        port=6006,
        bind_host="0.0.0.0",
        exposed=True,
    )
    assert "x" not in addresses
    with pytest.raises(NotFound, match="no service 'replay-sever'; did you mean 'replay-server'"):
        addresses.find("replay-sever")
    with pytest.raises(NotFound, match="no service 'zzz'; services: replay-server, board"):
        addresses.find("zzz")
    assert AddressBook().environment() == {}


def test_a_service_may_be_bound_and_exposed_on_one_port() -> None:
    experiment = Experiment("e")
    experiment.new_process("p", command="c").binds("s").exposes({"s": 80})
    endpoint = resolve(experiment, SCHEME).addresses["s"]
    assert (endpoint.port, endpoint.exposed) == (80, True)


# --- levels of settings ---


def test_preambles_are_in_order_and_directories_are_joined() -> None:
    experiment = Experiment("e", preamble_cmds="experiment", start_dir="experiment")
    group = experiment.new_process_group("g", preamble_cmds=["group"], start_dir="group")
    group.new_process("p", command="c", preamble_cmds="process", start_dir="process")
    group.new_process("q", command="c", start_dir="/elsewhere")
    experiment.new_process("lone", command="c")
    plan = resolve(experiment, SCHEME, Defaults(preamble_cmds=("cluster",), start_dir="/cluster"))
    assert planned(plan, "p").preamble_cmds == ("cluster", "experiment", "group", "process")
    assert planned(plan, "p").start_dir == "/cluster/experiment/group/process"
    assert planned(plan, "q").start_dir == "/elsewhere"
    assert planned(plan, "lone").preamble_cmds == ("cluster", "experiment")
    assert planned(plan, "lone").start_dir == "/cluster/experiment"
    assert planned(resolve(example(), SCHEME), "agent").start_dir is None


@given(st.lists(st.sampled_from(["experiment", "group", "process"]), unique=True))
def test_the_innermost_variable_takes_precedence(levels: list[str]) -> None:
    experiment = Experiment("e")
    group = experiment.new_process_group("g")
    process = group.new_process("p", command="c")
    for level in levels:
        {"experiment": experiment, "group": group, "process": process}[level].set_env("A", level)
    nearest = next((level for level in ("process", "group", "experiment") if level in levels), None)
    assert environment(experiment, "p").get("A") == nearest


# --- plans do not change ---


@given(experiments())
def test_resolving_does_not_change_the_experiment(data: dict[str, Any]) -> None:
    experiment = Experiment.load_dict(data)
    before = copy.deepcopy(experiment.dump_dict())
    first = resolve(experiment, SCHEME).to_dict()
    assert experiment.dump_dict() == before
    assert resolve(experiment, SCHEME).to_dict() == first


def test_later_changes_do_not_affect_the_plan() -> None:
    experiment = Experiment("e", secrets="token", env={"A": "1"}, preamble_cmds="a", start_dir="d")
    group = (
        experiment.new_process_group("g", preamble_cmds="b")
        .set_env("G", "1")
        .node_selector("k", "v")
    )
    group.resource_limit(cpu=1).mount_pvc("c", "/m")
    group.pod_yml = {"spec": {"list": [1]}}
    process = (
        group.new_process("p", command=["c"], args=["x"], env={"P": "1"}).binds("s").ready(tcp="s")
    )
    lone = experiment.new_process("q", cmds=["a"], env={"Q": "1"}).starts_after("g").connects("s")
    lone.mount_pvc("c", "/m").container_yml = {"list": [1]}
    plan = resolve(experiment, SCHEME)
    before = copy.deepcopy(plan.to_dict())
    experiment.set_env("A", "2").set_env("B", "2")
    experiment.secrets["new"] = "new"
    experiment.preamble_cmds.append("z")
    experiment.new_process("later", command="c")
    group.set_env("G", "2").node_selector("k", "w").resource_limit(cpu=2).mount_pvc("d", "/n")
    group.preamble_cmds.append("z")
    group.pod_yml["spec"]["list"].append(2)
    group.settings.volumes[0]["pvc"]["claim"] = "other"
    process.set_env("P", "2").binds("t").ready(log="x")
    process.command = ["other"]
    assert process.args is not None
    process.args.append("y")
    assert lone.cmds is not None
    lone.cmds.append("b")
    lone.starts_after("g", "succeeded").set_env("Q", "2")
    lone.settings.connects.append("t")
    lone.settings.volumes[0]["pvc"]["claim"] = "other"
    lone.container_yml["list"].append(2)
    assert plan.to_dict() == before


@pytest.mark.parametrize("part", ["plan", "process", "endpoint"])
def test_a_plan_is_frozen(part: str) -> None:
    plan = resolve(example(), SCHEME)
    frozen: Any = {"plan": plan, "process": plan.processes[0], "endpoint": plan.addresses["board"]}[
        part
    ]
    name = dataclasses.fields(frozen)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(frozen, name, "x")


def test_plans_are_equal_in_different_base_directories(tmp_path: Path) -> None:
    example().dump_file(tmp_path / "e.yml")
    read = resolve(Experiment.load_file(tmp_path / "e.yml"), SCHEME)
    assert read == resolve(example(), SCHEME)
    assert read.base_dir == tmp_path


def test_plans_of_two_backends_differ_only_in_the_backend() -> None:
    other = AddressScheme(backend="other", host=SCHEME.host, bind_host=SCHEME.bind_host)
    one, two = resolve(example(), SCHEME).to_dict(), resolve(example(), other).to_dict()
    assert {key for key in one if one[key] != two[key]} == {"backend", "shared_env"}


# --- ignored settings ---


def test_ignored_settings_are_listed_with_their_processes() -> None:
    experiment = Experiment("e")
    experiment.new_process("p", command="c", container_image="i").resource_limit(
        cpu=1, gpu=1
    ).add_label("a", "b")
    group = experiment.new_process_group("g").node_selector("a", "b").mount_pvc("c", "/m")
    group.new_process("q", command="c", env={"A": "1"}).resource_limit(cpu=1).mount_shared_memory()
    ignored = ignored_settings(
        resolve(experiment, SCHEME), frozenset({"env", "resource_limit.gpu"})
    )
    assert ignored == (
        Ignored(setting="container_image", processes=("p",)),
        Ignored(setting="resource_limit.cpu", processes=("p", "g/q")),
        Ignored(setting="labels", processes=("p",)),
        Ignored(setting="volumes.pvc", processes=("g/q",)),
        Ignored(setting="volumes.shared_memory", processes=("g/q",)),
        Ignored(setting="node_selector", processes=("g/q",)),
    )
    assert str(ignored[1]) == "resource_limit.cpu (p, g/q)"


def test_a_setting_may_be_supported_as_a_whole() -> None:
    experiment = Experiment("e")
    experiment.new_process("p", command="c").resource_limit(cpu=1, gpu=1).mount_pvc(
        "a", "/a"
    ).mount_shared_memory()
    plan = resolve(experiment, SCHEME)
    assert ignored_settings(plan, frozenset({"resource_limit", "volumes"})) == ()
    assert [
        item.setting
        for item in ignored_settings(plan, frozenset({"resource_limit", "volumes.pvc"}))
    ] == ["volumes.shared_memory"]
