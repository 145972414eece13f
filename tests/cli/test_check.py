"""``symphony check``: what the real program says of files, in a pipe and on a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Program

DOCS = Path(__file__).parents[2] / "docs" / "howto" / "graph-and-check.md"
BAD = """\
name: bad
env: {DATA: /home/me/data}
processes:
  learner:
    cmd: learn --port 6006
    binds: replay
    exposes: {tensorboard: 6006}
  agents:
    connects: replay
    processes:
      agent-0:
        command: [python3, agent.py]
        args: [--board, "localhost:6006"]
      agent-1: {command: [python3, agent.py]}
  web:
    command: [python3, web.py]
    connects: reply
    container_image: web:1
"""


@pytest.fixture
def bad(program: Program) -> Path:
    path = program.directory / "bad.yml"
    path.write_text(BAD)
    return path


def test_each_finding_is_a_line_with_its_place_in_the_order_of_the_file(
    program: Program, bad: Path
) -> None:
    done = program("check", "bad.yml", "--target", "kube")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "bad.yml:2:7: warning: learner, agents/agent-0, agents/agent-1 and 1 more: variable DATA names /home/me/data, "
        "a path of this machine; name a path of the image, or mount the files there (mount_nfs, mount_pvc, "
        "mount_host_path) [local-path: kube]",
        "bad.yml:4:3: error: learner, agents/agent-0, agents/agent-1: no container_image to run from; "
        "set container_image, or give one for all that have none with --image [no-image: kube]",
        "bad.yml:13:25: error: agents/agent-0: --board names localhost:6006, but 'tensorboard' is served elsewhere; "
        "connect to $SYMPH_TENSORBOARD_ADDR [localhost: kube]",
        "bad.yml:17:5: error: web: connects to 'reply', which no process binds; did you mean 'replay'? "
        "[unbound-service: kube]",
    ]
    assert done.stderr == "bad.yml: 3 errors, 1 warning for kube\n"


def test_json_is_what_is_documented(program: Program, bad: Path) -> None:
    found = program.json("check", "bad.yml", "--target", "kube,local", code=1)
    assert {key: found[key] for key in ("file", "experiment", "targets", "errors", "warnings")} == {
        "file": "bad.yml",
        "experiment": "bad",
        "targets": ["kube", "local"],
        "errors": 3,
        "warnings": 1,
    }
    assert found["findings"][-1] == {
        "rule": "unbound-service",
        "level": "error",
        "targets": ["kube", "local"],
        "processes": ["web"],
        "place": ["processes", "web", "connects", 0],
        "what": "connects to 'reply', which no process binds",
        "mend": "did you mean 'replay'?",
        "line": 17,
        "column": 5,
    }
    assert "localhost" not in {
        finding["rule"] for finding in found["findings"] if "local" in finding["targets"]
    }


def test_warnings_alone_are_fine_unless_strict(program: Program) -> None:
    path = program.file("rl", {"a": {"command": "true", "container_image": "x", "binds": "s"}})
    done = program("check", path)
    assert done.returncode == 0
    assert done.stderr.startswith(f"{path}: 1 warning")
    assert "kube, local" in done.stderr
    assert program("check", path, "--strict").returncode == 1
    clean = program.file("rl", {"a": {"command": "true", "container_image": "x"}})
    done = program("check", clean, "--strict", "--target", "kube", "--target", "local")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "",
        f"{clean}: no problems found for kube, local\n",
    )


def test_the_chosen_backend_is_checked_with_its_options(program: Program) -> None:
    path = program.file("some-experiment", {"a" * 50: {"command": "true"}})
    assert "no-image" in program("check", path, "-b", "kube").stdout
    assert program("check", path, "-b", "kube", "--image", "rl:1").returncode == 0
    shared = program("check", path, "-b", "k8s", "--image", "rl:1", "--namespace", "team-a")
    assert shared.stdout.count("\n") == 1
    assert "has 66 characters, and Kubernetes takes 63" in shared.stdout


def test_a_cluster_that_cannot_be_asked_is_a_note(program: Program) -> None:
    needs = {"command": "true", "container_image": "x", "resource_limit": {"gpu": 1}}
    path = program.file("rl", {"a": needs})
    for words in ((), ("--offline",)):
        done = program(
            "check", path, "--target", "kube", *words, KUBECONFIG=str(program.directory / "none")
        )
        assert done.returncode == 0
        assert "note: whether nodes have its GPUs was not looked at: " in done.stdout
    assert "no cluster was asked" in done.stdout


def test_a_python_file_has_no_lines_and_its_processes_have_names(program: Program) -> None:
    (program.directory / "exp.py").write_text(
        "def build(exp):\n    exp.new_process('a', command='true').connects('x')\n"
    )
    done = program("check", "exp.py", "--target", "local")
    assert done.stdout.startswith("exp.py: error: a: connects to 'x', which no process binds; ")


def test_a_file_that_describes_no_experiment_is_a_finding(program: Program) -> None:
    path = program.directory / "rl.yml"
    path.write_text("name: rl\nprocesses:\n  a: {comand: x}\n")
    done = program("check", "rl.yml", "--target", "local")
    assert done.returncode == 1
    assert done.stdout.startswith(
        "rl.yml:3:7: error: process 'a' knows no 'comand'; did you mean 'command'"
    )
    assert done.stdout.endswith(" [file: local]\n")
    found = program.json("check", "rl.yml", "--target", "local", code=1)
    assert (found["experiment"], found["findings"][0]["line"], found["findings"][0]["column"]) == (
        None,
        3,
        7,
    )


def test_processes_of_a_count_stand_where_the_count_does(program: Program) -> None:
    path = program.directory / "rl.yml"
    path.write_text(
        "name: rl\nprocesses:\n  a: {command: 'true'}\n  b:\n    count: 3\n    command: [x, localhost]\n"
    )
    done = program("check", "rl.yml", "-b", "kube", "--image", "x")
    assert done.stdout.startswith("rl.yml:6:18: warning: b-0, b-1, b-2: command names localhost, ")


def test_a_shell_line_stands_under_cmd(program: Program) -> None:
    path = program.directory / "rl.yml"
    path.write_text("name: rl\nprocesses:\n  a:\n    env: {A: b}\n    cmd: run localhost\n")
    done = program("check", "rl.yml", "-b", "kube", "--image", "x")
    assert done.stdout.startswith("rl.yml:5:5: warning: a: its shell line names localhost, ")


def test_the_page_has_every_rule() -> None:
    import symphony.lint

    sources = Path(symphony.lint.__file__).parent.glob("*.py")
    every = [
        re.findall(r'(?:rule=|refused\(|_found\(\w+, )"([a-z-]+)"', path.read_text())
        for path in sources
    ]
    assert {rule for rules in every for rule in rules} <= set(
        re.findall(r"`([a-z-]+)`", DOCS.read_text())
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere.yml",), "nowhere.yml: no such file"),
        (("rl.yml", "--target", "cube"), "no backend 'cube'; did you mean 'kube'"),
        ((), "required: FILE"),
    ],
)
def test_wrong_use(program: Program, words: tuple[str, ...], said: str) -> None:
    program.file("rl", {"a": "true"})
    done = program("check", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_levels_are_coloured_on_a_terminal_alone(program: Program, bad: Path) -> None:
    screen = program.terminal("check", "bad.yml", "--target", "kube")
    assert screen.finish() == 1
    assert "\x1b[31merror\x1b[0m: " in screen.shown
    plain = program.terminal("check", "bad.yml", "--target", "kube", NO_COLOR="1")
    plain.finish()
    assert "\x1b[" not in plain.shown


def test_nothing_is_launched_or_left(program: Program, bad: Path) -> None:
    program("check", "bad.yml")
    assert program.state_entries() == []
    assert sorted(path.name for path in program.directory.iterdir()) == ["bad.yml"]


def test_help_has_examples(program: Program) -> None:
    shown = program.ok("check", "--help")
    assert "symphony check rl.yml --target kube" in shown
    assert "--strict" in shown
