"""Parameters and counts of a file: the replacement of references, and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from symphony import Experiment, SpecError
from symphony.model.document import schema
from symphony.plan.resolve import resolve
from tests.unit.strategies import SCHEME

VALIDATOR = jsonschema.Draft202012Validator(schema.build())


def load(tmp_path: Path, text: str, name: str = "e.yml", **parameters: object) -> Experiment:
    path = tmp_path / name
    path.write_text(text)
    return Experiment.load_file(path, parameters=parameters)


def error_message(tmp_path: Path, text: str, name: str = "e.yml", **parameters: object) -> str:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text, name, **parameters)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message.replace(f"{tmp_path}/", "")


def names(experiment: Experiment) -> list[str]:
    return [process.path for process in experiment.list_all_processes()]


# --- the values of parameters ---


def arg(experiment: Experiment) -> list[str] | None:
    return experiment.get_process("p").args


ONE = (
    "name: e\nparameters: {x: file}\n"
    "processes:\n  p: {command: c, args: ['${x}', 'a-${x}-${x:-z}']}\n"
)


def test_a_given_value_takes_precedence_over_the_environment_and_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("x", raising=False)
    assert arg(load(tmp_path, ONE)) == ["file", "a-file-file"]
    monkeypatch.setenv("x", "variable")
    assert arg(load(tmp_path, ONE)) == ["variable", "a-variable-variable"]
    assert arg(load(tmp_path, ONE, x="given")) == ["given", "a-given-given"]
    assert arg(load(tmp_path, ONE, x="")) == ["", "a--z"]


@pytest.mark.parametrize(
    ("declared", "reference", "value"),
    [
        ("null", "${no_such:-d}", "d"),
        ("null", "${no_such:-}", ""),
        ("''", "${no_such:-d}", "d"),
        ("''", "${no_such}", ""),
        ("a", "${no_such:-d}", "a"),
        ("010", "${no_such}", "010"),
        ("yes", "${no_such}", "yes"),
        ("1.10", "v${no_such}", "v1.10"),
        ("a", "$${no_such}", "${no_such}"),
        ("a", "$$${no_such}", "$a"),
        ("a", "$$$${no_such}", "$${no_such}"),
        ("a", "$no_such $$ $HOME $", "$no_such $$ $HOME $"),
        ("'${other}'", "${no_such}", "${other}"),
        ("a", "$${anything at all}", "${anything at all}"),
        ("a", "${SYMPH_DB_ADDR}${SYMPHONY_ROLE:-x}", "${SYMPH_DB_ADDR}${SYMPHONY_ROLE:-x}"),
    ],
)
def test_references_are_replaced(tmp_path: Path, declared: str, reference: str, value: str) -> None:
    text = (
        f"name: e\nparameters: {{no_such: {declared}}}\n"
        f"processes:\n  p: {{command: c, args: ['{reference}']}}\n"
    )
    assert arg(load(tmp_path, text)) == [value]


def test_a_file_without_parameters_is_not_changed(tmp_path: Path) -> None:
    text = "${HOME} ${x:-y} $${z} ${"
    experiment = load(tmp_path, f"name: e\nprocesses:\n  p: {{command: c, args: ['{text}']}}\n")
    assert arg(experiment) == [text]
    experiment.dump_file(tmp_path / "again.yml")
    assert arg(Experiment.load_file(tmp_path / "again.yml")) == [text]


SHELL = "echo ${x} ${HOME} ${x%.*} $${x} $${HOME} ${SYMPH_S_PORT:?} $x $$ ${"


@pytest.mark.parametrize("key", ["cmd", "cmds", "preamble_cmds"])
def test_other_names_in_shell_lines_belong_to_the_shell(tmp_path: Path, key: str) -> None:
    line = [SHELL] if key != "cmd" else SHELL
    rest = {"command": "c"} if key == "preamble_cmds" else {}
    data = {"name": "e", "parameters": {"x": 8}, "processes": {"p": {key: line, **rest}}}
    process = load(tmp_path, json.dumps(data), "e.json").get_process("p")
    lines = process.preamble_cmds if key == "preamble_cmds" else process.cmds
    assert lines == ["echo 8 ${HOME} ${x%.*} ${x} $${HOME} ${SYMPH_S_PORT:?} $x $$ ${"]


@pytest.mark.parametrize("suffix", [".yml", ".json"])
def test_a_value_is_a_number_or_text_depending_on_the_setting(tmp_path: Path, suffix: str) -> None:
    data: dict[str, Any] = {
        "name": "e-${n}",
        "parameters": {
            "n": None,
            "flag": True,
            "amount": "4Gi",
            "policy": "Always",
            "seconds": 0.5,
        },
        "port_range": ["${n}", 9000],
        "env": {"N_${n}": "${n}", "FLAG": "${flag}"},
        "processes": {
            "p-${n}": {
                "container_image": "rl:${n}",
                "command": ["c", "${n}"],
                "binds": {"s-${n}": "${n}"},
                "resource_limit": {"gpu": "${n}", "memory": "${amount}"},
                "restart_policy": "${policy}",
                "ready": {"log": "${n}", "timeout": "${seconds}"},
                "volumes": [{"pvc": {"claim": "${n}", "mount_path": "/m", "read_only": "${flag}"}}],
                "labels": {"n": "${n}"},
                "pod_yml": {"spec": {"priority": "${n}", "text": "n${n}", "flag": "${flag}"}},
            }
        },
    }
    VALIDATOR.validate(data)
    experiment = load(tmp_path, json.dumps(data), f"e{suffix}", n="1234")
    process = experiment.get_process("p-1234")
    settings = process.settings
    assert (experiment.name, experiment.port_range, process.container_image) == (
        "e-1234",
        (1234, 9000),
        "rl:1234",
    )
    assert experiment.env == {"N_1234": "1234", "FLAG": "true"}
    assert process.command == ["c", "1234"]
    assert settings.binds == {"s-1234": 1234}
    assert settings.resource_limit == {"gpu": 1234, "memory": "4Gi"}
    assert (settings.restart_policy, settings.ready) == ("Always", {"log": "1234", "timeout": 0.5})
    assert settings.volumes == [{"pvc": {"claim": "1234", "mount_path": "/m", "read_only": True}}]
    assert settings.labels == {"n": "1234"}
    assert settings.pod_yml == {"spec": {"priority": 1234, "text": "n1234", "flag": True}}


def test_values_in_python_may_be_numbers() -> None:
    data = {
        "name": "e",
        "parameters": {"n": 1},
        "processes": {"p": {"count": "${n}", "command": "c"}},
    }
    assert names(Experiment.load_dict(data, parameters={"n": 2})) == ["p-0", "p-1"]
    assert data["parameters"] == {"n": 1}


HEAD = "name: e\nparameters: {agents: 8, must: null}\nprocesses:\n  p:\n    command: c\n"


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        (HEAD, {"agnets": 4}, "e.yml:2:1: parameters.agnets: there is no parameter 'agnets'; did"),
        (
            "name: e\n",
            {"n": 4},
            "e.yml:1:1: the file declares no parameters, so n cannot be set; declare them",
        ),
        (
            HEAD + "    args: [a, 'x${agnets}']\n",
            {},
            "e.yml:6:15: processes.p.args.1: there is no parameter 'agnets'; did you mean 'agents'",
        ),
        (HEAD + "    args: ['${zzz:-3}']\n", {}, "there is no parameter 'zzz'; parameters: agents"),
        (
            HEAD + "    env:\n      A: ${must}\n",
            {},
            "e.yml:7:7: processes.p.env.A: parameter 'must' has no value; give --set must=...",
        ),
        (HEAD + "    binds: {s: '${agents}x'}\n", {}, "e.yml:6:5: processes.p.binds: the port of"),
        (HEAD + "    restart_policy: ${agents}\n", {}, "e.yml:6:5: processes.p.restart_policy: re"),
        (HEAD + "    args: ['${agents']\n", {}, "'${agents' is not a reference: write ${name} or"),
        (HEAD + "    args: ['${#a}']\n", {}, "'${#a}' is not a reference"),
        (HEAD + "    args: ['${agents:-${must}}']\n", {}, "'${agents:-${must}' is not a reference"),
        (HEAD + "    args: ['${index}']\n", {}, "${index} can be used only in a process or a grou"),
        (HEAD + "    env: {count: 1, A: '${index}'}\n", {}, "${index} can be used only in a proce"),
        (HEAD + "    env: {A8: x, 'A${agents}': y}\n", {}, "processes.p.env.A${agents}: the key '"),
        ("name: e\nparameters: [a]\n", {}, "e.yml:2:1: parameters: parameters must be a mapping,"),
        ("name: e\nparameters:\n  a: [1]\n", {}, "e.yml:3:3: parameters.a: parameter 'a' must be"),
        ("name: e\nparameters:\n  a-b: 1\n", {}, "e.yml:3:3: parameters.a-b: parameter name 'a-b'"),
        ("name: e\nparameters:\n  index: 1\n", {}, "'index' cannot be a parameter, because sympho"),
        ("name: e\nparameters:\n  SYMPH_X: 1\n", {}, "'SYMPH_X' cannot be a parameter"),
    ],
)
def test_errors_have_a_position(
    tmp_path: Path, text: str, given: dict[str, object], message: str
) -> None:
    assert message in error_message(tmp_path, text, **given)


# --- counts ---


def described(**processes: Any) -> Experiment:
    data = {"name": "e", "processes": processes}
    VALIDATOR.validate(data)
    return Experiment.load_dict(data)


def test_a_count_creates_copies_of_a_process() -> None:
    experiment = described(
        agent={
            "count": 3,
            "command": ["a", "${index}", "--of=${index}", "$${index}", "${group_index}", "${x}"],
            "binds": {"replay-${index}": None},
            "env": {"RANK": "${index}", "R${index}": "x"},
            "cmd": None,
        }
    )
    assert names(experiment) == ["agent-0", "agent-1", "agent-2"]
    last = experiment.get_process("agent-2")
    assert last.command == ["a", "2", "--of=2", "${index}", "${group_index}", "${x}"]
    assert last.settings.binds == {"replay-2": None}
    assert last.settings.env == {"RANK": "2", "R2": "x"}


def test_groups_and_their_members_may_have_counts() -> None:
    member = {"command": ["c", "${index}", "${group_index}"]}
    experiment = described(
        lone={"processes": {"w": {"count": 2, **member}}},
        crew={
            "count": 2,
            "labels": {"n": "${index}"},
            "processes": {"w-crew": {"count": 2, **member}, "v": member},
        },
    )
    assert names(experiment) == [
        "lone/w-0",
        "lone/w-1",
        "crew-0/w-crew-0-0",
        "crew-0/w-crew-0-1",
        "crew-0/v-0",
        "crew-1/w-crew-1-0",
        "crew-1/w-crew-1-1",
        "crew-1/v-1",
    ]
    commands = {process.name: process.command for process in experiment.list_all_processes()}
    assert commands["w-1"] == ["c", "1", "${group_index}"]
    assert commands["w-crew-1-0"] == ["c", "0", "1"]
    assert commands["v-1"] == ["c", "1", "1"]
    assert experiment.get_process_group("crew-1").settings.labels == {"n": "1"}


@pytest.mark.parametrize(("count", "made"), [(0, []), (1, ["p-0"]), (None, ["p"])])
def test_small_counts(count: int | None, made: list[str]) -> None:
    assert names(described(p={"count": count, "command": "c"})) == made
    assert names(described(p={"replicas": count, "count": None, "command": "c"})) == made


@pytest.mark.parametrize(
    ("after", "waits"),
    [
        ("agent", {"agent-0": "ready", "agent-1": "ready"}),
        (["agent", "db"], {"agent-0": "ready", "agent-1": "ready", "db": "ready"}),
        (
            {"db": "started", "agent": "succeeded"},
            {"db": "started", "agent-0": "succeeded", "agent-1": "succeeded"},
        ),
        ("agent-1", {"agent-1": "ready"}),
        (["crew", "none", "db"], {"crew-0": "ready", "crew-1": "ready", "db": "ready"}),
        ({"m": "started"}, {"m-0": "started", "m-1": "started"}),
    ],
)
def test_starting_after_a_replicated_process_waits_for_all_copies(
    after: Any, waits: dict[str, str]
) -> None:
    one = {"command": "c"}
    experiment = described(
        last={"starts_after": after, **one},
        db=one,
        agent={"count": 2, **one},
        none={"count": 0, **one},
        crew={"count": 2, "processes": {"m": one}},
    )
    assert experiment.get_process("last").settings.starts_after == waits


def test_a_process_takes_precedence_over_copies_of_the_same_name() -> None:
    one = {"command": "c"}
    experiment = described(
        w=one, crew={"count": 2, "processes": {"w": one}}, last={"starts_after": "w", **one}
    )
    assert experiment.get_process("last").settings.starts_after == {"w": "ready"}


def test_a_number_with_too_many_digits_remains_text(tmp_path: Path) -> None:
    text = "name: e\nparameters: {n: 1}\nprocesses:\n  p: {command: c, count: '${n}'}\n"
    message = error_message(tmp_path, text, n="1" * 5000)
    assert message.startswith("e.yml:4:19: processes.p.count: count must be a whole number, not '1")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("count: two", "e.yml:4:5: processes.p.count: count must be a whole number, not 'two'"),
        ("count: true", "count must be a whole number, not True"),
        ("count: -1", "count must be at least 0, not -1"),
        ("count: 10001", "count must be at most 10000, not 10001"),
        ("replicas: -1", "e.yml:4:5: processes.p.replicas: replicas must be at least 0, not -1"),
        (
            "replicas: 1\n    count: 1",
            "e.yml:5:5: processes.p.count: replicas and count are the same setting",
        ),
        (
            "conut: 1",
            "e.yml:4:5: processes.p.conut: process 'p-0' has the unknown key 'conut'; did you mean",
        ),
        ("env: {1A: b}", "e.yml:4:11: processes.p.env.1A: variable name '1A' is not valid"),
    ],
)
def test_errors_in_a_count_have_a_position(tmp_path: Path, line: str, message: str) -> None:
    rest = "" if line.startswith(("count", "replicas")) else "    count: 2\n"
    assert message in error_message(
        tmp_path, f"name: e\nprocesses:\n  p:\n    {line}\n    command: c\n{rest}"
    )


def test_errors_in_a_member_of_a_group_have_a_position(tmp_path: Path) -> None:
    text = (
        "name: e\nprocesses:\n  g:\n    count: 2\n    processes:\n"
        "      p:\n        count: 2\n        comand: c\n"
    )
    assert (
        "e.yml:8:9: processes.g.processes.p.comand: process 'p-0-0' has the unknown key 'comand'"
        in error_message(tmp_path, text)
    )
    twice = "name: e\nprocesses:\n  p: {count: 2, command: c}\n  p-1: {command: c}\n"
    assert "e.yml:4:3: processes.p-1: experiment 'e' already has a process 'p-1'" in error_message(
        tmp_path, twice
    )


def test_the_schema_refuses_other_counts() -> None:
    for wrong in ("two", -1, 1.5, 10_001, True):
        data = {"name": "e", "processes": {"p": {"count": wrong}}}
        assert not VALIDATOR.is_valid(data), wrong
        with pytest.raises(SpecError):
            Experiment.load_dict(data)


# --- parameters with counts ---

BOTH = """\
name: e
parameters: {agents: 8, tag: latest}
processes:
  agent:
    count: ${agents}
    container_image: rl:${tag}
    command: [agent, "${index}", "of", "${agents}", "$${index}"]
  crew:
    count: 2
    starts_after: agent
    processes:
      w:
        cmd: echo ${index} ${agents} ${HOME} $${group_index}
"""

READER = """
import json, sys
from symphony import Experiment
from symphony.plan.resolve import resolve
from tests.unit.strategies import SCHEME
print(json.dumps(resolve(Experiment.load_file(sys.argv[1]), SCHEME).to_dict()))
"""


@pytest.mark.one_python
def test_a_dump_has_no_parameters_and_no_counts(
    tmp_path: Path,
) -> None:
    experiment = load(tmp_path, BOTH, agents="2")
    assert names(experiment) == ["agent-0", "agent-1", "crew-0/w-0", "crew-1/w-1"]
    assert experiment.get_process("agent-1").command == ["agent", "1", "of", "2", "${index}"]
    assert experiment.get_process("w-1").cmds == ["echo 1 2 ${HOME} ${group_index}"]
    experiment.dump_file(tmp_path / "dumped.yml")
    done = subprocess.run(
        [sys.executable, "-c", READER, tmp_path / "dumped.yml"],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "agents": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    plan = {**resolve(experiment, SCHEME).to_dict(), "parameters": {}}
    assert json.loads(done.stdout) == json.loads(json.dumps(plan))
