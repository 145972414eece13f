"""``symphony check``: output, targets, positions in the file, and exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Program

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "howto" / "graph-and-check.md"
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
    """An experiment file with three errors and one warning."""
    path = program.directory / "bad.yml"
    path.write_text(BAD)
    return path


def write(program: Program, text: str) -> str:
    (program.directory / "rl.yml").write_text(text)
    return "rl.yml"


def test_findings_are_lines_in_the_order_of_the_file(program: Program, bad: Path) -> None:
    done = program("check", "bad.yml", "--target", "kube")
    assert done.returncode == 1
    assert done.stderr == "bad.yml: 3 errors, 1 warning for kube\n"
    lines = done.stdout.splitlines()
    # Each line without the text of the finding, which the tests of the rules check.
    summaries = [re.sub(r": (error|warning): (.*?): .* \[", r": \1: \2 [", line) for line in lines]
    assert summaries == [
        "bad.yml:2:7: warning: learner, agents/agent-0, agents/agent-1 and 1 more "
        "[local-path: kube]",
        "bad.yml:4:3: error: learner, agents/agent-0, agents/agent-1 [no-image: kube]",
        "bad.yml:13:25: error: agents/agent-0 [localhost: kube]",
        "bad.yml:17:5: error: web [unbound-service: kube]",
    ]
    assert lines[3] == (
        "bad.yml:17:5: error: web: connects to service 'reply', which no process binds; "
        "did you mean 'replay'? [unbound-service: kube]"
    )
    assert program.state_entries() == []
    assert [path.name for path in program.directory.iterdir()] == ["bad.yml"]


def test_json_output(program: Program, bad: Path) -> None:
    report = program.json("check", "bad.yml", "--target", "kube,local", code=1)
    findings = report.pop("findings")
    assert report == {
        "file": "bad.yml",
        "experiment": "bad",
        "targets": ["kube", "local"],
        "errors": 3,
        "warnings": 1,
    }
    assert findings[-1] == {
        "rule": "unbound-service",
        "level": "error",
        "targets": ["kube", "local"],
        "processes": ["web"],
        "place": ["processes", "web", "connects", 0],
        "what": "connects to service 'reply', which no process binds",
        "mend": "did you mean 'replay'?",
        "line": 17,
        "column": 5,
    }
    local_rules = {finding["rule"] for finding in findings if "local" in finding["targets"]}
    assert "localhost" not in local_rules


def test_warnings_are_failures_only_with_strict(program: Program) -> None:
    path = program.file("rl", {"a": {"command": "true", "container_image": "x", "binds": "s"}})
    done = program("check", path)
    assert done.returncode == 0
    assert done.stderr == f"{path}: 1 warning for local\n"
    assert program("check", path, "--strict").returncode == 1


def test_only_the_chosen_backend_is_checked(program: Program) -> None:
    path = program.file("rl", {"a": {"command": "true", "env": {"DATA": "/home/user/data"}}})
    assert program("check", path).stderr == f"{path}: no problems found for local\n"
    both = program("check", path, "-b", "local", "--target", "kube")
    assert both.stderr == f"{path}: 1 error, 1 warning for local, kube\n"


def test_file_without_problems(program: Program) -> None:
    path = program.file("rl", {"a": {"command": "true", "container_image": "x"}})
    done = program("check", path, "--strict", "--target", "kube", "--target", "local")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"{path}: no problems found for kube, local\n"


def test_selected_backend_is_checked_with_its_options(program: Program) -> None:
    path = program.file("some-experiment", {"a" * 50: {"command": "true"}})
    assert "no-image" in program("check", path, "-b", "kube").stdout
    assert program("check", path, "-b", "kube", "--image", "rl:1").returncode == 0
    shared = program("check", path, "-b", "k8s", "--image", "rl:1", "--namespace", "team-a")
    assert shared.stdout.count("\n") == 1
    assert "66 characters" in shared.stdout


def test_options_of_the_only_target_are_accepted(program: Program) -> None:
    path = program.file("rl", {"a": {"command": "true"}})
    for words in (("--target", "kube"), ("--target=k8s",)):
        assert program("check", path, *words, "--image", "rl:1").returncode == 0
        assert "--namespace NAMESPACE" in program.ok("check", *words, "--help")
    for words in (("--target", "kube,local"), ("--target", "all"), ("--target", "local")):
        done = program("check", path, *words, "--image", "rl:1")
        assert done.returncode == 2
        assert "it is an option of the kube backend: add -b kube" in done.stderr


@pytest.mark.parametrize("options", [[], ["--offline"]])
def test_unreachable_cluster_is_a_note(program: Program, options: list[str]) -> None:
    needs_gpu = {"command": "true", "container_image": "x", "resource_limit": {"gpu": 1}}
    path = program.file("rl", {"a": needs_gpu})
    env = {"KUBECONFIG": str(program.directory / "none")}
    done = program("check", path, "--target", "kube", *options, **env)
    assert done.returncode == 0
    assert ": note: " in done.stdout
    assert "GPUs" in done.stdout


def test_python_file_has_no_positions(program: Program) -> None:
    (program.directory / "exp.py").write_text(
        "def build(exp):\n    exp.new_process('a', command='true').connects('x')\n"
    )
    done = program("check", "exp.py", "--target", "local")
    assert done.stdout.startswith(
        "exp.py: error: a: connects to service 'x', which no process binds; "
    )


def test_every_error_of_a_file_is_a_finding(program: Program) -> None:
    file = write(
        program,
        "name: rl\nport_range: 7\nprocesses:\n  a: {comand: x, start_dir: ''}\n"
        "  b:\n    command: [c]\n    volumes: [{nsf: {}}]\n",
    )
    done = program("check", file, "--target", "local")
    assert done.returncode == 1
    lines = [re.sub(r"; .* \[", " [", line) for line in done.stdout.splitlines()]
    assert lines[0].startswith("rl.yml:2:1: error: port_range must be the first and the last port")
    assert lines[1:] == [
        "rl.yml:4:7: error: process 'a' has the unknown key 'comand' [file: local]",
        "rl.yml:4:18: error: start_dir is empty [file: local]",
        "rl.yml:6:5: error: b: command 'c' was not found on the PATH [refused: local]",
        "rl.yml:7:16: error: a volume has the unknown key 'nsf' [file: local]",
    ]
    report = program.json("check", file, "--target", "local", code=1)
    assert (report["experiment"], report["errors"]) == ("rl", 5)


def test_valid_parts_of_a_file_with_errors_are_checked(program: Program) -> None:
    processes = "  a: {command: c, connects: x}\n  b: {command: c, start_dir: ''}\n"
    file = write(program, f"name: rl\nprocesses:\n{processes}")
    lines = program("check", file, "-b", "kube", "--image", "x").stdout.splitlines()
    assert [line.partition(": error: ")[0] for line in lines] == ["rl.yml:3:19", "rl.yml:4:19"]


def test_file_without_a_name_has_no_experiment(program: Program) -> None:
    report = program.json("check", write(program, "processes: {}\n"), code=1)
    assert (report["experiment"], report["errors"]) == (None, 1)


@pytest.mark.parametrize(
    ("processes", "line"),
    [
        (
            "  a: {command: 'true'}\n  b:\n    count: 3\n    command: [x, localhost]\n",
            "rl.yml:6:18: warning: b-0, b-1, b-2: ",
        ),
        ("  a:\n    env: {A: b}\n    cmd: run localhost\n", "rl.yml:5:5: warning: a: "),
    ],
    ids=["replicas have the position of their count", "cmds has the position of cmd"],
)
def test_position_of_settings_with_another_key_in_the_file(
    program: Program, processes: str, line: str
) -> None:
    file = write(program, f"name: rl\nprocesses:\n{processes}")
    done = program("check", file, "-b", "kube", "--image", "x")
    assert done.stdout.startswith(line)


def test_documentation_lists_every_rule() -> None:
    import symphony.lint
    import symphony.plan

    pattern = r'(?:rule=|_finding_from\(|finding_of\(\s*\w+,\s*)"([a-z-]+)"'
    rules: set[str] = set()
    for package in (symphony.lint, symphony.plan):
        for path in Path(str(package.__file__)).parent.rglob("*.py"):
            rules.update(re.findall(pattern, path.read_text()))
    assert len(rules) > 15
    documented = set(re.findall(r"`([a-z-]+)`", DOCUMENTATION.read_text()))
    assert rules <= documented


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere.yml",), "nowhere.yml: no such file"),
        (("rl.yml", "--target", "cube"), "no backend 'cube'; did you mean 'kube'"),
    ],
)
def test_errors_are_one_line(program: Program, words: tuple[str, ...], message: str) -> None:
    program.file("rl", {"a": "true"})
    done = program("check", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_levels_are_coloured_only_on_a_terminal(program: Program, bad: Path) -> None:
    screen = program.terminal("check", "bad.yml", "--target", "kube")
    assert screen.finish() == 1
    assert "\x1b[31merror\x1b[0m: " in screen.shown
    plain = program.terminal("check", "bad.yml", "--target", "kube", NO_COLOR="1")
    plain.finish()
    assert "\x1b[" not in plain.shown
