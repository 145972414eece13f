"""The configuration at the command line: what holds beneath the options, `config`, and names of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import FOREVER, Program


@pytest.fixture
def configured(program: Program) -> Program:
    """A project of sarah's, with a profile for a cluster."""
    write(
        program,
        "username: sarah\nprofiles:\n  gke: {backend: kube, namespace: team-a, image: 'rl:1'}\n",
    )
    return program


def write(program: Program, text: str, name: str = ".symphony.yml") -> Path:
    path = program.directory / name
    path.write_text(text)
    return path


def refused(program: Program, *args: object, **env: str) -> str:
    done = program(*args, **env)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1
    return (
        done.stderr.removeprefix("symphony: error: ")
        .replace(f"{program.directory}/", "")
        .rstrip("\n")
    )


# --- config ---


def test_show_tells_each_value_and_where_it_was_said(configured: Program) -> None:
    lines = configured.ok("config", "show", "--profile", "gke", SYMPHONY_CONTEXT="c").splitlines()
    place = f"{configured.directory}/.symphony.yml"
    assert [line.split() for line in lines] == [
        ["FIELD", "VALUE", "SOURCE"],
        ["backend", "kube", f"{place}:3:9"],
        ["context", "c", "SYMPHONY_CONTEXT"],
        ["image", "rl:1", f"{place}:3:43"],
        ["namespace", "team-a", f"{place}:3:24"],
        ["profile", "gke", "--profile"],
        ["username", "sarah", f"{place}:1:1"],
    ]
    assert configured.ok("config").splitlines()[1].split() == ["backend", "local", "built-in"]


def test_show_as_json(configured: Program) -> None:
    write(configured, "resources: {cpu: 2}\nx-mine: [1]\n")
    place = f"{configured.directory}/.symphony.yml"
    assert configured.json("config", "show", "-b", "tmux") == [
        {"field": "backend", "value": "tmux", "source": "--backend"},
        {"field": "resources.cpu", "value": "2", "source": f"{place}:1:13"},
        {"field": "x-mine", "value": [1], "source": f"{place}:2:1"},
    ]


def test_path_tells_which_files_are_read(program: Program) -> None:
    done = program("config", "path")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        f"there is no configuration file; create {program.directory}/.symphony.yml "
        f"or {program.directory}/config/symphony/config.yml\n"
    )
    path = write(program, "username: [\n")
    other = write(program, "", "other.toml")
    assert program.ok("config", "path", SYMPHONY_CONFIG=str(other)).splitlines() == [
        str(path),
        str(other),
    ]
    found = program.json("config", "path")
    assert [(item["kind"], item["exists"]) for item in found] == [
        ("project", True),
        ("user", False),
    ]


def test_schema_is_the_file_by_which_editors_complete(program: Program) -> None:
    path = Path(program.ok("config", "schema").strip())
    assert json.loads(path.read_text(encoding="utf-8"))["title"] == "symphony experiment"
    assert program.json("config", "schema") == {"path": str(path)}


def test_a_wrong_word_after_it(program: Program) -> None:
    assert refused(program, "config", "shwo").startswith(
        "unknown WHAT 'shwo'; did you mean 'show'?"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "options: {kube: {namespce: 1}}",
            "1:18: options.kube.namespce: backend 'kube' has no option 'namespce'; did ",
        ),
        (
            "options:\n  kub: {expose: none}",
            "2:3: options.kub: no backend 'kub'; did you mean 'kube'?",
        ),
        (
            "options:\n  k8s:\n    expose: x",
            "3:5: options.k8s.expose: expose is LoadBalancer, NodePort or none, not 'x'",
        ),
    ],
)
def test_what_is_wrong_with_options_is_told_with_its_place(
    program: Program, text: str, said: str
) -> None:
    write(program, text)
    assert refused(program, "ls", "-b", "kube").startswith(f".symphony.yml:{said}")


# --- what it decides ---


def test_it_chooses_the_backend_and_its_options(configured: Program) -> None:
    file = configured.file("rl", {"a": {"command": "true"}})
    shown = configured.ok("render", file, "--profile", "gke")
    assert "namespace: team-a" in shown
    assert "image: rl:1" in shown
    assert "name: sarah-rl-a" in shown
    assert "namespace: mine" in configured.ok("render", file, "--profile", "gke", "-n", "mine")
    assert "--namespace NAMESPACE" in configured.ok("ls", "--help", SYMPHONY_PROFILE="gke")
    assert "backend: local" in configured.ok("render", file, "--profile", "gke", "-b", "local")
    assert "backend: tmux" in configured.ok("render", file, SYMPHONY_BACKEND="tmux")
    assert "image: rl:1" in configured.ok("render", file, "--profile=gke", SYMPHONY_BACKEND="local")


def test_one_run_knows_nothing_of_the_options_of_another(
    configured: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script may run several command lines."""
    from symphony.commandline import SymphonyParser
    from symphony.config import SymphonyConfig

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
    ("args", "env", "said"),
    [
        (("ls", "--profile", "gek"), {}, "--profile: no profile 'gek'; did you mean 'gke'?"),
        (
            ("ls",),
            {"SYMPHONY_PROFILE": "x"},
            "SYMPHONY_PROFILE: no profile 'x'; the profiles are gke",
        ),
        (
            ("ls",),
            {"SYMPHONY_BACKEND": "kub"},
            "SYMPHONY_BACKEND: no backend 'kub'; did you mean 'kube'",
        ),
        (
            ("ls",),
            {"SYMPHONY_CONFIG": "no.yml"},
            "SYMPHONY_CONFIG is no.yml, but there is no such file",
        ),
        (("ls", "--profile"), {}, "--profile: expected one argument; see symphony ls --help"),
    ],
)
def test_what_is_not_there_is_told(
    configured: Program, args: tuple[str, ...], env: dict[str, str], said: str
) -> None:
    assert refused(configured, *args, **env).startswith(said)


@pytest.mark.parametrize(
    "verb", ["ls", "ps rl", "delete -f rl", "config show", "launch rl.yml", "submit -- true"]
)
def test_a_broken_file_is_one_line_with_its_place(program: Program, verb: str) -> None:
    program.file("rl", {"a": "true"})
    write(program, "image: i\nusernam: sarah\n")
    said = (
        ".symphony.yml:2:1: usernam: a configuration has no key 'usernam'; did you mean 'username'?"
    )
    assert refused(program, *verb.split()).startswith(said)
    assert program.state_entries() == []
    assert refused(program, "ls", "--namespace", "x").startswith(said)
    assert program("ls", "--help").returncode == 0
    assert program("--version").returncode == 0


# --- names ---


def test_new_experiments_have_the_users_name_and_are_found_without_it(configured: Program) -> None:
    path = configured.file("rl", {"a": "echo hello"})
    assert configured.ok("launch", path).startswith("launched sarah-rl on local: 1 process\n")
    assert configured.json("wait", "rl")["name"] == "sarah-rl"
    assert configured.ok("logs", "rl", "a") == configured.ok("logs", "sarah-rl", "a") == "hello\n"
    assert configured.ok("launch", path, "--name", "sarah-rl").startswith("launched sarah-rl ")
    script = write(
        configured, "NAME = 'py'\ndef build(exp):\n    exp.new_process('a', cmd='true')\n", "x.py"
    )
    assert configured.ok("launch", script).startswith("launched sarah-py ")
    assert configured("submit", "--name", "job", "--", "true").stdout.startswith(
        "submitted sarah-job "
    )
    assert configured.ok("delete", "-f", "rl", "py", "sarah-job").splitlines() == [
        "deleted sarah-rl", "deleted sarah-py", "deleted sarah-job",
    ]  # fmt: skip


def test_of_two_the_users_own_is_meant(configured: Program) -> None:
    configured.ok("launch", configured.file("rl", {"a": FOREVER}), SYMPHONY_USERNAME="")
    configured.ok("launch", configured.file("rl", {"b": FOREVER}))
    assert [item["name"] for item in configured.json("ls")] == ["rl", "sarah-rl"]
    assert configured.json("ps", "rl")["name"] == "sarah-rl"
    assert configured.ok("delete", "-f", "rl") == "deleted sarah-rl\n"
    assert configured.ok("delete", "-f", "rl") == "deleted rl\n"


def test_a_name_that_becomes_too_long(configured: Program) -> None:
    said = refused(configured, "launch", configured.file("x" * 60, {"a": "true"}))
    assert "of user 'sarah' would have the name 'sarah-xxx" in said
    assert configured.state_entries() == []


# --- the experiment folder ---


@pytest.mark.parametrize("backend", ["local", "kube"])
def test_a_dry_run_saves_nothing(program: Program, backend: str) -> None:
    write(program, "experiment_folder: runs\nimage: i\n")
    program.ok("launch", program.file("rl", {"a": "true"}), "-b", backend, "--dry-run")
    assert not (program.directory / "runs").exists()


def test_a_launch_is_saved_and_a_name_that_is_saved_needs_force(program: Program) -> None:
    write(program, "experiment_folder: runs\n")
    path = program.file("rl", {"a": "true"})
    program.ok("launch", path)
    saved = program.directory / "runs" / "rl"
    assert sorted(item.name for item in saved.iterdir()) == ["experiment.yml", "manifest.yml"]
    program.ok("delete", "-f", "rl")
    assert refused(program, "launch", path).startswith(
        "experiment 'rl' is saved in runs/rl already; launch with --force"
    )
    program.ok("launch", path, "--force")
    again = program.ok("render", saved / "experiment.yml", "--json")
    assert json.loads(again)["experiment"] == "rl"
