"""``cp``, ``forward``, ``visit``, and ``logs`` into files, where all is on one machine."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from tests.cli.conftest import FOREVER, TIMEOUT, Program


@pytest.fixture
def talk(program: Program) -> str:
    group = {"processes": {"bob": {"cmd": "printf 'one\\ntwo\\nunfinished'"}}}
    return program.ended("talk", {"alice": "echo hi", "pair": group, "mute": "true"})


class TestSave:
    def test_a_file_for_each_process(self, program: Program, talk: str) -> None:
        shown = program.ok("logs", talk, "--save", "kept/logs")
        assert shown.splitlines() == [f"kept/logs/{name}.log" for name in ("alice", "bob", "mute")]
        folder = program.folder / "kept" / "logs"
        assert (folder / "bob.log").read_text() == "one\ntwo\nunfinished"
        assert (folder / "mute.log").read_text() == ""
        assert len(list(folder.iterdir())) == 3
        program.ok("delete", "-f", talk)
        assert (folder / "alice.log").read_text() == "hi\n"

    def test_some_of_some(self, program: Program, talk: str) -> None:
        (program.folder / "bob.log").write_text("of yesterday")
        assert program.ok("logs", talk, "pair/bob", "--tail", "1", "--save", ".") == "bob.log\n"
        assert (program.folder / "bob.log").read_text() == "unfinished"

    def test_it_goes_on_with_follow(self, program: Program) -> None:
        name = program.launched(
            "rl",
            {"a": f"echo one; until [ -e {program.folder}/go ]; do sleep 0.05; done; echo two"},
        )
        with program.popen("logs", name, "-f", "--save", "logs", stdout=subprocess.PIPE) as running:
            (program.folder / "go").touch()
            assert running.communicate(timeout=TIMEOUT)[0] == "logs/a.log\n"
        assert running.returncode == 0
        assert (program.folder / "logs" / "a.log").read_text() == "one\ntwo\n"

    def test_ctrl_c_ends_following_and_keeps_the_files(self, program: Program) -> None:
        name = program.launched("rl", {"a": f"echo one; {FOREVER}"})
        file = program.folder / "logs" / "a.log"
        with program.popen(
            "logs", name, "-f", "--save", "logs", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as run:
            end = time.monotonic() + TIMEOUT
            while not (file.exists() and file.read_text()):
                assert run.poll() is None
                assert time.monotonic() < end
                time.sleep(0.01)
            run.send_signal(signal.SIGINT)
            assert run.communicate(timeout=TIMEOUT) == ("logs/a.log\n", "")
        assert run.returncode == 130
        assert file.read_text() == "one\n"

    def test_a_folder_that_cannot_be(self, program: Program, talk: str) -> None:
        (program.folder / "file").touch()
        done = program("logs", talk, "--save", "file")
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr == "symphony: error: file: File exists\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["logs", "rl", "--previous"],
            "keeps one log of a process, which continues after a restart",
        ),
        (
            ["logs", "rl", "--previous", "-f"],
            "--previous and --follow cannot be combined",
        ),
        (["logs", "rl", "--save", "x", "--json"], "--save and --json cannot be combined"),
        (["cp", "none", "a:x", "y"], "no experiment 'none'"),
        (
            ["forward", "rl", "web"],
            "'web' runs on this machine and needs no port forwarding: use 127.0.0.1:",
        ),
        (["forward", "rl", "a", "80"], "use 127.0.0.1:80"),
        (["forward", "rl", "a", "80:x"], "a port must be a number, or PORT:LOCAL, not '80:x'"),
        (["visit", "rl", "wbe"], "did you mean 'web'?"),
        (["cp", "rl", "a:x", "y"], "cannot copy 'a:x': no such file or directory: "),
        (["cp", "rl", "b:x", "y"], "has no process 'b'"),
        (["cp", "rl", "rl.yml", "a:"], "they are the same file"),
    ],
)
def test_what_one_machine_does_not_need(program: Program, words: list[str], said: str) -> None:
    program.launched("rl", {"a": {"cmd": FOREVER, "exposes": ["web"]}})
    done = program(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["cp", "scp"])
def test_files_go_there_and_back(program: Program, verb: str) -> None:
    """Also when the process has ended; nothing is said of it."""
    (program.folder / "work").mkdir()
    made = {
        "cmd": "mkdir out && echo weights > out/model.pt",
        "start_dir": str(program.folder / "work"),
    }
    program.ended("rl", {"crew": {"processes": {"learner": made}}})
    assert program.ok(verb, "rl", "learner:out/model.pt", ".") == ""
    assert (program.folder / "model.pt").read_text() == "weights\n"
    assert program.ok(verb, "rl", "rl.yml", "crew/learner:") == ""
    assert (program.folder / "work" / "rl.yml").read_bytes() == (
        program.folder / "rl.yml"
    ).read_bytes()


@pytest.mark.parametrize("verb", ["visit", "url"])
def test_visit_prints_the_address(program: Program, verb: str) -> None:
    program.launched("rl", {"a": {"cmd": FOREVER, "exposes": ["web"]}})
    assert program.ok(verb, "rl", "web") == f"http://{program.cluster.external_url('rl', 'web')}\n"
