"""``symphony config``, and the effect of the configuration on other commands."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from symphony.commandline import SymphonyParser
from symphony.config import SymphonyConfig
from tests.cli.conftest import FOREVER, Program


@pytest.fixture
def configured(program: Program) -> Program:
    """A project of user sarah with a profile for a cluster."""
    write(
        program,
        "username: sarah\nprofiles:\n  gke: {backend: kube, namespace: team-a, image: 'rl:1'}\n",
    )
    return program


def write(program: Program, text: str, name: str = ".symphony.yml") -> Path:
    path = program.directory / name
    path.write_text(text)
    return path


def refuse(program: Program, *args: object, **env: str) -> str:
    """Run a command that must fail, and return its message without the directory."""
    done = program(*args, **env)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    message = done.stderr.removeprefix("symphony: error: ").rstrip("\n")
    return message.replace(f"{program.directory}/", "")


# --- config ---


def test_show_lists_each_value_with_its_source(configured: Program) -> None:
    lines = configured.ok("config", "show", "--profile", "gke", SYMPHONY_CONTEXT="c").splitlines()
    file = f"{configured.directory}/.symphony.yml"
    assert [line.split() for line in lines] == [
        ["FIELD", "VALUE", "SOURCE"],
        ["backend", "kube", f"{file}:3:9"],
        ["context", "c", "SYMPHONY_CONTEXT"],
        ["image", "rl:1", f"{file}:3:43"],
        ["namespace", "team-a", f"{file}:3:24"],
        ["profile", "gke", "--profile"],
        ["username", "sarah", f"{file}:1:1"],
    ]
    assert configured.ok("config").splitlines()[1].split() == ["backend", "local", "built-in"]


def test_show_as_json(program: Program) -> None:
    file = write(program, "resources: {cpu: 2}\nx-mine: [1]\n")
    assert program.json("config", "show", "-b", "tmux") == [
        {"field": "backend", "value": "tmux", "source": "--backend"},
        {"field": "resources.cpu", "value": "2", "source": f"{file}:1:13"},
        {"field": "x-mine", "value": [1], "source": f"{file}:2:1"},
    ]


def test_path_lists_the_existing_files(program: Program) -> None:
    done = program("config", "path")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        f"there is no configuration file; create {program.directory}/.symphony.yml "
        f"or {program.directory}/config/symphony/config.yml\n"
    )
    project = write(program, "username: [\n")
    other = write(program, "", "other.toml")
    output = program.ok("config", "path", SYMPHONY_CONFIG=str(other))
    assert output.splitlines() == [str(project), str(other)]
    files = program.json("config", "path")
    assert [(file["kind"], file["exists"]) for file in files] == [
        ("project", True),
        ("user", False),
    ]


def test_settings_that_need_trust_take_effect_when_the_file_is_trusted(program: Program) -> None:
    program.ok("launch", program.file("rl", {"a": "true"}), SYMPHONY_STATE_DIR="other")
    file = write(program, "username: sarah\noptions:\n  local: {state_dir: other/local}\n")
    note = (
        f"{file}: ignored options.local.state_dir, because the file is not trusted; "
        "read the file, and run 'symphony config trust' if you trust it\n"
    )

    def experiments() -> tuple[list[str], str]:
        done = program("ls", "--json")
        names = [item["name"] for item in json.loads(done.stdout)]
        # Completion ignores the same settings, and prints no notes. The argument of down is an
        # experiment, while that of ps can also be a process.
        assert program.ok("__complete", "down", "").split() == names
        return names, done.stderr

    assert experiments() == ([], note)
    done = program("config", "show")
    fields = [line.split()[0] for line in done.stdout.splitlines()]
    assert (fields, done.stderr) == (["FIELD", "backend", "username"], note)
    assert [item["trusted"] for item in program.json("config", "path")] == [False, True]

    lines = program.ok("config", "trust", "--dry-run").splitlines()
    assert lines[0] == f"would trust {file}"
    assert experiments() == ([], note)
    lines = program.ok("config", "trust").splitlines()
    assert lines[0] == f"trusted {file}"
    assert lines[2].split() == ["options.local.state_dir", "other/local"]
    assert experiments() == (["rl"], "")
    assert [item["trusted"] for item in program.json("config", "path")] == [True, True]

    assert program.ok("config", "untrust") == f"no longer trusted: {file}\n"
    assert experiments() == ([], note)
    assert program.ok("__complete", "down", "", SYMPHONY_CONFIG=str(file)) == "rl\n"


def test_file_for_a_view_that_takes_none(program: Program) -> None:
    assert refuse(program, "config", "path", "x").startswith("config path takes no file")
    assert refuse(program, "config", "trust").startswith("there is no .symphony.yml in this direct")
    assert "symphony config trust" in program.ok("config", "trust", "--help")


def test_schema_prints_the_path_of_the_schema(program: Program) -> None:
    path = Path(program.ok("config", "schema").strip())
    assert json.loads(path.read_text(encoding="utf-8"))["title"] == "symphony experiment"
    assert program.json("config", "schema") == {"path": str(path)}


def test_unknown_view(program: Program) -> None:
    message = refuse(program, "config", "shwo")
    assert message.startswith("unknown WHAT 'shwo'; did you mean 'show'?")


# --- the effect on other commands ---


def test_profile_sets_the_backend_and_its_options(configured: Program) -> None:
    file = configured.file("rl", {"a": {"command": "true"}})
    manifest = configured.ok("render", file, "--profile", "gke")
    for line in ("namespace: team-a", "image: rl:1", "name: sarah-rl-a"):
        assert line in manifest
    assert "image: rl:1" in configured.ok("render", file, "--profile=gke", SYMPHONY_BACKEND="local")


def test_options_take_precedence_over_the_profile(configured: Program) -> None:
    file = configured.file("rl", {"a": {"command": "true"}})
    assert "namespace: mine" in configured.ok("render", file, "--profile", "gke", "-n", "mine")
    assert "backend: local" in configured.ok("render", file, "--profile", "gke", "-b", "local")
    assert "backend: tmux" in configured.ok("render", file, SYMPHONY_BACKEND="tmux")


def test_options_of_one_command_do_not_affect_the_next(
    configured: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script can run several commands in one process."""
    monkeypatch.chdir(configured.directory)
    SymphonyConfig().reset()
    try:
        assert SymphonyParser(prog="symphony").run(["config", "path", "--profile", "gke"]) == 0
        assert SymphonyConfig().backend == "kube"
        assert SymphonyParser(prog="symphony").run(["config", "path"]) == 0
        assert SymphonyConfig().backend == "local"
    finally:
        SymphonyConfig().reset()


@pytest.mark.parametrize(
    ("args", "env", "message"),
    [
        (("ls", "--profile", "gek"), {}, "--profile: no profile 'gek'; did you mean 'gke'?"),
        (("ls",), {"SYMPHONY_PROFILE": "x"}, "SYMPHONY_PROFILE: no profile 'x'"),
        (("ls",), {"SYMPHONY_BACKEND": "kub"}, "SYMPHONY_BACKEND: no backend 'kub'; did you mean"),
        (("ls",), {"SYMPHONY_CONFIG": "no.yml"}, "SYMPHONY_CONFIG"),
        (("ls", "--profile"), {}, "--profile: expected one argument; see symphony ls --help"),
    ],
)
def test_error_names_the_source_of_the_value(
    configured: Program, args: tuple[str, ...], env: dict[str, str], message: str
) -> None:
    assert refuse(configured, *args, **env).startswith(message)


@pytest.mark.parametrize(
    "command", ["ls", "delete -f rl", "config show", "launch rl.yml", "submit -- true"]
)
def test_error_in_the_file_is_reported_with_its_position(program: Program, command: str) -> None:
    program.file("rl", {"a": "true"})
    write(program, "image: i\nusernam: sarah\n")
    message = refuse(program, *command.split())
    assert message.startswith(".symphony.yml:2:1: usernam: ")
    assert "; did you mean 'username'?" in message
    assert program.state_entries() == []


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("options: {kube: {namespce: 1}}", "1:18: options.kube.namespce: "),
        ("options:\n  kub: {expose: none}", "2:3: options.kub: "),
        ("options:\n  k8s:\n    expose: x", "3:5: options.k8s.expose: "),
    ],
)
def test_error_in_the_options_of_a_backend_is_reported_with_its_position(
    program: Program, text: str, position: str
) -> None:
    write(program, text)
    program.ok("config", "trust")
    assert refuse(program, "ls", "-b", "kube").startswith(f".symphony.yml:{position}")


def test_help_and_version_read_no_file(program: Program) -> None:
    os.mkfifo(program.directory / "fifo")  # reading this file would never return
    variables = {"SYMPHONY_CONFIG": "fifo", "SYMPHONY_BACKEND": "kube"}
    assert "--namespace NAMESPACE" in program.ok("ls", "--help", **variables)
    assert "--namespace NAMESPACE" not in program.ok("ls", "-h", "-b", "local", **variables)
    assert program.ok("--version", **variables).startswith("symphony ")


# --- user names ---


def test_user_name_is_a_prefix_of_new_experiments(configured: Program) -> None:
    path = configured.file("rl", {"a": "echo hello"})
    assert configured.ok("launch", path).startswith("launched sarah-rl on local: 1 process\n")
    assert configured.json("wait", "rl")["name"] == "sarah-rl"
    assert configured.ok("logs", "rl", "a") == configured.ok("logs", "sarah-rl", "a") == "hello\n"
    assert configured.ok("launch", path, "--name", "sarah-rl").startswith("launched sarah-rl ")
    script = write(
        configured, "NAME = 'py'\ndef build(exp):\n    exp.new_process('a', cmd='true')\n", "x.py"
    )
    assert configured.ok("launch", script).startswith("launched sarah-py ")
    done = configured("submit", "--name", "job", "--", "true")
    assert done.stdout.startswith("submitted sarah-job ")
    deleted = configured.ok("delete", "-f", "rl", "py", "sarah-job").splitlines()
    assert deleted == ["deleted sarah-rl", "deleted sarah-py", "deleted sarah-job"]


def test_experiment_of_the_user_takes_precedence(configured: Program) -> None:
    configured.ok("launch", configured.file("rl", {"a": FOREVER}), SYMPHONY_USERNAME="")
    configured.ok("launch", configured.file("rl", {"b": FOREVER}))
    assert [item["name"] for item in configured.json("ls")] == ["rl", "sarah-rl"]
    assert configured.json("ps", "rl")["name"] == "sarah-rl"
    assert configured.ok("delete", "-f", "rl") == "deleted sarah-rl\n"
    assert configured.ok("delete", "-f", "rl") == "deleted rl\n"


def test_name_that_is_too_long_with_the_prefix(configured: Program) -> None:
    message = refuse(configured, "launch", configured.file("x" * 60, {"a": "true"}))
    assert "'sarah'" in message
    assert "'sarah-xxx" in message
    assert configured.state_entries() == []


# --- the directory for saved experiments ---


@pytest.mark.parametrize("backend", ["local", "kube"])
def test_dry_run_saves_nothing(program: Program, backend: str) -> None:
    write(program, "experiment_folder: runs\nimage: i\n")
    program.ok("launch", program.file("rl", {"a": "true"}), "-b", backend, "--dry-run")
    assert not (program.directory / "runs").exists()


def test_saved_experiment_is_only_replaced_with_force(program: Program) -> None:
    write(program, "experiment_folder: runs\n")
    path = program.file("rl", {"a": "true"})
    program.ok("launch", path)
    saved = program.directory / "runs" / "rl"
    assert sorted(item.name for item in saved.iterdir()) == ["experiment.yml", "manifest.yml"]
    program.ok("delete", "-f", "rl")
    message = refuse(program, "launch", path)
    assert "runs/rl" in message
    assert "launch with --force" in message
    program.ok("launch", path, "--force")
    again = program.ok("render", saved / "experiment.yml", "--json")
    assert json.loads(again)["experiment"] == "rl"
