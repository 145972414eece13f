"""Files: what is written there is taken as it is written, and what is wrong is told with its line and column."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, NotFound, SpecError


def load(tmp_path: Path, text: str | bytes, name: str = "e.yml") -> Experiment:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Experiment.load_file(path)


def refusal(tmp_path: Path, text: str | bytes, name: str = "e.yml") -> str:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text, name)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message.replace(f"{tmp_path}/", "")


HEAD = "name: e\nprocesses:\n  p:\n    command: c\n"

YAML: list[tuple[str, str]] = [
    # not YAML
    ("name: [", "e.yml:1:8: not YAML: while parsing a flow node"),
    ("name: e\n  b: c\n", "e.yml:2:4: not YAML: mapping values are not allowed here"),
    ("name: 'e\n", "e.yml:2:1: not YAML: while scanning a quoted scalar, found unexpected end of stream"),
    ("a: &x [*x]\n", "e.yml:1:4: nested more than 100 deep, or an alias that contains itself"),
    ("a: *x\n", "e.yml:1:4: not YAML: found undefined alias 'x'"),
    ("name: e\n---\nname: f\n", "e.yml:2:1: not YAML: expected a single document"),
    ("port_range: !!python/object:os.system e\n", "e.yml:1:13: not YAML: could not determine a constructor"),
    ("\tname: e\n", "e.yml:1:1: not YAML: while scanning for the next token, found character '\\t'"),
    ("name: \x01\n", "e.yml: not YAML: unacceptable character #x0001"),
    # the same key twice
    ("name: e\nname: f\n", "e.yml:2:1: not YAML: the key 'name' stands twice"),
    (HEAD + "    command: d\n", "e.yml:5:5: not YAML: the key 'command' stands twice"),
    (HEAD + "  p:\n    command: d\n", "e.yml:5:3: not YAML: the key 'p' stands twice"),
    (HEAD + "    env: {A: 1, 'A': 2}\n", "e.yml:5:17: not YAML: the key 'A' stands twice"),
    # keys that are no text, as templates that were not filled in have them
    ("name: e\nprocesses:\n  {{ proc }}:\n    command: c\n",
     "e.yml:3:3: a key is text, not a mapping; quote '{{ ... }}'"),
    ("name: {{ name }}\n", "e.yml:1:8: a key is text, not a mapping; quote '{{ ... }}'"),
    (HEAD + "    env: {{ e }}\n", "e.yml:5:11: a key is text, not a mapping"),
    (HEAD + "    env: {? [a] : b}\n", "e.yml:5:13: a key is text, not a list"),
    (HEAD + "    env: {<<: {? [a] : b}}\n", "e.yml:5:18: a key is text, not a list"),
    # nobody writes so many levels
    ("[" * 5000 + "]" * 5000, "e.yml: nested more than 100 deep"),
    ("name: " + "[" * 120 + "]" * 120, "e.yml:1:107: nested more than 100 deep"),
    # no experiment
    ("", "e.yml: the file is empty; an experiment begins with name: and processes:"),
    ("# nothing\n", "e.yml: the file is empty"),
    ("e\n", "e.yml:1:1: an experiment is a mapping, not 'e'"),
    ("- e\n", "e.yml:1:1: an experiment is a mapping, not ['e']"),
    ("processes: {}\n", "e.yml:1:1: an experiment needs a name; for example name: my-experiment"),
    # what is wrong, and where
    ("name: My_exp\n", "e.yml:1:1: name: experiment name 'My_exp' is not valid"),
    ("name: e\nport_range: [7000, 70000]\n", "e.yml:2:1: port_range: an end of port_range is 70000"),
    ("name: e\nprocesess: {}\n", "e.yml:2:1: procesess: an experiment knows no 'procesess'; did you mean 'processes'?"),
    ("name: e\nsecrets:\n  a/b: c\n", "e.yml:3:3: secrets.a/b: secrets: 'a/b' is no plain file name"),
    ("name: e\nenv:\n  A: 1\n  1B: 2\n", "e.yml:4:3: env.1B: variable name '1B' is not valid"),
    ("name: e\nprocesses:\n  p:\n    comand: c\n",
     "e.yml:4:5: processes.p.comand: process 'p' knows no 'comand'; did you mean 'command' or 'cmd' or 'cmds'?"),
    ("name: e\nprocesses:\n  P: {command: c}\n", "e.yml:3:3: processes.P: process name 'P' is not valid"),
    ("name: e\nprocesses: [p]\n", "e.yml:2:1: processes: processes is a mapping, not ['p']"),
    ("name: e\nprocesses:\n  p: c\n", "e.yml:3:3: processes.p: process 'p' is a mapping, not 'c'"),
    ("name: e\nimages: [rl]\n", "e.yml:2:1: images: images is a mapping, not ['rl']"),
    ("name: e\nimages:\n  rl:1: {}\n", "e.yml:3:3: images.rl:1: repository 'rl:1' has a tag or digest, which is said"),
    ("name: e\nimages:\n  Rl: {}\n", "e.yml:3:3: images.Rl: repository 'Rl' is not valid: [registry[:port]/]name"),
    ("name: e\nimages:\n  rl: {docker_file: D}\n",
     "e.yml:3:8: images.rl.docker_file: image 'rl' knows no 'docker_file'; did you mean 'dockerfile'?"),
    ("name: e\nimages:\n  rl:\n    context_directories:\n      - {name: a, path: x}\n      - {name: a, path: y}\n",
     "e.yml:6:9: images.rl.context_directories.1: two context entries are named 'a': x and y; name one of them"),
    ("name: e\nimages:\n  rl:\n    context_directories:\n      - name: ../a\n        path: x\n",
     "e.yml:5:9: images.rl.context_directories.0.name: context entry '../a' is no plain name: it lies at the top of"),
    ("name: e\nimages:\n  rl:\n    context_directories: [{name: a}]\n",
     "e.yml:4:27: images.rl.context_directories.0: a context entry needs a path"),
    ("name: e\nimage: {}\n", "e.yml:2:1: image: an experiment knows no 'image'; did you mean 'images'"),
    (HEAD + "    cmd: d\n", "e.yml:5:5: processes.p.cmd: process 'p' has cmd and command"),
    (HEAD + "    env:\n      A:\n", "e.yml:6:7: processes.p.env.A: variable 'A' is text, not None"),
    (HEAD + "    binds: {s: 0}\n", "e.yml:5:5: processes.p.binds: the port of 's' is 0; ports go from 1 to 65535"),
    (HEAD + "    binds: {s: yes}\n", "the port of 's' is a number from 1 to 65535, not True"),
    (HEAD + "    resource_limit:\n      gpus: 1\n",
     "e.yml:6:7: processes.p.resource_limit.gpus: resource_limit knows no 'gpus'; did you mean 'gpu'?"),
    (HEAD + "    ready:\n      tcp: s\n      http: [s, /]\n", "e.yml:5:5: processes.p.ready: ready takes one of tcp"),
    (HEAD + "    restart_policy: never\n", "not 'never'; did you mean 'Never'?"),
    (HEAD + "    volumes:\n      - pvc: {claim: c, mount_path: /m}\n      - nsf: {server: s}\n",
     "e.yml:7:9: processes.p.volumes.1.nsf: volumes knows no 'nsf'; did you mean 'nfs'?"),
    (HEAD + "    volumes:\n      - nfs: {server: s}\n",
     "e.yml:6:9: processes.p.volumes.0.nfs: mount_nfs: missing 2 required positional arguments: 'path' and 'mount_"),
    (HEAD + "    volumes: {}\n", "e.yml:5:5: processes.p.volumes: volumes is a list, not {}"),
    (HEAD + "    tolerations:\n      - effect: NoSchedule\n", "e.yml:6:9: processes.p.tolerations.0: a toleration"),
    (HEAD + "    node_selector: {a b: c}\n", "e.yml:5:21: processes.p.node_selector.a b: label key 'a b' is not valid"),
    (HEAD + "    starts_after: {q: done}\n", "e.yml:5:20: processes.p.starts_after.q: the condition of"),
    (HEAD + "    job: {tries: 3}\n", "e.yml:5:11: processes.p.job.tries: job knows no 'tries'"),
    (HEAD + "    pod_yml: []\n", "e.yml:5:5: processes.p.pod_yml: pod_yml is a mapping, not []"),
    ("name: e\nprocesses:\n  g:\n    command: c\n    processes: {}\n",
     "e.yml:4:5: processes.g.command: group 'g' knows no 'command'"),
    ("name: e\nprocesses:\n  g:\n    processes:\n      p: {restart_policy: Always}\n",
     "e.yml:5:7: processes.g.processes.p: process 'p' has settings that belong to the whole group: restart_policy"),
    ("name: e\nprocesses:\n  p: {}\n  g:\n    processes:\n      p: {}\n",
     "e.yml:4:3: processes.g: experiment 'e' has a process 'p' already"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), YAML, ids=lambda text: ascii(text)[:80])
def test_a_wrong_yaml_file_is_told_with_line_and_column(
    tmp_path: Path, text: str, message: str
) -> None:
    assert message in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "e.json:1:1: not JSON: Expecting value"),
        ('{"name": "e",\n}', "e.json:"),
        ('{\n  "name": e}', "e.json:2:11: not JSON: Expecting value"),
        ('{"name": "e", "name": "f"}', "e.json: a key stands twice: 'name'"),
        (
            '{"name": "e", "processes": {"p": {}, "q": {"env": {"A": "1", "A": "2"}}}}',
            "a key stands twice: 'A'",
        ),
        ("[]", "e.json: an experiment is a mapping, not []"),
        ("null", "e.json: an experiment is a mapping, not None"),
        (
            '{"name": "e", "processes": {"p": {"comand": "c"}}}',
            "e.json: processes.p.comand: process 'p' knows no",
        ),
        ('{"name": "e", "env": {"A": true}}', "e.json: env.A: variable 'A' is text, not True"),
        ('{"name": "e", "env": {"A": "\\ud800"}}', "variable 'A' is not valid Unicode"),
        ('{"name": "e", "env": {"A": "\\u0000"}}', "variable 'A' holds a NUL character"),
        ("[" * 100_000 + "]" * 100_000, "e.json: nested more than 100 deep"),
        (
            f'{{"name": "e", "processes": {{"p": {{"pod_yml": {"[" * 900 + "]" * 900}}}}}}}',
            "e.json: nested more than 100",
        ),
    ],
    ids=lambda text: ascii(text)[:60],
)
def test_a_wrong_json_file_is_told(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(tmp_path, text, "e.json")


def test_the_path_of_an_error_leads_to_the_wrong_place(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, HEAD + "    env: {A: 1, 2B: 3}\n")
    assert caught.value.path == ("processes", "p", "env", "2B")


def test_a_file_may_have_a_hundred_levels(tmp_path: Path) -> None:
    deep = "{a: " * 95 + "1" + "}" * 95
    assert load(tmp_path, HEAD + f"    pod_yml: {deep}\n")
    deep = '{"a": ' * 95 + "1" + "}" * 95
    assert load(
        tmp_path,
        f'{{"name": "e", "processes": {{"p": {{"command": "c", "pod_yml": {deep}}}}}}}',
        "e.json",
    )


def test_a_file_that_is_not_there_is_told_with_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").touch()
    (tmp_path / "a.yml").touch()
    with pytest.raises(NotFound, match=r"x\.yml: no such file; beside it: a\.yml, b\.yaml$"):
        Experiment.load_file(tmp_path / "x.yml")
    with pytest.raises(NotFound, match=r"no such file$"):
        Experiment.load_file(tmp_path / "no" / "x.yml")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    assert "e.toml: an experiment's file ends in .yml, .yaml or .json, not '.toml'" in refusal(
        tmp_path, "", "e.toml"
    )
    assert "not 'nothing'" in refusal(tmp_path, "", "e")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.yml").mkdir()
    with pytest.raises(SpecError, match=r"folder\.yml: cannot be read: Is a directory"):
        Experiment.load_file(tmp_path / "folder.yml")
    assert "e.yml: not UTF-8 text (byte 6); save it as UTF-8" in refusal(tmp_path, b"name: \xff")


# --- what is written is what is taken ---

PLAIN = [
    "yes",
    "no",
    "on",
    "null-ish",
    "010",
    "0x10",
    "1_000",
    "1e3",
    "1:30",
    "2024-01-01",
    "1.10",
    "~x",
    "true",
    "=",
    "<<",
]


@pytest.mark.parametrize("text", PLAIN)
def test_an_unquoted_scalar_stays_as_it_is_written(tmp_path: Path, text: str) -> None:
    experiment = load(
        tmp_path,
        f"name: e\nenv: {{A: {text}}}\npreamble_cmds: [{text}]\nprocesses:\n  p:\n    command: {text}\n"
        f"    args: [{text}, a]\n    env:\n      A: {text}\n    labels: {{a: a}}\n"
        f"    tolerations: [{{key: k, value: {text}}}]\n  q: {{cmd: {text}}}\n",
    )
    process = experiment.get_process("p")
    assert process.command == [text]
    assert process.args == [text, "a"]
    assert process.settings.env == experiment.env == {"A": text}
    assert process.settings.tolerations == [{"key": "k", "value": text}]
    assert experiment.preamble_cmds == experiment.get_process("q").cmds == [text]


def test_a_number_where_a_number_is_meant_is_one(tmp_path: Path) -> None:
    experiment = load(
        tmp_path,
        HEAD
        + "    binds: {name: 7000, env: 7001, log: 7002}\n    resource_limit: {cpu: 0.5, gpu: 2}\n"
        "    termination_grace_period: 5\n    job: {ttl: 10}\n    pod_yml: {env: 010, value: yes}\n"
        "    starts_after: {log: started}\n",
    )
    settings = experiment.get_process("p").settings
    assert settings.binds == {"name": 7000, "env": 7001, "log": 7002}
    assert settings.resource_limit == {"cpu": "0.5", "gpu": 2}
    assert settings.termination_grace_period == 5
    assert settings.pod_yml == {"env": 8, "value": True}


def test_images_are_named_and_described_as_it_is_written(tmp_path: Path) -> None:
    experiment = load(
        tmp_path,
        "name: e\nimages:\n  env:\n    dockerfile: 010\n    build_options: [yes]\n"
        "    context_directories: [{name: 1e3, path: 0x10, force_update: true}]\n  127.0.0.1:5000/rl:\n"
        + HEAD[8:],
    )
    env, other = experiment.list_images()
    assert env.dump() == {
        "dockerfile": "010",
        "context_directories": [{"name": "1e3", "path": "0x10", "force_update": True}],
        "build_options": ["yes"],
    }
    assert (other.repository, other.dump()) == ("127.0.0.1:5000/rl", {"dockerfile": "Dockerfile"})
    with pytest.raises(SpecError, match="'e' builds the image 'env' already; it is built once"):
        experiment.build_image("env")


@pytest.mark.parametrize("name", ["processes", "env", "binds", "y"])
def test_a_name_changes_nothing_about_what_stands_below_it(tmp_path: Path, name: str) -> None:
    settings = "args: [010], env: {pod_yml: 010, processes: yes}, binds: {a: 10}"
    process = load(tmp_path, f"name: {name}\nprocesses:\n  {name}: {{{settings}}}\n").get_process(
        name
    )
    assert process.args == ["010"]
    assert process.settings.env == {"pod_yml": "010", "processes": "yes"}
    assert process.settings.binds == {"a": 10}


def test_anchors_and_merges_are_taken(tmp_path: Path) -> None:
    text = (
        "name: e\nprocesses:\n  a: &base\n    command: c\n    env: &env {A: 010, B: 2}\n"
        "  b:\n    <<: *base\n    env: {<<: *env, B: 3}\n"
    )
    process = load(tmp_path, text).get_process("b")
    assert process.command == ["c"]
    assert process.settings.env == {"A": "010", "B": "3"}


def test_relative_paths_begin_at_the_file(tmp_path: Path) -> None:
    assert load(tmp_path, "name: e\n").base_dir == tmp_path
    assert Experiment.load_dict({"name": "e"}).base_dir is None


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a", {"a": "ready"}),
        (["a", "b"], {"a": "ready", "b": "ready"}),
        ({"a": "started"}, {"a": "started"}),
    ],
)
def test_the_forms_of_starts_after(value: Any, kept: dict[str, str]) -> None:
    data = {"name": "e", "processes": {"p": {"starts_after": value}}}
    assert Experiment.load_dict(data).get_process("p").settings.starts_after == kept


@pytest.mark.parametrize(
    ("value", "kept"), [(True, {}), (False, None), ({}, {}), ({"ttl": 1}, {"ttl": 1})]
)
def test_the_forms_of_job(value: Any, kept: dict[str, int] | None) -> None:
    data = {"name": "e", "processes": {"p": {"job": value}}}
    assert Experiment.load_dict(data).get_process("p").settings.job == kept


def test_loading_leaves_what_it_is_given_alone() -> None:
    data = {
        "name": "e",
        "processes": {"g": {"env": {"A": "1"}, "processes": {"p": {"command": ["c"]}}}},
    }
    copy = {
        "name": "e",
        "processes": {"g": {"env": {"A": "1"}, "processes": {"p": {"command": ["c"]}}}},
    }
    experiment = Experiment.load_dict(data)
    experiment.get_process("p").set_env("B", "2")
    experiment.get_process_group("g").set_env("A", "2")
    assert data == copy


def test_a_dump_is_a_copy() -> None:
    experiment = Experiment("e", secrets="token", env={"A": "1"}, preamble_cmds="a")
    experiment.new_process("p", command="c", args="d", preamble_cmds="e")
    experiment.new_process("q", cmds="c")
    experiment.new_process_group("g", preamble_cmds="f").new_process("r", command="c")
    before = copy.deepcopy(experiment.dump_dict())
    dumped = experiment.dump_dict()
    dumped["secrets"]["x"] = dumped["env"]["B"] = "y"
    processes = dumped["processes"]
    shared = [dumped["preamble_cmds"], processes["g"]["preamble_cmds"], processes["q"]["cmds"]]
    for item in [*shared, *(processes["p"][key] for key in ("command", "args", "preamble_cmds"))]:
        item.append("x")
    assert experiment.dump_dict() == before


def test_a_date_in_a_raw_setting_survives_json(tmp_path: Path) -> None:
    experiment = load(tmp_path, HEAD + "    pod_yml: {a: 2024-01-01}\n")
    experiment.dump_file(tmp_path / "again.json")
    assert Experiment.load_file(tmp_path / "again.json").get_process("p").settings.pod_yml == {
        "a": "2024-01-01"
    }


@pytest.mark.parametrize("line", ["preamble_cmds: ['']", "start_dir: ''"])
def test_a_wrong_folder_or_preamble_is_told_with_its_line(tmp_path: Path, line: str) -> None:
    assert "e.yml:2:1: " in refusal(tmp_path, f"name: e\n{line}\n")
    assert "e.yml:4:5: " in refusal(
        tmp_path, f"name: e\nprocesses:\n  g:\n    {line}\n    processes: {{}}\n"
    )


@pytest.mark.parametrize(
    "wrong",
    [{"processes": []}, {"env": []}, {"env": False}, {"processes": {"g": {"processes": 0}}}],
)
def test_an_empty_value_of_the_wrong_kind_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        Experiment.load_dict({"name": "e", **wrong})
