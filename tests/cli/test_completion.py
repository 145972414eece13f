"""Completion, as a shell asks for it, and by a real bash."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.cli.conftest import TIMEOUT, Program


@pytest.fixture
def rl(program: Program) -> str:
    return program.ended("rl", {"learner": "true", "crew": {"processes": {"agent-1": {"cmd": "true"}}}})


def complete(program: Program, *words: str) -> list[str]:
    return program.ok("__complete", *words).split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["lau"], ["launch"]),
        (["de"], ["describe", "delete", "delete-batch"]),
        (["-b", "lo"], ["local"]),
        (["ps", "--backend", "lo"], ["local"]),
        (["-b", "local", "ps", "r"], ["rl"]),
        (["ps", ""], ["rl"]),
        (["p", ""], ["rl"]),
        (["ps", "x"], []),
        (["logs", "rl", ""], ["learner", "crew/agent-1"]),
        (["logs", "-f", "rl", "learner", "cr"], ["crew/agent-1"]),
        (["logs", "--tail", "5", "rl", "l"], ["learner"]),
        (["exec", "rl", "crew"], ["crew/agent-1"]),
        (["exec", "rl", "learner", "--", "ls", ""], []),
        (["cp", "rl", "lea"], ["learner:"]),
        (["delete", "rl", ""], ["rl"]),
        (["launch", ""], []),
        (["launch", "f.yml", "--wait", ""], ["started", "ready"]),
        (["ps", "--js"], ["--json"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["nonsense", ""], []),
        (["logs", "nowhere", ""], []),
    ],
)
def test_what_may_come_next(program: Program, rl: str, words: list[str], found: list[str]) -> None:
    done = program("__complete", *words)
    assert done.stderr == ""
    assert done.stdout.split() == found


def test_short_names_are_not_offered(program: Program) -> None:
    assert "lsp" not in complete(program, "")
    assert "ps" in complete(program, "")


@pytest.mark.parametrize("typed", ["symphony ps r", "symphony logs rl lear"])
def test_bash_completes(program: Program, rl: str, typed: str) -> None:
    """The script in a real bash, which is told what was typed as readline tells it."""
    command = " ".join(program.argv())
    asked = f"""
        symphony() {{ {command} "$@"; }}
        eval "$(symphony completion bash)"
        COMP_WORDS=({typed}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        _symphony
        complete -p symphony
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", asked], env=program.env, cwd=program.folder, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.stdout.splitlines() == [
        "complete -o default -F _symphony symphony",
        "rl" if "ps" in typed else "learner",
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_that_asks(program: Program, shell: str) -> None:
    shown = program.ok("completion", shell)
    assert "symphony __complete" in shown
    found = shutil.which(shell)
    if found is not None:  # it reads it without complaint
        flag = ["-n"] if shell == "zsh" else ["--no-execute"]
        assert subprocess.run([found, *flag], input=shown, text=True, timeout=TIMEOUT).returncode == 0


def test_an_unknown_shell(program: Program) -> None:
    assert "unknown SHELL 'bas'; did you mean 'bash'?" in program("completion", "bas").stderr
