"""Each verb in a pipe: its output, its JSON, its exit code."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from symphony import __version__
from symphony.host.run.directory import RunDirectory
from symphony.host.processes.control import wait_for_exit
from tests.cli.conftest import FOREVER, TIMEOUT, Program, after_the_end, telling


@pytest.fixture
def rl(program: Program) -> str:
    """An experiment that goes on: one process, and a group of two."""
    workers = {
        "processes": {"w0": {"cmd": f"echo zero; {FOREVER}"}, "w1": {"cmd": f"echo one; {FOREVER}"}}
    }
    return program.launched("rl", {"learner": f"echo learning; {FOREVER}", "workers": workers})


class TestLaunch:
    def test_says_what_was_launched_and_how_to_go_on(self, program: Program) -> None:
        shown = program.ok("launch", program.file("rl", {"a": FOREVER, "b": FOREVER}))
        first, *hints = shown.splitlines()
        assert first == "launched rl on local: 2 processes"
        assert [hint.split("  ")[1] for hint in hints] == [
            "symphony ps rl",
            "symphony logs -f rl",
            "symphony delete rl",
        ]
        assert program.cluster.list_experiments() == ["rl"]

    def test_the_hints_name_the_backend_that_was_asked_for(self, program: Program) -> None:
        shown = program.ok("launch", program.file("rl", {"a": "true"}), "-b", "SubProcess")
        assert "symphony ps -b SubProcess rl" in shown

    def test_json_is_the_manifest(self, program: Program) -> None:
        manifest = program.json("launch", program.file("rl", {"a": "true"}))
        assert manifest["experiment"] == "rl"
        assert [process["name"] for process in manifest["processes"]] == ["a"]

    @pytest.mark.parametrize("verb", [["launch", "--dry-run"], ["render"]])
    def test_a_dry_run_starts_nothing(self, program: Program, verb: list[str]) -> None:
        file = program.file("rl", {"a": {"cmd": "true", "container_image": "rl:1"}})
        shown = program.ok(*verb, file)
        assert "experiment: rl" in shown
        assert "container_image" in shown  # listed as ignored
        assert program.json(*verb, file)["experiment"] == "rl"
        assert program.left() == []

    def test_force_replaces_a_live_one(self, program: Program, rl: str) -> None:
        program.ok("launch", program.file("rl", {"other": FOREVER}), "--force")
        assert [process["name"] for process in program.json("ps", rl)["processes"]] == ["other"]

    def test_one_that_has_ended_gives_way(self, program: Program) -> None:
        program.ended("rl", {"a": "true"})
        program.ok("launch", program.file("rl", {"b": "true"}))

    def test_wait_returns_when_all_are_ready(self, program: Program) -> None:
        file = program.file(
            "rl", {"a": {"cmd": f"echo up; {FOREVER}", "ready": {"log": "^up"}}, "b": "true"}
        )
        assert program.ok("launch", file, "--wait", "ready").startswith("launched rl ")
        assert program.cluster.describe_process("rl", "a").ready

    @pytest.mark.parametrize("form", [[], ["--json"]])
    def test_wait_fails_with_what_failed(self, program: Program, form: list[str]) -> None:
        never = {"ready": {"command": ["false"]}}
        file = program.file("rl", {"good": FOREVER, "bad": {"cmd": "sleep 0.3; exit 5", **never}})
        done = program("launch", file, "--wait", "ready", *form)
        assert (done.returncode, done.stderr) == (5, "bad failed: exit code 5\n")
        if form:
            assert json.loads(done.stdout)["experiment"] == "rl"
        else:
            assert done.stdout.startswith("launched rl on local: 2 processes\n")
        assert program.cluster.describe_process("rl", "good").state.value == "running"

    def test_wait_ends_when_readiness_is_given_up(self, program: Program) -> None:
        late = {"cmd": FOREVER, "ready": {"command": ["false"], "timeout": 0.3}}
        file = program.file("rl", {"late": late, "next": {"cmd": "true", "starts_after": "late"}})
        done = program("launch", file, "--wait", "ready")
        assert (done.returncode, done.stderr.splitlines()) == (
            1,
            [
                "next failed: never started: late was not ready within 0.3 s",
                "late running: not ready within 0.3 s",
            ],
        )
        (shown, _) = program.json("ps", "rl")["processes"]
        assert (shown["state"], shown["late"]) == ("running", True)

    def test_a_failure_decides_before_what_is_late(self, program: Program) -> None:
        never = {"command": ["false"]}
        late = {"cmd": FOREVER, "ready": {**never, "timeout": 0.3}}
        file = program.file("rl", {"late": late, "bad": {"cmd": "exit 7", "ready": never}})
        done = program("launch", file, "--wait", "ready")
        assert (done.returncode, done.stderr.splitlines()) == (
            7,
            ["bad failed: exit code 7", "late running: not ready within 0.3 s"],
        )

    def test_waiting_for_the_start_of_what_cannot_start(self, program: Program) -> None:
        broken = program.folder / "broken"
        broken.write_bytes(b"\x7fELF, or so it says")
        broken.chmod(0o755)
        late = {"cmd": FOREVER, "ready": {"command": ["false"], "timeout": 0.1}}
        later = {"command": str(broken), "starts_after": {"first": "succeeded"}}
        done = program(
            "launch",
            program.file("rl", {"first": "true", "a": later, "late": late}),
            "--wait",
            "started",
        )
        assert done.returncode == 1
        assert re.fullmatch(r"a failed: cannot be started with '.*/broken': .*\n", done.stderr)

    def test_name_overrides_that_of_the_file(self, program: Program) -> None:
        (program.folder / "sub").mkdir()
        file = program.file("rl", {"a": "pwd"}).rename(program.folder / "sub" / "rl.yml")
        assert program.ok("launch", file, "--name", "rl-2").startswith("launched rl-2 ")
        program.cluster.wait("rl-2", timeout=30)
        assert program.ok("logs", "rl-2") == f"{program.folder / 'sub'}\n"


class TestLs:
    def test_nothing_is_a_header_alone(self, program: Program) -> None:
        assert program.ok("ls").split() == [
            "NAME",
            "STATE",
            "PROCESSES",
            "READY",
            "FAILED",
            "AGE",
            "NOTE",
        ]

    def test_a_row_for_each(self, program: Program, rl: str) -> None:
        program.ended("bad", {"a": "exit 3", "b": "true"})
        header, *rows = program.ok("ls").splitlines()
        words = [row.split() for row in rows]
        assert [row[:5] for row in words] == [
            ["bad", "failed", "2", "0", "1"],
            ["rl", "running", "3", "3", "0"],
        ]
        assert header.index("STATE") == rows[0].index("failed") == rows[1].index("running")
        assert [(e["name"], e["state"]) for e in program.json("ls")] == [
            ("bad", "failed"),
            ("rl", "running"),
        ]

    def test_the_backend_may_stand_before_the_verb_or_in_the_environment(
        self, program: Program, rl: str
    ) -> None:
        for shown in (
            program.ok("-b", "local", "ls"),
            program.ok("ls", SYMPHONY_BACKEND="subprocess"),
        ):
            assert "rl" in shown
        assert program("ls", SYMPHONY_BACKEND="nowhere").returncode == 2
        assert program("-b", "local", "ls", SYMPHONY_BACKEND="nowhere").returncode == 0


class TestPs:
    def test_a_row_for_each_process(self, program: Program, rl: str) -> None:
        header, *rows = program.ok("ps", rl).splitlines()
        assert header.split() == [
            "NAME",
            "STATE",
            "READY",
            "EXIT",
            "RESTARTS",
            "AGE",
            "PID",
            "REASON",
        ]
        cells = [row.split() for row in rows]
        assert [row[0] for row in cells] == ["learner", "workers/w0", "workers/w1"]
        assert {tuple(row[1:5]) for row in cells} == {("running", "yes", "-", "0")}
        for row in cells:
            os.kill(int(row[6]), 0)

    def test_exit_codes_and_reasons(self, program: Program) -> None:
        program.ended("rl", {"good": "true", "bad": "exit 7", "dead": "kill -KILL $$"})
        rows = {row.split()[0]: row for row in program.ok("ps", "rl").splitlines()}
        assert rows["good"].split()[1:4] == ["succeeded", "no", "0"]
        assert rows["bad"].split()[1:4] == ["failed", "no", "7"]
        assert rows["dead"].split()[1:4] == ["failed", "no", "137"]
        assert rows["dead"].endswith("killed by SIGKILL")

    def test_a_supervisor_that_died_is_told(self, program: Program, rl: str) -> None:
        supervisor = RunDirectory(program.state / "local" / rl).supervisor()
        assert supervisor is not None
        os.kill(supervisor.pid, signal.SIGKILL)
        assert wait_for_exit(supervisor, TIMEOUT)
        done = program("wait", rl, "--timeout", "0.2")
        assert done.returncode == 1
        done = program("ps", rl)
        assert done.returncode == 0
        assert "the supervisor was killed" in done.stderr

    def test_json_has_what_the_status_has(self, program: Program, rl: str) -> None:
        status = program.json("ps", rl)
        assert status["state"] == "running"
        assert [process["group"] for process in status["processes"]] == [None, "workers", "workers"]


class TestLogs:
    @pytest.fixture
    def talk(self, program: Program) -> str:
        group = {"processes": {"bob": {"cmd": "printf 'one\\ntwo\\nunfinished'"}}}
        return program.ended(
            "talk", {"alice": "echo hi; sleep 0.2; echo there", "pair": group, "mute": "true"}
        )

    def test_one_process_is_shown_as_it_is(self, program: Program, talk: str) -> None:
        assert program.ok("logs", talk, "bob") == "one\ntwo\nunfinished"
        assert program.ok("logs", talk, "pair/bob", "bob") == "one\ntwo\nunfinished"
        assert program.ok("logs", talk, "bob", "--follow") == "one\ntwo\nunfinished\n"
        assert program.ok("logs", talk, "mute") == ""

    def test_several_have_their_names_before_their_lines(self, program: Program, talk: str) -> None:
        lines = program.ok("logs", talk).splitlines()
        assert sorted(lines) == [
            "alice | hi",
            "alice | there",
            "bob   | one",
            "bob   | two",
            "bob   | unfinished",
        ]
        assert sorted(program.ok("logs", talk, "-f").splitlines()) == sorted(lines)
        assert program.ok("logs", talk, "bob", "mute").splitlines()[0] == "bob  | one"

    def test_tail_and_since(self, program: Program, talk: str) -> None:
        assert program.ok("logs", talk, "alice", "--tail", "1") == "there\n"
        assert program.ok("logs", talk, "alice", "--tail", "0") == ""
        assert program.ok("logs", talk, "alice", "--since", "1h") == "hi\nthere\n"
        assert program.ok("logs", talk, "alice", "--since", "2999-01-01T00:00:00") == ""

    def test_json_is_a_line_each(self, program: Program, talk: str) -> None:
        lines = [
            json.loads(line) for line in program.ok("logs", talk, "bob", "--json").splitlines()
        ]
        assert lines == [{"process": "bob", "text": text} for text in ("one", "two", "unfinished")]

    def test_a_wrong_group_is_an_error(self, program: Program, talk: str) -> None:
        done = program("logs", talk, "other/bob")
        assert done.returncode == 2
        assert "in group 'pair', not in 'other'" in done.stderr

    def test_bytes_that_are_no_text_are_replaced_in_any_locale(self, program: Program) -> None:
        program.ended("odd", {"a": "printf 'caf\\303\\251 \\377\\n'"})
        assert program.ok("logs", "odd") == "café \N{REPLACEMENT CHARACTER}\n"
        assert program.ok("logs", "odd", PYTHONIOENCODING="ascii") == "caf? ?\n"


class TestWait:
    def test_the_first_failure_decides(self, program: Program) -> None:
        first = program.folder / "first"
        bad = {"late": f"{after_the_end(first)}exit 4", "first": f"{telling(first)}exit 3"}
        program.launched("rl", {**bad, "good": "true"})
        done = program("wait", "rl")
        assert (done.returncode, done.stdout) == (3, "rl failed: 2 failed, 1 succeeded\n")
        assert done.stderr.splitlines() == ["first failed: exit code 3", "late failed: exit code 4"]
        assert program.json("wait", "rl", code=3)["exit_code"] == 3

    def test_all_succeeded(self, program: Program) -> None:
        program.launched("rl", {"a": "true"})
        assert program.ok("wait", "rl", "--timeout", "30s") == "rl succeeded: 1 succeeded\n"

    def test_the_time_is_up(self, program: Program, rl: str) -> None:
        done = program("wait", rl, "--timeout", "0.1")
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(
            r"symphony: error: .*is still running after 0.1 s: learner.*\n", done.stderr
        )

    def test_what_symphony_stopped_is_no_failure(self, program: Program, rl: str) -> None:
        program.cluster.stop(rl)  # type: ignore[attr-defined]
        assert program.ok("wait", rl) == "rl stopped: 3 stopped\n"


class TestExec:
    def test_runs_in_the_environment_of_the_process(self, program: Program, rl: str) -> None:
        done = program(
            "exec", rl, "workers/w1", "--", "sh", "-c", "echo $SYMPHONY_ROLE; echo oh >&2; exit 5"
        )
        assert (done.returncode, done.stdout, done.stderr) == (5, "w1\n", "oh\n")

    def test_what_follows_the_first_dashes_is_untouched(self, program: Program, rl: str) -> None:
        words = ["--json", "-b", "nowhere", "--", "--help", "", "a b"]
        assert program.ok("exec", rl, "learner", "--", "printf", "%s|", *words) == "".join(
            f"{w}|" for w in words
        )

    def test_standard_input_and_bytes_pass(self, program: Program, rl: str) -> None:
        assert (
            program("exec", rl, "learner", "--", "cat", input="to and fro").stdout == "to and fro"
        )

    def test_json(self, program: Program, rl: str) -> None:
        done = program(
            "exec", rl, "learner", "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 6"
        )
        assert done.returncode == 6
        assert json.loads(done.stdout) == {"exit_code": 6, "stdout": "out\n", "stderr": "err\n"}

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["learner"], "the command must follow --: symphony exec rl learner -- CMD..."),
            (["learner", "--"], "the command must follow --"),
            (["learner", "ls"], "the command must follow --: symphony exec rl learner -- ls"),
            (["lerner", "--", "ls"], "did you mean 'learner'?"),
            (["x/w1", "--", "ls"], "is in group 'workers', not in 'x'"),
            (["learner", "--", "no-such-program"], "cannot run 'no-such-program'"),
        ],
    )
    def test_wrong_use(self, program: Program, rl: str, words: list[str], said: str) -> None:
        done = program("exec", rl, *words)
        assert done.returncode == 2
        assert said in done.stderr


class TestDelete:
    def test_a_script_must_say_force(self, program: Program, rl: str) -> None:
        done = program("delete", rl, input="y\n")
        assert (done.returncode, done.stdout) == (2, "")
        assert "--force" in done.stderr
        assert program.cluster.list_experiments() == [rl]

    def test_force_deletes_all_that_are_named(self, program: Program, rl: str) -> None:
        pid = program.cluster.describe_process(rl, "learner").pid
        program.ended("other", {"a": "true"})
        assert program.ok("delete", "--force", rl, "other") == "deleted rl\ndeleted other\n"
        assert program.left() == []
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_what_is_not_there(self, program: Program, rl: str) -> None:
        program.ended("other", {"a": "true"})
        done = program("delete", rl, "othr")
        assert done.returncode == 2
        assert "no experiment 'othr'; did you mean 'other'?" in done.stderr
        assert program.left() == ["other", rl]
        done = program("delete", "-f", "othr", rl)
        assert (done.returncode, done.stdout) == (0, "deleted rl\n")
        assert done.stderr.startswith("no experiment 'othr'; did you mean 'other'?")
        assert program.json("delete", "-f", "othr") == []

    @pytest.mark.parametrize("content", ["", '{"experiment": ', "{}", "null"])
    def test_one_whose_record_is_broken(self, program: Program, rl: str, content: str) -> None:
        pid = program.cluster.describe_process(rl, "learner").pid
        program.ended("other", {"a": "true"})
        (program.state / "local" / rl / "manifest.json").write_text(content)
        done = program("ls")
        assert done.returncode == 3
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["NAME", "other"]
        assert done.stderr.startswith("symphony: error: the record of experiment 'rl' is damaged")
        done = program("delete", "--dry-run", rl)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.startswith(
            "would delete rl (status unknown: the record of experiment 'rl' is damaged"
        )
        assert program.json("delete", "--dry-run", rl) == [rl]
        assert "--force" in program("delete", rl).stderr
        assert program.ok("delete", "-f", rl) == "deleted rl\n"
        assert program.left() == ["other"]
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_trouble_with_one_does_not_keep_the_others(self, program: Program) -> None:
        """An experiment on another host, of a home directory that hosts share."""
        for name in ("away", "here"):
            program.ended(name, {"a": "true"})
        record = program.state / "local" / "away" / "supervisor.json"
        signed = json.loads(record.read_text())
        record.write_text(json.dumps({**signed, "host": "elsewhere", "boot": "another"}))
        done = program("delete", "-f", "away", "here")
        record.write_text(json.dumps(signed))
        assert (done.returncode, done.stdout) == (3, "deleted here\n")
        assert re.fullmatch(r"symphony: error: .*elsewhere.*\n", done.stderr)


class TestTheRest:
    def test_backends(self, program: Program) -> None:
        header, *rows = program.ok("backends").splitlines()
        assert header.split() == ["NAME", "ALIASES", "CAN", "SUMMARY"]
        assert rows[1].split()[:2] == ["local", "subproc,subprocess"]
        (local,) = [info for info in program.json("backends") if info["name"] == "local"]
        assert "launch" in local["capabilities"]

    def test_version_and_help(self, program: Program) -> None:
        assert program.ok("--version") == f"symphony {__version__}\n"
        assert program.ok() == program.ok("--help")


class TestAttach:
    @pytest.mark.parametrize("verb", ["attach", "ssh"])
    def test_a_backend_without_terminals_says_what_to_do(
        self, program: Program, rl: str, verb: str
    ) -> None:
        done = program(verb, rl, "workers/w1")
        assert (done.returncode, done.stdout) == (2, "")
        assert (
            "the local backend cannot attach a terminal to 'w1'; 'symphony exec' runs a command in its environment, 'symphony logs -f' follows its log"
            in done.stderr
        )
