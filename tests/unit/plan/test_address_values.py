"""Addresses in the values of processes: their replacement, and the errors and warnings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, SpecError
from symphony.lint.repaired_copies import repaired, without_reported_errors
from symphony.model.experiment.address_references import escape, replace_references
from symphony.plan.plan import PlannedProcess
from symphony.plan.resolution.unexpanded import check_unexpanded_variables
from symphony.plan.resolve import check_experiment, resolve
from tests.unit.strategies import SCHEME


def loaded(processes: dict[str, Any], **options: Any) -> Experiment:
    return Experiment.load_dict({"name": "e", **options, "processes": processes})


def planned(experiment: Experiment, name: str) -> PlannedProcess:
    plan = resolve(experiment, SCHEME)
    return next(process for process in plan if process.name == name)


REDIS = {"command": "redis", "binds": {"redis": 7100}}
POOL = {"command": "p", "binds": {"pool": "720${index}"}, "replicas": 2}
ADDRESSES = {
    "${redis.addr}": "redis.example:7100",
    "${redis.host}": "redis.example",
    "${redis.port}": "7100",
    "${redis.bind_host}": "0.0.0.0",
    "${redis.addrs}": "redis.example:7100",
    "${pool.addr}": "pool-0.example:7200",
    "${pool.addrs}": "pool-0.example:7200,pool-1.example:7201",
    "${pool.1.port}": "7201",
    "${pool-1.host}": "pool-1.example",
    "a${redis.port}b${redis.port}": "a7100b7100",
    "$${redis.addr}": "${redis.addr}",
    "$$${redis.port}": "$7100",
    "${HOME} $x ${": "${HOME} $x ${",
}


@pytest.mark.parametrize("parameters", [{}, {"parameters": {"x": 1}}])
def test_references_are_replaced_in_all_values_that_programs_read(
    parameters: dict[str, Any],
) -> None:
    texts = [text for text in ADDRESSES if not parameters or "HOME" not in text]
    expected = [ADDRESSES[text] for text in texts]
    numbered = {f"V{index}": text for index, text in enumerate(texts)}
    described = {
        "app": {
            "command": ["c", *texts],
            "args": texts,
            "env": numbered,
            "preamble_cmds": texts,
            "ready": {"command": texts},
        },
        "line": {"cmds": texts},
        "redis": REDIS,
        "pool": POOL,
    }
    experiment = loaded(described, env={"OUTER": "${redis.addr}"}, **parameters)
    app = planned(experiment, "app")
    assert app.command == ("c", *expected)
    assert list(app.args) == expected
    assert app.env == {
        "OUTER": "redis.example:7100",
        **{f"V{index}": text for index, text in enumerate(expected)},
    }
    assert list(app.preamble_cmds) == expected
    assert app.settings.ready == {"command": expected, "timeout": 60}
    assert list(planned(experiment, "line").cmds or ()) == expected
    # The description still contains the references, so that it can be loaded elsewhere.
    assert experiment.get_process("app").args == texts


def test_references_have_the_same_meaning_in_python() -> None:
    experiment = Experiment("e")
    experiment.new_process("redis", command="r").binds({"redis": 7100})
    app = experiment.new_process("app", command=["app", "${redis.addr}"])
    app.set_env("URL", "redis://${redis.addr}/0").ready(command="ping ${redis.port}")
    found = planned(experiment, "app")
    assert found.command == ("app", "redis.example:7100")
    assert found.env == {"URL": "redis://redis.example:7100/0"}
    assert found.settings.ready == {"command": "ping 7100", "timeout": 60}


def test_a_replica_reads_its_own_address_and_those_of_others_by_number() -> None:
    pool = {**POOL, "args": ["${pool.addr}", "${pool.${index}.port}", "${pool.0.port}"]}
    other = {"command": "c", "replicas": 2, "args": ["${pool.${index}.addr}", "${x}"]}
    experiment = loaded({"pool": pool, "other": other}, parameters={"x": 3})
    assert planned(experiment, "pool-1").args == ("pool-1.example:7201", "7201", "7200")
    assert planned(experiment, "other-1").args == ("pool-1.example:7201", "3")


def test_parameters_can_be_parts_of_references_and_can_contain_them() -> None:
    app = {"command": ["c", "${${name}.addr}", "${pool.${number}.port}", "${url}"]}
    values = {"name": "redis", "number": 1, "url": "http://${redis.addr}/"}
    experiment = loaded({"app": app, "redis": REDIS, "pool": POOL}, parameters=values)
    expected = ("c", "redis.example:7100", "7201", "http://redis.example:7100/")
    assert planned(experiment, "app").command == expected


def test_a_shell_line_keeps_the_expansions_of_the_shell() -> None:
    line = "echo ${out-model.bin} ${x%.*} ${y:-a.b} ${redis-2.addr} $${out-a.b}"
    experiment = loaded({"app": {"cmd": line}, "redis-2": {**REDIS, "binds": {"redis-2": 7100}}})
    assert planned(experiment, "app").cmds == (
        "echo ${out-model.bin} ${x%.*} ${y:-a.b} redis-2.example:7100 ${out-a.b}",
    )


def test_values_of_env_files_are_not_changed(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("A='${redis.addr}'\nB=$$HOME\n")
    experiment = loaded({"redis": {**REDIS, "env_file": "a.env"}})
    experiment.base_dir = tmp_path
    assert planned(experiment, "redis").env == {"A": "${redis.addr}", "B": "$HOME"}
    (tmp_path / "a.env").write_text("A=${redis.addr}\n")
    with pytest.raises(SpecError, match=r"a\.env:1: the value of A contains the address of a serv"):
        resolve(experiment, SCHEME)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("${redi.addr}", "service 'redi', which no process binds or exposes; did you mean 'redis'"),
        ("${zzz.addr}", "services: pool, pool-0, pool-1, redis (write $${zzz.addr} for the text)"),
        ("${redis.adr}", "has an unknown field 'adr'; did you mean 'addr'"),
        ("${pool.*.addr}", "only a file of configs can have; write ${pool.addrs} for all addresse"),
        ("${redis.ip}", "has an unknown field 'ip'; fields: addr, host, port, bind_host, addrs"),
        (
            "${redis.0.addr}",
            "has a number, but service 'redis' has no replicas; write ${redis.addr",
        ),
        ("${pool.2.addr}", "refers to a replica that service 'pool' does not have; they have the"),
        (
            "${pool.0.addrs}",
            "has a number and the field addrs, which contains all addresses; write",
        ),
        ("${user.home.dir}", "is not a reference to an address; write ${service.field}, "),
        ("${Redis.addr}", "did you mean 'redis'"),
    ],
)
def test_a_reference_to_nothing_is_one_error_with_the_process_and_the_key(
    value: str, message: str
) -> None:
    experiment = loaded(
        {"redis": REDIS, "pool": POOL, "app": {"command": "c", "env": {"URL": f"a {value}"}}}
    )
    with pytest.raises(SpecError) as caught:
        resolve(experiment, SCHEME)
    assert str(caught.value).startswith(f"process 'app': env.URL: {value} ")
    assert message in str(caught.value)
    assert caught.value.path == ("processes", "app", "env", "URL")
    (finding,) = check_experiment(experiment)
    assert finding.processes == ("app",)
    # A copy in which the lint rules look for other errors does not have this error.
    resolve(repaired(without_reported_errors(experiment)), SCHEME)


def test_a_service_without_replicas_has_only_the_field_addrs() -> None:
    processes = {"pool": {**POOL, "replicas": 0}, "app": {"command": ["c", "<${pool.addrs}>"]}}
    assert planned(loaded(processes), "app").command == ("c", "<>")
    processes["app"] = {"command": ["c", "${pool.addr}"]}
    with pytest.raises(SpecError, match="has no value, because service 'pool' has no replicas"):
        resolve(loaded(processes), SCHEME)


def test_an_address_in_another_setting_of_a_file_with_parameters_is_an_error() -> None:
    with pytest.raises(SpecError, match=r"not replaced here: an address can be used in env, comm"):
        loaded({"redis": {**REDIS, "container_image": "x:${redis.port}"}}, parameters={"x": 1})


def test_a_subset_contains_the_processes_whose_addresses_the_values_contain() -> None:
    app = {"command": ["c", "${redis.addr}"]}
    experiment = loaded({"redis": REDIS, "app": app, "other": {"command": "c"}})
    assert [process.name for process in experiment.subset(["app"]).list_all_processes()] == [
        "redis",
        "app",
    ]
    experiment.set_envs({"R": "${redis.addr}"})
    assert len(experiment.subset(["other"]).list_all_processes()) == 2


def test_escaped_text_is_replaced_by_itself() -> None:
    text = "${a.b} $${a.b} $$${c-d.0.e} ${HOME} ${a.}"
    assert replace_references(escape(text), lambda _: "") == text


# --- variables that no shell expands ---


def warnings(processes: dict[str, Any], **options: Any) -> list[str]:
    experiment = loaded({"redis": REDIS, "pool": POOL, **processes}, **options)
    return [finding.message for finding in check_unexpanded_variables(experiment)]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("$SYMPH_REDIS_ADDR", "write ${redis.addr}"),
        ("a=${SYMPH_REDIS_BIND_HOST}", "write ${redis.bind_host}"),
        ("${SYMPH_REDIS_PORT:-1}", "write ${redis.port}"),
        ("$(SYMPH_REDIS_ADDR)", "write ${redis.addr}"),
        ("$SYMPH_POOL_1_ADDR", "write ${pool.1.addr}"),
        ("$SYMPH_POOL_ADDRS", "write ${pool.addrs}"),
        ("$SYMPH_REDS_ADDR", "did you mean 'SYMPH_REDIS_ADDR'"),
        ("$SYMPH_RAY_ID", "no service has this variable; write ${service.addr}"),
        ("${REGION}", "declare it, as in parameters: {REGION: value}"),
        ("${index}", "replaced only in a process or a group with replicas"),
    ],
)
def test_a_variable_that_no_shell_expands_is_reported(text: str, hint: str) -> None:
    (message,) = warnings({"app": {"command": ["c", text]}})
    assert message.startswith("command contains the variable ")
    assert hint in message
    (message,) = warnings({"app": {"command": "c", "env": {"A": text}}})
    assert message.startswith("env.A contains the variable ")
    assert hint in message
    assert warnings({"app": {"cmd": f"echo {text}"}}) == []
    assert warnings({"app": {"command": ["/bin/sh", "-ec", f"echo {text}"]}}) == []
    assert warnings({"app": {"command": "bash", "args": ["-lc", f"echo {text}"]}}) == []
    assert warnings({"app": {"command": ["envsubst", text]}}) == []
    # The argument after the script is not expanded.
    assert len(warnings({"app": {"command": ["sh", "-c", "x", text]}})) == 1


def test_escaped_variables_and_those_of_the_system_are_not_reported() -> None:
    assert warnings({"app": {"command": ["c", "$HOME", "$$SYMPH_REDIS_ADDR", "$${REGION}"]}}) == []
    literal = {"app": {"command": ["c", "$${REGION}"]}}
    assert warnings(literal, parameters={}) == []


def test_a_variable_in_python_is_reported_only_if_symphony_sets_it() -> None:
    experiment = Experiment("e")
    experiment.new_process("p", command=["c", "${REGION}", "$SYMPHONY_ROLE"])
    (finding,) = check_unexpanded_variables(experiment)
    assert "the variable SYMPHONY_ROLE" in finding.message
    assert "write the command as cmd" in finding.message


# --- numbers that are composed with references ---


def test_a_port_can_be_composed_with_a_parameter_or_an_index() -> None:
    described = {"p": {"command": "c", "binds": {"a": "71${x}${index}"}, "replicas": 2}}
    experiment = loaded(described, parameters={"x": 1})
    assert [process.settings.binds for process in experiment.list_all_processes()] == [
        {"a": 7110},
        {"a": 7111},
    ]


def test_composed_text_remains_text(tmp_path: Path) -> None:
    data = {
        "name": "e",
        "parameters": {"x": 1},
        "processes": {
            "p": {
                "command": ["1${x}", "1.${x}0", "${index}"],
                "env": {"A": "1.${index}0"},
                "volumes": [{"pvc": {"claim": "0${x}", "mount_path": "/m"}}],
                "pod_yml": {"metadata": {"annotations": {"a": "1${x}", "b": "1${index}"}}},
                "replicas": 1,
            }
        },
    }
    path = tmp_path / "e.json"
    path.write_text(json.dumps(data))
    (process,) = Experiment.load_file(path).list_all_processes()
    assert process.command == ["11", "1.10", "0"]
    assert process.settings.env == {"A": "1.00"}
    assert process.settings.volumes == [{"pvc": {"claim": "01", "mount_path": "/m"}}]
    assert process.settings.pod_yml == {"metadata": {"annotations": {"a": "11", "b": "10"}}}
