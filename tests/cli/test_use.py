"""``symphony exec``, ``attach``, ``cp``, ``forward`` and ``visit`` on the local backend."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import FOREVER, Program


@pytest.fixture
def rl(program: Program) -> str:
    """A running experiment: a process that exposes a service, and a group."""
    web = {"cmd": FOREVER, "exposes": ["web"]}
    return program.launch("rl", {"a": web, "crew": {"processes": {"b": {"cmd": FOREVER}}}})


class TestExec:
    def test_json_output(self, program: Program, rl: str) -> None:
        script = "echo out; echo err >&2; exit 6"
        done = program("exec", rl, "a", "--json", "--", "sh", "-c", script)
        assert done.returncode == 6
        assert json.loads(done.stdout) == {"exit_code": 6, "stdout": "out\n", "stderr": "err\n"}

    @pytest.mark.parametrize(
        "words", [["a"], ["a", "--"], ["a", "ls"], ["a", "no-such", "--", "ls"]]
    )
    def test_command_must_follow_the_dashes(
        self, program: Program, rl: str, words: list[str]
    ) -> None:
        done = program("exec", rl, *words)
        command = " ".join(word for word in words[1:] if word != "--") or "CMD..."
        assert done.returncode == 2
        assert f"the command must follow --: symphony exec rl a -- {command}" in done.stderr


@pytest.mark.parametrize("command", ["attach", "ssh"])
def test_attach_suggests_other_commands(program: Program, rl: str, command: str) -> None:
    done = program(command, rl, "crew/b")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the local backend cannot attach a terminal" in done.stderr


@pytest.mark.parametrize("command", ["cp", "scp"])
def test_files_are_copied_both_ways_after_the_process_has_exited(
    program: Program, command: str
) -> None:
    work = program.directory / "work"
    work.mkdir()
    learner = {"cmd": "mkdir out && echo weights > out/model.pt", "start_dir": str(work)}
    program.run("rl", {"crew": {"processes": {"learner": learner}}})
    assert program.ok(command, "rl", "learner:out/model.pt", ".") == ""
    assert (program.directory / "model.pt").read_text() == "weights\n"
    assert program.ok(command, "rl", "rl.yml", "crew/learner:") == ""
    assert (work / "rl.yml").read_bytes() == (program.directory / "rl.yml").read_bytes()


@pytest.mark.parametrize("command", ["visit", "url"])
def test_visit_prints_the_url(program: Program, rl: str, command: str) -> None:
    url = f"http://{program.cluster.external_url('rl', 'web')}\n"
    assert program.ok(command, rl, "web") == url


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cp", "none", "a:x", "y"], "no experiment 'none'"),
        (["cp", "rl", "a:x", "y"], "cannot copy 'a:x'"),
        (["cp", "rl", "c:x", "y"], "has no process 'c'"),
        (["forward", "rl", "web"], "use 127.0.0.1:"),
        (["forward", "rl", "a", "80"], "use 127.0.0.1:80"),
        (["forward", "rl", "a", "80:x"], "a port must be a number, or PORT:LOCAL, not '80:x'"),
        (["visit", "rl", "wbe"], "did you mean 'web'?"),
    ],
)
def test_errors_are_one_line(program: Program, rl: str, words: list[str], message: str) -> None:
    done = program(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
