"""Resolving: services meet, everybody sees every address, the nearest setting wins, and a plan is for good."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony import Experiment, NotFound, SpecError
from symphony.plan.addresses import AddressBook, AddressScheme, Endpoint
from symphony.plan.resolve import Defaults, Ignored, Plan, PlannedProcess, ignored_settings, resolve
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


def test_every_process_sees_every_address_and_who_it_is() -> None:
    assert environment(example(), "learner") == {
        "LEVEL": "experiment", "E": "1", **ADDRESSES, "SYMPHONY_ROLE": "learner", "SYMPHONY_GROUP": "",
    }  # fmt: skip
    assert environment(example(), "agent") == {
        "LEVEL": "process", "E": "1", "G": "1", "SYMPH_RAY_ID": "7",
        **ADDRESSES, "SYMPHONY_ROLE": "agent", "SYMPHONY_GROUP": "agents",
    }  # fmt: skip


def test_addresses_win_over_variables_of_the_user_s() -> None:
    experiment = example()
    experiment.set_env("SYMPH_BOARD_PORT", "1").set_env("SYMPHONY_EXPERIMENT", "x")
    experiment.get_process("learner").set_env("SYMPH_REPLAY_SERVER_HOST", "x").set_env(
        "SYMPHONY_ROLE", "x"
    )
    assert environment(experiment, "learner") == environment(example(), "learner")


@given(experiments())
def test_every_service_has_its_four_variables_everywhere(data: dict[str, Any]) -> None:
    plan = resolve(Experiment.load_dict(data), SCHEME)
    for process in plan:
        env = plan.environment(process)
        for name, endpoint in plan.addresses.items():
            prefix = f"SYMPH_{name.upper().replace('-', '_')}"
            assert env[f"{prefix}_HOST"] == f"{name}.example"
            assert env[f"{prefix}_PORT"] == str(endpoint.port)
            assert env[f"{prefix}_ADDR"] == f"{name}.example:{endpoint.port}"
            assert env[f"{prefix}_BIND_HOST"] == "0.0.0.0"


def test_no_two_services_share_a_variable() -> None:
    experiment = Experiment("e")
    experiment.new_process("p", command="c").binds(["x", "x-bind"])
    try:
        env = environment(experiment, "p")
    except SpecError as refusal:
        assert "'x-bind'" in str(refusal)
    else:
        assert env["SYMPH_X_BIND_HOST"] == "0.0.0.0"
        assert env["SYMPH_X_BIND_BIND_HOST"] == "0.0.0.0"
        assert env["SYMPH_X_BIND_ADDR"] == "x-bind.example:7001"


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
    with pytest.raises(NotFound, match="no service 'zzz'; it has replay-server, board"):
        addresses.find("zzz")
    assert AddressBook().environment() == {}


# --- services that do not meet ---


def test_connects_without_binds_names_the_process_the_service_and_the_near_miss() -> None:
    experiment = example()
    experiment.new_process("viewer", command="c").connects("replay-sever")
    with pytest.raises(SpecError) as refusal:
        resolve(experiment, SCHEME)
    assert str(refusal.value) == (
        "'viewer' connects to 'replay-sever', which no process binds; did you mean 'replay-server'?"
    )


def test_connects_with_nothing_near_lists_what_is_bound() -> None:
    experiment = example()
    experiment.new_process_group("g").connects("zzz").new_process("p", command="c")
    with pytest.raises(
        SpecError, match="'g' connects to 'zzz', which no process binds; bound are replay-server"
    ):
        resolve(experiment, SCHEME)
    lonely = Experiment("e")
    lonely.new_process("p", command="c").connects("zzz")
    with pytest.raises(SpecError, match="bound are none"):
        resolve(lonely, SCHEME)


def test_connects_to_what_is_exposed_alone_is_refused() -> None:
    experiment = example()
    experiment.new_process("viewer", command="c").connects("board")
    with pytest.raises(
        SpecError, match="'viewer' connects to 'board', which 'learner' exposes but does not bind"
    ):
        resolve(experiment, SCHEME)


@pytest.mark.parametrize("how", ["binds", "exposes"])
def test_a_service_of_two_processes_names_both(how: str) -> None:
    experiment = example()
    getattr(experiment.new_process("other", command="c"), how)("replay-server")
    with pytest.raises(
        SpecError, match="service 'replay-server' is bound by two processes, 'learner' and 'other'"
    ):
        resolve(experiment, SCHEME)


def test_a_service_of_a_group_and_its_member_names_both() -> None:
    experiment = Experiment("e")
    experiment.new_process_group("g").binds("s").new_process("p", command="c").binds("s")
    with pytest.raises(SpecError, match="service 's' is bound by two processes, 'g' and 'p'"):
        resolve(experiment, SCHEME)


def test_a_service_may_be_bound_and_exposed_on_one_port() -> None:
    experiment = Experiment("e")
    experiment.new_process("p", command="c").binds("s").exposes({"s": 80})
    experiment.new_process("q", command="c").connects("s")
    endpoint = resolve(experiment, SCHEME).addresses["s"]
    assert (endpoint.port, endpoint.exposed) == (80, True)
    experiment.get_process("p").binds({"s": 81})
    with pytest.raises(
        SpecError, match="'p' binds and exposes 's' on two ports: 80 and 81; give it one"
    ):
        resolve(experiment, SCHEME)


def test_one_port_for_two_services_names_both() -> None:
    experiment = Experiment("e")
    experiment.new_process("p", command="c").binds({"a": 80})
    experiment.new_process("q", command="c").exposes({"b": 80})
    with pytest.raises(
        SpecError, match="port 80 is given to two services: 'a' of 'p' and 'b' of 'q'"
    ):
        resolve(experiment, SCHEME)


@pytest.mark.parametrize("ready", [{"tcp": "sever"}, {"http": ("sever", "/")}])
def test_ready_asks_one_s_own_service(ready: dict[str, Any]) -> None:
    experiment = Experiment("e")
    experiment.new_process("p", command="c").binds("server").ready(**ready)
    with pytest.raises(
        SpecError,
        match="'p' is ready when 'sever' answers, which is not its own; did you mean 'server'",
    ):
        resolve(experiment, SCHEME)


def test_ready_may_ask_a_service_of_the_group() -> None:
    experiment = Experiment("e")
    group = experiment.new_process_group("g").binds("s")
    group.new_process("p", command="c").ready(tcp="s")
    assert planned(resolve(experiment, SCHEME), "p").settings.ready == {"tcp": "s", "timeout": 60}


def test_an_experiment_and_a_group_have_processes() -> None:
    experiment = Experiment("e")
    with pytest.raises(SpecError, match="experiment 'e' has no processes"):
        resolve(experiment, SCHEME)
    experiment.new_process("p", command="c")
    experiment.new_process_group("g")
    with pytest.raises(SpecError, match="group 'g' has no processes"):
        resolve(experiment, SCHEME)


def test_a_member_mounts_nothing_where_its_group_does() -> None:
    experiment = Experiment("e")
    experiment.new_process_group("g").mount_pvc("a", "/m").new_process("p", command="c").mount_pvc(
        "b", "/m"
    )
    with pytest.raises(SpecError, match="/m"):
        resolve(experiment, SCHEME)


# --- what is outer and what is inner ---


def test_preambles_stand_outermost_first_and_folders_join() -> None:
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
def test_the_nearest_variable_wins(levels: list[str]) -> None:
    experiment = Experiment("e")
    group = experiment.new_process_group("g")
    process = group.new_process("p", command="c")
    for level in levels:
        {"experiment": experiment, "group": group, "process": process}[level].set_env("A", level)
    nearest = next((level for level in ("process", "group", "experiment") if level in levels), None)
    assert environment(experiment, "p").get("A") == nearest


# --- pure and for good ---


@given(experiments())
def test_resolving_only_reads(data: dict[str, Any]) -> None:
    experiment = Experiment.load_dict(data)
    before = copy.deepcopy(experiment.dump_dict())
    first = resolve(experiment, SCHEME).to_dict()
    assert experiment.dump_dict() == before
    assert resolve(experiment, SCHEME).to_dict() == first


def test_later_changes_do_not_alter_the_plan() -> None:
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
    lone = experiment.new_process("q", cmds=["a"]).starts_after("g")
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
    lone.starts_after("g", "succeeded")
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


def test_where_an_experiment_was_read_is_no_part_of_what_its_plan_says(tmp_path: Path) -> None:
    example().dump_file(tmp_path / "e.yml")
    read = resolve(Experiment.load_file(tmp_path / "e.yml"), SCHEME)
    assert read == resolve(example(), SCHEME)
    assert read.base_dir == tmp_path


def test_a_plan_differs_by_backend_alone() -> None:
    other = AddressScheme(backend="other", host=SCHEME.host, bind_host=SCHEME.bind_host)
    one, two = resolve(example(), SCHEME).to_dict(), resolve(example(), other).to_dict()
    assert {key for key in one if one[key] != two[key]} == {"backend", "shared_env"}


# --- what a backend leaves out ---


def test_ignored_settings_are_listed_with_whom_they_concern() -> None:
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


def test_a_whole_setting_may_be_honoured() -> None:
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
