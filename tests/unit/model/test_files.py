"""Experiment files: how values are read, and the position of errors."""

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


def error_message(tmp_path: Path, text: str | bytes, name: str = "e.yml") -> str:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text, name)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message.replace(f"{tmp_path}/", "")


def _alias_bomb(collection: str) -> str:
    """Return YAML in which each line contains the previous line nine times."""
    lines = ["a: &a {x: 1}"]
    for previous, name in zip("abcdefgh", "bcdefghi", strict=False):
        aliases = ",".join([f"*{previous}"] * 9)
        lines.append(f"{name}: &{name} {collection.format(aliases)}")
    return "\n".join(lines)


HEAD = "name: e\nprocesses:\n  p:\n    command: c\n"

YAML: list[tuple[str, str]] = [
    # text that is not YAML
    ("name: [", "e.yml:1:8: not YAML: while parsing a flow node"),
    ("name: e\n  b: c\n", "e.yml:2:4: not YAML: mapping values are not allowed here"),
    ("name: 'e\n", "e.yml:2:1: not YAML: while scanning a quoted scalar, found unexpected end"),
    ("a: &x [*x]\n", "e.yml:1:4: nested more than 100 levels deep, or an alias that contains"),
    ("a: *x\n", "e.yml:1:4: not YAML: found undefined alias 'x'"),
    ("name: e\n---\nname: f\n", "e.yml:2:1: not YAML: expected a single document"),
    ("port_range: !!python/object:os.system e\n", "e.yml:1:13: the tag tag:yaml.org,2002:python/o"),
    (HEAD + "    cmd: !reset null\n", "e.yml:5:10: the tag !reset is not supported; remove it"),
    (HEAD + "    env: !override {A: 1}\n", "e.yml:5:10: the tag !override is not supported; remov"),
    (HEAD + "    <<: [{cmd: c}, d]\n", "e.yml:5:20: not YAML: the value of << is not a mapping or"),
    (HEAD + "    <<: {cmd: c, cmd: d}\n", "e.yml:5:18: not YAML: duplicate key 'cmd'"),
    ("name: \x01\n", "e.yml: not YAML: unacceptable character #x0001"),
    # likely causes of syntax errors
    (HEAD + "\tenv: {A: b}\n", "any token; line 5 is indented with a tab; indent it with spaces"),
    (HEAD + "   env: {A: b}\n", "; line 5 is indented by 3 spaces, but the lines above it by"),
    (HEAD + "      env: {A: b}\n",
     "; line 5 is indented by 6 spaces, more than line 4, whose key has a value already; in"),
    (HEAD + "    - d\n", "; line 5 is an element of a list, but the lines above it are keys"),
    (HEAD + "    start_dir: a: b\n", "; the value of start_dir contains ': ', so it must be in"),
    (HEAD + "    tty:true\n    env: {}\n", "; a space is missing after the colon in line 5; writ"),
    (HEAD + "    tty true\n    env: {}\n", "; a colon is missing in line 5"),
    (HEAD + '    args: ["a]\n', "; the quote that begins at line 5 is not closed"),
    (HEAD + "    args: [a\n    tty: true\n", "; a ']' is missing after line 5, or a comma before"),
    (HEAD + "    args: [a, @b]\n", "; a value that begins with @ must be in quotes"),
    (HEAD + "    start_dir: *.py\n", "; a value that begins with * must be in quotes"),
    (HEAD + '    cmd: "grep \\d"\n', "; put the value in single quotes, in which a backslash ha"),
    # valid YAML with the wrong indentation
    ("name: e\nprocesses:\np:\n    command: c\n", "; if 'p' is a process, indent it below proces"),
    ("name: e\nprocesses:\n- p:\n    command: c\n", "; write 'NAME:' instead of '- NAME:'"),
    ("name: e\nprocesses:\n  p:\n  command: c\n",
     "; if command is a setting, indent it below the name of a process"),
    # duplicate keys
    ("name: e\nname: f\n", "e.yml:2:1: not YAML: duplicate key 'name'"),
    (HEAD + "    command: d\n", "e.yml:5:5: not YAML: duplicate key 'command'"),
    (HEAD + "    env: {A: 1, 'A': 2}\n", "e.yml:5:17: not YAML: duplicate key 'A'"),
    # keys that are not text, such as the placeholders of a template
    ("name: {{ name }}\n", "e.yml:1:8: a key must be text, not a mapping; put '{{ ... }}' in quot"),
    (HEAD + "    env: {? [a] : b}\n", "e.yml:5:13: a key must be text, not a list"),
    (HEAD + "    env: {<<: {? [a] : b}}\n", "e.yml:5:18: a key must be text, not a list"),
    # too many levels
    ("[" * 30_000, "e.yml:1:102: nested more than 100 levels deep"),
    ("- " * 30_000, "e.yml:1:203: nested more than 100 levels deep"),
    ("name: " + "[" * 120 + "]" * 120, "e.yml:1:107: nested more than 100 levels deep"),
    # few bytes that stand for many values
    (_alias_bomb("[{}]"), "e.yml:7:14: more than 500000 values, if each alias is replaced by its"),
    (_alias_bomb("{{<<: [{}]}}"), "more than 500000 values"),
    ("%TAG !a! b\n" * 101 + "---\nname: e\n", "e.yml: more than 100 lines begin with %"),
    # numbers, and values that do not match their tags
    ("port_range: 1" + "0" * 5000 + "\n", "e.yml:1:13: a number with more than 300 digits"),
    ("port_range: 1" + ":59" * 200 + "\n", "e.yml:1:13: a number with more than 300 digits"),
    ("port_range: !!int x\n", "e.yml:1:13: not YAML: 'x' does not match its tag"),
    ("port_range: !!bool x\n", "e.yml:1:13: not YAML: 'x' does not match its tag"),
    ("port_range: !!binary aGk=\n", "e.yml:1:13: binary data is not supported; write text"),
    # documents that are not experiments
    ("", "e.yml: the file is empty; an experiment needs name: and processes:"),
    ("# nothing\n", "e.yml: the file is empty"),
    ("- e\n", "e.yml:1:1: an experiment must be a mapping, not ['e']"),
    ("processes: {}\n", "e.yml:1:1: an experiment needs a name; for example name: my-experiment"),
    # the position of an error, for each form of a setting
    ("name: My_exp\n", "e.yml:1:1: name: experiment name 'My_exp' is not valid"),
    ("name: e\nsecrets:\n  a/b: c\n", "e.yml:3:3: secrets.a/b: secrets: 'a/b' is not a plain file"),
    ("name: e\nenv:\n  A: 1\n  1B: 2\n", "e.yml:4:3: env.1B: variable name '1B' is not valid"),
    ("name: e\nimages:\n  rl:\n    context_directories:\n"
     "      - {name: a, path: x}\n      - {name: a, path: y}\n",
     "e.yml:6:9: images.rl.context_directories.1: two context entries are named 'a': x and y; ren"),
    ("name: e\nimages:\n  rl:\n    context_directories:\n      - name: ../a\n        path: x\n",
     "e.yml:5:9: images.rl.context_directories.0.name: the name of a context entry must be a plai"),
    (HEAD + "    comand: c\n", "e.yml:5:5: processes.p.comand: process 'p' has the unknown key 'c"),
    (HEAD + "    env:\n      A:\n", "e.yml:6:7: processes.p.env.A: variable 'A' has no value; w"),
    (HEAD + "    env: [A=1, B]\n", "env must be a mapping, not ['A=1', 'B']; write {A: '1'}"),
    (HEAD + "    env: A=1\n", "env must be a mapping, not 'A=1'; write {A: '1'}"),
    (HEAD + "    env:\n    LEVEL: 1\n", "key 'LEVEL'; if LEVEL is a variable, indent it below env"),
    (HEAD + "    binds: web:80\n", "service name 'web:80' contains a port; write {web: 80}"),
    (HEAD + "    prcoesses: {a: {cmd: c}}\n", "unknown key 'prcoesses'; did you mean 'processes'?"),
    (HEAD + "    q: {cmd: c}\n", "key 'q'; if 'q' is a process, write it one level higher, below"),
    (HEAD + "    processes: {a: {cmd: c}}\n",
     "unknown key 'command'; a group runs only its members: write command on a member, below"),
    ("name: e\nprocesses:\n  p: sleep 1\n", "not 'sleep 1'; write p: {cmd: \"sleep 1\"}"),
    ("name: e\nprocesses:\n  p: [sleep, 1]\n", "not ['sleep', 1]; write p: {command: [sleep, 1]}"),
    ("name: e\nprocesses:\n  p:\n    cmd:'c'\n", "not \"cmd:'c'\"; write a space after 'cmd:'"),
    ("name: e\n---\nname: f\n", "another document; an experiment file contains one experiment"),
    (HEAD + "    volumes:\n      - pvc: {claim: c, mount_path: /m}\n      - nsf: {server: s}\n",
     "e.yml:7:9: processes.p.volumes.1.nsf: a volume has the unknown key 'nsf'; did you mean 'nfs"),
    (HEAD + "    volumes:\n      - nfs: {server: s, path: /p}\n",
     "e.yml:6:9: processes.p.volumes.0.nfs: a volume of kind nfs needs mount_path"),
    (HEAD + "    node_selector: {a b: c}\n", "e.yml:5:21: processes.p.node_selector.a b: label ke"),
    ("name: e\nprocesses:\n  g:\n    processes:\n      p: {restart_policy: Always}\n",
     "e.yml:5:7: processes.g.processes.p: process 'p' has settings that belong to its group: rest"),
    ("name: e\nprocesses:\n  p: {}\n  g:\n    processes:\n      p: {}\n",
     "e.yml:4:3: processes.g: experiment 'e' already has a process 'p'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), YAML, ids=lambda text: ascii(text)[:80])
def test_errors_in_yaml_have_a_line_and_a_column(tmp_path: Path, text: str, message: str) -> None:
    assert message in error_message(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "e.json:1:1: not JSON: Expecting value"),
        ('{\n  "name": e}', "e.json:2:11: not JSON: Expecting value"),
        ('{"name": "e", "processes": {"q": {"env": {"A": "1", "A": "2"}}}}', "duplicate key 'A'"),
        ("null", "e.json: an experiment must be a mapping, not None"),
        ('{"name": "e", "env": {"A": true}}', "e.json: env.A: variable 'A' must be text, not True"),
        ('{"name": "e", "env": {"A": "\\ud800"}}', "variable 'A' is not valid Unicode"),
        ("[" * 100_000 + "]" * 100_000, "e.json: nested more than 100 levels deep"),
        ("[" * 900 + "]" * 900, "e.json: nested more than 100 levels deep"),
        ("[" + "1" * 301 + "]", "e.json: a number with more than 300 digits"),
    ],
    ids=lambda text: ascii(text)[:60],
)
def test_errors_in_json_have_the_name_of_the_file(tmp_path: Path, text: str, message: str) -> None:
    assert message in error_message(tmp_path, text, "e.json")


def test_the_largest_number_of_a_file_is_a_float_too(tmp_path: Path) -> None:
    number = "1" * 300
    assert load(tmp_path, HEAD + f"    pod_yml: {{number: {number}}}\n")


def test_a_file_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.yml").symlink_to("/dev/zero")
    with pytest.raises(SpecError, match="e.yml: larger than 8 MiB, which is the maximum size"):
        Experiment.load_file(tmp_path / "e.yml")


def test_the_path_of_an_error_leads_to_the_value(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, HEAD + "    env: {A: 1, 2B: 3}\n")
    assert caught.value.path == ("processes", "p", "env", "2B")


def test_a_file_may_have_one_hundred_levels(tmp_path: Path) -> None:
    deep = "{a: " * 95 + "1" + "}" * 95
    assert load(tmp_path, HEAD + f"    pod_yml: {deep}\n")
    deep = '{"a": ' * 95 + "1" + "}" * 95
    assert load(
        tmp_path,
        f'{{"name": "e", "processes": {{"p": {{"command": "c", "pod_yml": {deep}}}}}}}',
        "e.json",
    )


def test_the_error_for_a_missing_file_lists_its_directory(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").touch()
    (tmp_path / "a.yml").touch()
    with pytest.raises(
        NotFound, match=r"x\.yml: no such file; files in this directory: a\.yml, b\.yaml$"
    ):
        Experiment.load_file(tmp_path / "x.yml")
    with pytest.raises(NotFound, match=r"no such file$"):
        Experiment.load_file(tmp_path / "no" / "x.yml")


def test_other_file_name_extensions_are_refused(tmp_path: Path) -> None:
    assert (
        "e.toml: the name of an experiment file must end with .yml, .yaml or .json"
        in error_message(tmp_path, "", "e.toml")
    )
    assert "not 'nothing'" in error_message(tmp_path, "", "e")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "directory.yml").mkdir()
    with pytest.raises(SpecError, match=r"directory\.yml: cannot be read: Is a directory"):
        Experiment.load_file(tmp_path / "directory.yml")
    assert "e.yml: not UTF-8 text (byte 6); save it as UTF-8" in error_message(
        tmp_path, b"name: \xff"
    )


# --- how values are read ---

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
def test_unquoted_text_is_not_converted(tmp_path: Path, text: str) -> None:
    experiment = load(
        tmp_path,
        f"name: e\nenv: {{A: {text}}}\npreamble_cmds: [{text}]\n"
        f"processes:\n  p:\n    command: {text}\n"
        f"    args: [{text}, a]\n    env:\n      A: {text}\n    labels: {{a: a}}\n"
        f"    tolerations: [{{key: k, value: {text}}}]\n  q: {{cmd: {text}}}\n",
    )
    process = experiment.get_process("p")
    assert process.command == [text]
    assert process.args == [text, "a"]
    assert process.settings.env == experiment.env == {"A": text}
    assert process.settings.tolerations == [{"key": "k", "value": text}]
    assert experiment.preamble_cmds == experiment.get_process("q").cmds == [text]


def test_numbers_are_numbers_in_other_settings(tmp_path: Path) -> None:
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


def test_the_values_of_images_are_read_as_text(tmp_path: Path) -> None:
    experiment = load(
        tmp_path,
        "name: e\nimages:\n  env:\n    dockerfile: 010\n    build_options: [yes]\n"
        "    context_directories: [{name: 1e3, path: 0x10, force_update: true}]\n"
        "  127.0.0.1:5000/rl:\n" + HEAD[8:],
    )
    env, other = experiment.list_images()
    assert env.dump() == {
        "dockerfile": "010",
        "context_directories": [{"name": "1e3", "path": "0x10", "force_update": True}],
        "build_options": ["yes"],
    }
    assert (other.repository, other.dump()) == ("127.0.0.1:5000/rl", {"dockerfile": "Dockerfile"})
    with pytest.raises(SpecError, match="'e' already builds the image 'env'"):
        experiment.build_image("env")


@pytest.mark.parametrize("name", ["processes", "env", "binds", "y"])
def test_the_name_of_a_process_does_not_affect_how_its_values_are_read(
    tmp_path: Path, name: str
) -> None:
    settings = "args: [010], env: {pod_yml: 010, processes: yes}, binds: {a: 10}"
    process = load(tmp_path, f"name: {name}\nprocesses:\n  {name}: {{{settings}}}\n").get_process(
        name
    )
    assert process.args == ["010"]
    assert process.settings.env == {"pod_yml": "010", "processes": "yes"}
    assert process.settings.binds == {"a": 10}


def test_anchors_and_merge_keys_are_supported(tmp_path: Path) -> None:
    text = (
        "name: e\nprocesses:\n  a: &base\n    command: c\n    env: &env {A: 010, B: 2}\n"
        "  b:\n    <<: *base\n    env: {<<: *env, B: 3}\n"
    )
    process = load(tmp_path, text).get_process("b")
    assert process.command == ["c"]
    assert process.settings.env == {"A": "010", "B": "3"}


def test_keys_of_the_user_at_the_top_level_hold_anchors(tmp_path: Path) -> None:
    text = (
        "name: e\nx-base: &base {cmd: c}\nprocesses:\n  a: *base\n  b: {<<: *base, env: {A: 1}}\n"
    )
    experiment = load(tmp_path, text)
    assert [process.cmds for process in experiment.list_all_processes()] == [["c"], ["c"]]


def test_the_first_mapping_in_a_list_of_merged_mappings_takes_precedence(tmp_path: Path) -> None:
    """PyYAML 6.0.4 takes the values of the last mapping."""
    text = (
        "name: e\nprocesses:\n"
        "  a: &a {cmd: a, start_dir: a}\n"
        "  b: &b {cmd: b, start_dir: b, env: {B: b}}\n"
        "  own: &own {<<: [*a, *b], start_dir: own}\n"
        "  alias: *own\n"
        "  nested: {<<: [{<<: *own}, *b], env: {B: nested}}\n"
    )
    experiment = load(tmp_path, text)
    for name, value in {"own": "b", "alias": "b", "nested": "nested"}.items():
        process = experiment.get_process(name)
        assert (process.cmds, process.start_dir) == (["a"], "own")
        assert process.settings.env == {"B": value}


def test_a_value_that_looks_like_a_merge_key_is_text(tmp_path: Path) -> None:
    assert "variable name '<<' is not valid" in error_message(
        tmp_path, HEAD + "    env: {'<<': a}\n"
    )
    assert load(tmp_path, HEAD + "    args: [<<, =]\n").get_process("p").args == ["<<", "="]


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
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


def test_loading_does_not_change_its_input() -> None:
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


def test_changes_to_a_dump_do_not_affect_the_experiment() -> None:
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


def test_a_date_can_be_written_as_json(tmp_path: Path) -> None:
    experiment = load(tmp_path, HEAD + "    pod_yml: {a: 2024-01-01}\n")
    experiment.dump_file(tmp_path / "again.json")
    assert Experiment.load_file(tmp_path / "again.json").get_process("p").settings.pod_yml == {
        "a": "2024-01-01"
    }


@pytest.mark.parametrize(
    "wrong",
    [{"processes": []}, {"env": []}, {"env": False}, {"processes": {"g": {"processes": 0}}}],
)
def test_an_empty_value_of_another_type_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        Experiment.load_dict({"name": "e", **wrong})
