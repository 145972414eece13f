"""``symphony logs`` without a terminal; see test_follow for ``--follow``."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.cli.conftest import FOREVER, TIMEOUT, Program, cleaned_up


def run_talk(program: Program) -> str:
    """Run an experiment: one process without a newline at the end, one without output."""
    group = {"processes": {"bob": {"cmd": "printf 'one\\ntwo\\nunfinished'"}}}
    return program.run("talk", {"alice": "echo hi; echo there", "pair": group, "mute": "true"})


@pytest.fixture
def talk(program: Program) -> str:
    """The experiment, which the test can change."""
    return run_talk(program)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The experiment for all tests that change nothing."""
    with cleaned_up(Program(tmp_path_factory.mktemp("finished"))) as made:
        run_talk(made)
        yield made


class TestShow:
    def test_single_process_is_shown_unchanged(self, program: Program, talk: str) -> None:
        assert program.ok("logs", talk, "bob") == "one\ntwo\nunfinished"
        assert program.ok("logs", talk, "pair/bob", "bob") == "one\ntwo\nunfinished"
        followed = program("logs", talk, "bob", "--follow")
        assert followed.stdout == "one\ntwo\nunfinished\n"
        first, last = followed.stderr.splitlines()
        assert first == "symphony: process bob exited with 0"
        assert re.fullmatch(r"talk succeeded after \S+ s: 3 succeeded", last)
        assert program.ok("logs", talk, "mute") == ""

    def test_bytes_that_are_not_valid_utf_8_are_shown_unchanged(self, program: Program) -> None:
        name = program.run("bytes", {"p": r"printf 'caf\351 \303\251\n'", "q": "true"})
        output = b"caf\xe9 \xc3\xa9\n"
        path = program.directory / "output"
        program.env["PYTHONIOENCODING"] = "ascii"
        for arguments in (["p"], ["p", "-f"], ["p", "-f", "--grep", "caf"], ["--raw"]):
            with (
                path.open("wb") as file,
                program.popen("logs", name, *arguments, stdout=file, stderr=subprocess.DEVNULL),
            ):
                pass
            assert path.read_bytes() == (output if "p" in arguments else b"p | " + output)
        assert program.json("logs", name, "p")["text"] == "caf\ufffd é"

    def test_secrets_are_hidden_except_in_raw_and_saved_output(self, program: Program) -> None:
        secret = program.directory / "token"
        secret.write_text("file-secret-1\n")
        process = {
            "cmd": 'echo "$DB_PASSWORD $TOKEN" mode=plain # variable-secret-2',
            "env": {"DB_PASSWORD": "variable-secret-2"},
            "env_secrets": {"TOKEN": "token"},
        }
        name = program.run("hide", {"p": process, "q": "true"}, secrets={"token": str(secret)})
        raw = "variable-secret-2 file-secret-1\n mode=plain\n"
        assert program.ok("logs", name, "p", "--raw") == raw
        for arguments in (["logs", name, "p"], ["logs", name, "-f"], ["describe", name, "p"]):
            output = program(*arguments).stdout
            assert "secret-" not in output
            assert "(hidden)" in output
        program.ok("logs", name, "p", "--save", str(program.directory / "saved"))
        assert (program.directory / "saved" / "p.log").read_text() == raw

    def test_secrets_are_hidden_in_reasons(self, program: Program) -> None:
        """The last line of a readiness test is a part of the reason."""
        process = {
            "command": ["sleep", "1000"],
            "env": {"DB_PASSWORD": "variable-secret-2"},
            "ready": {"command": "echo cannot log in with $DB_PASSWORD; exit 7", "timeout": 0.1},
        }
        file = program.file("hide", {"p": process})
        launched = program("launch", file, "--wait", "ready")
        outputs = [launched.stderr]
        for arguments in (["ps"], ["ps", "--json"], ["events"], ["describe"]):
            outputs.append(program.ok(arguments[0], "hide", *arguments[1:]))
        outputs.append(program("start", "hide", "--json").stdout)
        for output in outputs:
            assert "exit code 7: cannot log in with (hidden)" in output
            assert "secret-" not in output

    def test_removed_output_is_reported(self, program: Program) -> None:
        long = {"cmd": "echo first; head -c 200000 /dev/zero; echo; echo last", "log_limit": "64Ki"}
        name = program.run("limited", {"long": long, "short": "true"})
        done = program("logs", name, "long")
        assert len(done.stdout) == 2**16
        assert done.stdout.endswith("\0\nlast\n")
        assert done.stderr == (
            "symphony: long: the first 131Ki of its output were removed, because its log exceeded "
            "log_limit\n"
        )
        assert program.ok("logs", name, "long", "--tail", "1") == "last\n"

    def test_several_processes_are_shown_with_names(self, program: Program, talk: str) -> None:
        lines = program.ok("logs", talk).splitlines()
        assert sorted(lines) == [
            "alice | hi",
            "alice | there",
            "bob   | one",
            "bob   | two",
            "bob   | unfinished",
        ]
        assert sorted(program("logs", talk, "-f").stdout.splitlines()) == sorted(lines)
        assert program.ok("logs", talk, "bob", "mute").splitlines()[0] == "bob  | one"

    def test_removed_process(self, program: Program) -> None:
        program.ok("up", program.file("crew", {"kept": FOREVER, "gone": "echo gone"}))
        assert program("logs", "crew", "gone", "--follow").stdout == "gone\n"
        program.ok("up", program.file("crew", {"kept": FOREVER}))
        assert program.ok("logs", "crew", "gone") == "gone\n"
        assert program.ok("logs", "crew", "gone", "kept") == "gone | gone\n"
        assert "no process 'other'" in program("logs", "crew", "other").stderr

    def test_tail_and_since(self, program: Program, talk: str) -> None:
        assert program.ok("logs", talk, "alice", "--tail", "1") == "there\n"
        assert program.ok("logs", talk, "alice", "--tail", "0") == ""
        assert program.ok("logs", talk, "alice", "--since", "1h") == "hi\nthere\n"
        assert program.ok("logs", talk, "alice", "--since", "2999-01-01T00:00:00") == ""

    def test_lines_and_processes_are_selected(self, program: Program, talk: str) -> None:
        assert program.ok("logs", talk, "--grep", "^(there|un.*d)$").splitlines() == [
            "alice | there",
            "bob   | unfinished",
        ]
        assert program.ok("logs", talk, "pair", "--grep", "o$") == "two\n"
        assert program.ok("logs", talk, "a*", "mu*").splitlines()[0] == "alice | hi"
        line, _ = program.ok("logs", talk, "alice", "--timestamps").splitlines()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z hi", line)
        done = program("logs", talk, "--failed")
        assert (done.stdout, done.stderr) == ("", "no selected process of talk has failed\n")
        program.run("bad", {"a": "echo fine", "b": "echo oh; exit 3"})
        assert program.ok("logs", "bad", "--failed") == "oh\n"

    def test_search_that_takes_too_long_is_abandoned(self, program: Program) -> None:
        slow = f"({'a' * 40}) found"
        program.run("rl", {"a": f"echo '{'a' * 40}'; echo '{slow}'; echo other"})
        done = program("logs", "rl", "--grep", r"^(a+)+$|found")
        assert done.stdout == f"{'a' * 40}\n{slow}\n"
        done = program("logs", "rl", "--grep", r"^\(?(a+)+!$|found")
        assert done.stdout == ""
        assert "it takes too long" in done.stderr

    def test_json_output_is_one_object_per_line(self, program: Program, talk: str) -> None:
        output = program.ok("logs", talk, "bob", "--json")
        lines = [json.loads(line) for line in output.splitlines()]
        assert lines == [{"process": "bob", "text": text} for text in ("one", "two", "unfinished")]


class TestRuns:
    def test_the_logs_of_a_deleted_experiment_are_shown(self, program: Program, talk: str) -> None:
        program.ok("delete", "-f", talk)
        done = program("logs", talk)
        assert done.returncode == 2
        assert f"symphony logs --run {talk}" in done.stderr
        assert program.ok("logs", "--run", talk, "alice") == "hi\nthere\n"
        assert json.loads(program.ok("ps", "--run", talk, "--json"))["name"] == talk
        assert f"alice of {talk}" in program.ok("describe", "--run", talk, "alice")
        assert talk in program.ok("graph", "--run", talk)


class TestSave:
    def test_one_file_per_process_remains_after_deletion(self, program: Program, talk: str) -> None:
        output = program.ok("logs", talk, "--save", "kept/logs")
        assert output.splitlines() == [f"kept/logs/{name}.log" for name in ("alice", "bob", "mute")]
        program.ok("delete", "-f", talk)
        saved = {
            file.name: file.read_text() for file in (program.directory / "kept/logs").iterdir()
        }
        assert saved == {
            "alice.log": "hi\nthere\n",
            "bob.log": "one\ntwo\nunfinished",
            "mute.log": "",
        }

    def test_selected_lines_replace_an_existing_file(self, program: Program, talk: str) -> None:
        (program.directory / "bob.log").write_text("of yesterday")
        assert program.ok("logs", talk, "pair/bob", "--tail", "1", "--save", ".") == "bob.log\n"
        assert (program.directory / "bob.log").read_text() == "unfinished"

    def test_follow_saves_until_all_processes_have_exited(self, program: Program) -> None:
        wait = f"until [ -e {program.directory}/go ]; do sleep 0.05; done"
        name = program.launch("rl", {"a": f"echo one; {wait}; echo two"})
        with program.popen("logs", name, "-f", "--save", "logs", stdout=subprocess.PIPE) as running:
            (program.directory / "go").touch()
            assert running.communicate(timeout=TIMEOUT)[0] == "logs/a.log\n"
        assert running.returncode == 0
        assert (program.directory / "logs" / "a.log").read_text() == "one\ntwo\n"

    def test_ctrl_c_stops_following_and_keeps_the_files(self, program: Program) -> None:
        name = program.launch("rl", {"a": f"echo one; {FOREVER}"})
        file = program.directory / "logs" / "a.log"
        with program.popen(
            "logs", name, "-f", "--save", "logs", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as running:
            deadline = time.monotonic() + TIMEOUT
            while not (file.exists() and file.read_text()):
                assert running.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            running.send_signal(signal.SIGINT)
            assert running.communicate(timeout=TIMEOUT) == ("logs/a.log\n", "")
        assert running.returncode == 130
        assert file.read_text() == "one\n"

    def test_directory_that_cannot_be_created(self, program: Program, talk: str) -> None:
        (program.directory / "file").touch()
        done = program("logs", talk, "--save", "file")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "symphony: error: file: cannot be used as the directory of the logs: File exists\n"
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--previous"], "keeps one log of a process"),
        (["--previous", "-f"], "--previous and --follow cannot be combined"),
        (["--previous", "--save", "x"], "--previous and --save cannot be combined"),
        (["--previous", "--timestamps"], "--previous and --timestamps cannot be combined"),
        (["--save", "x", "--grep", "x"], "--save and --grep cannot be combined"),
        (["--grep", "("], "--grep: '(' is not a regular expression"),
        (["--grep", "[[:digit:]]"], "--grep: '[[:digit:]]' is not a regular expression: possible"),
        (["--save", "x", "--json"], "--save and --json cannot be combined"),
    ],
)
def test_options_that_cannot_be_used(finished: Program, options: list[str], message: str) -> None:
    done = finished("logs", "talk", *options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
