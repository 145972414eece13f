"""One file with parameters and counts on every backend, and what `--set` may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Program

FILE = """\
name: rl
parameters:
  agents: 8
  greeting: hello
processes:
  learner:
    container_image: rl:1
    cmd: for word in ${greeting}; do echo $word ${agents} ${SYMPHONY_ROLE} $${agents:-none}; done
    binds: replay
  agent:
    count: ${agents}
    container_image: rl:1
    command: [printf, "%s\\\\n", "${greeting} ${index}"]
    connects: replay
    starts_after: {learner: started}
"""
SET = ("--set", "agents=2", "--set", "greeting=good=day")


@pytest.fixture
def file(program: Program) -> Path:
    path = program.folder / "rl.yml"
    path.write_text(FILE)
    return path


def ran_as_it_says(program: Program, file: Path, **env: str) -> None:
    assert "3 processes" in program.ok("launch", file, *SET, **env)
    assert program("wait", "rl", **env).returncode == 0
    assert program.ok("logs", "rl", "learner", **env) == "good=day 2 learner none\n"
    assert program.ok("logs", "rl", "agent-1", **env) == "good=day 1\n"


def test_on_local(program: Program, file: Path) -> None:
    ran_as_it_says(program, file)


def test_in_tmux(program: Program, file: Path, tmux_sockets: Path) -> None:
    pytest.importorskip("libtmux")
    env = {"TMUX_TMPDIR": str(tmux_sockets), "SYMPHONY_BACKEND": "tmux", "TMUX": ""}
    try:
        ran_as_it_says(program, file, **env)
    finally:
        assert program("delete", "-f", "rl", **env).returncode == 0


def test_for_kubernetes(program: Program, file: Path) -> None:
    shown = program.ok("render", file, "-b", "kube", *SET)
    assert shown.count("kind: Pod\n") == 3
    assert "- good=day 1\n" in shown
    assert "for word in good=day; do echo $word 2 ${SYMPHONY_ROLE} ${agents:-none}; done" in shown
    assert program.ok("render", file, "-b", "kube", agents="1").count("kind: Pod\n") == 2
    assert program.ok("render", file, "-b", "kube").count("kind: Pod\n") == 9


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["agnets=2"],
            "rl.yml:2:1: parameters: there is no parameter 'agnets'; did you mean 'agents'?",
        ),
        (["agents=two"], "rl.yml:11:5: processes.agent.count: count is a whole number, not 'two'"),
        (
            ["agents"],
            "--set: a parameter must be NAME=VALUE, such as agents=8, not 'agents'; see symphony launch --help",
        ),
        (["=2"], "--set: a parameter must be NAME=VALUE"),
    ],
)
def test_what_may_be_wrong(program: Program, file: Path, words: list[str], said: str) -> None:
    done = program("launch", file.name, *(word for item in words for word in ("--set", item)))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"symphony: error: {said}")
    assert done.stderr.count("\n") == 1
    assert program.left() == []


PYTHON = """\
def build(exp, agents=2, *, greeting="hello", slow=False):
    for index in range(agents):
        exp.new_process(f"agent-{index}", command=["echo", greeting, repr(slow)])
"""


def test_a_python_file_takes_them_as_arguments_of_build(program: Program) -> None:
    path = program.folder / "rl.py"
    path.write_text(PYTHON)
    found = program.json(
        "render", path, "--set", "agents=3", "--set", "greeting=8", "--set", "slow=true"
    )
    assert [process["argv"] for process in found["processes"]] == [["echo", "8", "True"]] * 3
    assert len(program.json("render", path)["processes"]) == 2
    done = program("render", "rl.py", "--set", "agnets=3")
    assert done.returncode == 2
    assert (
        "rl.py: build(exp) has no argument 'agnets'; did you mean 'agents'? (declare it: def build(exp, agnets=1))"
        in done.stderr
    )
