"""``symphony delete``."""

from __future__ import annotations

import json
import os
import re
import time

import pytest

from tests.cli.conftest import FOREVER, Program


@pytest.fixture
def rl(program: Program) -> str:
    """A running experiment with one process."""
    return program.launch("rl", {"a": FOREVER})


@pytest.fixture
def finished(program: Program) -> None:
    """Two finished experiments."""
    program.run("sarah-rl", {"a": "true"})
    program.run("sarah-sweep", {"a": "true"})


def test_force_stops_and_deletes_all_named_experiments(program: Program, rl: str) -> None:
    pid = program.cluster.describe_process(rl, "a").pid
    program.run("other", {"a": "true"})
    assert program.ok("delete", "--force", rl, "other") == "deleted rl\ndeleted other\n"
    assert program.state_entries() == []
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_forced_deletions_stop_all_processes_at_the_same_time(program: Program) -> None:
    """The processes of both experiments exit when all have received SIGTERM."""
    directory = program.directory
    keys = ["sweep-1-a", "sweep-1-b", "sweep-2-a", "sweep-2-b"]
    have_all = " && ".join(f"[ -e {directory}/{key}.asked ]" for key in keys)
    for name in ("sweep-1", "sweep-2"):
        processes = {}
        for letter in "ab":
            file = f"{directory}/{name}-{letter}"
            wait = f"touch {file}.asked; until {have_all}; do sleep 0.05; done"
            trap = f"trap '{wait}; touch {file}.done; exit' TERM"
            processes[letter] = {
                "cmd": f"{trap}; echo ready; while :; do sleep 0.1; done",
                "ready": {"log": "ready"},
                "termination_grace_period": 5,
            }
        processes["b"]["starts_after"] = "a"
        program.ok("launch", program.file(name, processes), "--wait", "ready")
    assert program.ok("delete", "-f", "sweep-*") == "deleted sweep-1\ndeleted sweep-2\n"
    assert sorted(path.stem for path in directory.glob("*.done")) == keys


def test_deletion_now_kills_at_once(program: Program) -> None:
    process = {"cmd": "trap '' TERM; echo ready; sleep 1000", "ready": {"log": "ready"}}
    program.ok("launch", program.file("rl", {"stubborn": process}), "--wait", "ready")
    began = time.monotonic()
    assert program.ok("down", "rl", "--now") == "deleted rl\n"
    assert time.monotonic() - began < 10


def test_finished_experiments_are_deleted_but_none_that_can_be_started_again(
    program: Program, rl: str, finished: None
) -> None:
    program.launch("stopped", {"a": FOREVER})
    program.ok("stop", "stopped", "--now")
    dry = program("delete", "--finished", "--dry-run")
    assert dry.stderr.splitlines() == [
        f"would delete {name} succeeded: 1 succeeded" for name in ("sarah-rl", "sarah-sweep")
    ]
    assert program.ok("delete", "--finished", "-f") == "deleted sarah-rl\ndeleted sarah-sweep\n"
    assert program.state_entries() == [rl, "stopped"]
    assert "nothing to delete" in program("delete", "--finished").stderr
    assert program("delete", "--finished", rl).returncode == 2


def test_input_that_is_not_a_terminal_is_not_an_answer(program: Program, rl: str) -> None:
    done = program("delete", rl, input="y\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert program.state_entries() == [rl]


def test_unknown_name_deletes_nothing(program: Program, rl: str) -> None:
    program.run("other", {"a": "true"})
    done = program("delete", rl, "othr")
    assert done.returncode == 2
    assert "no experiment 'othr'; did you mean 'other'?" in done.stderr
    assert program.state_entries() == ["other", rl]


def test_process_is_not_deleted(program: Program, rl: str) -> None:
    for options in ([], ["--force"]):
        done = program("delete", *options, f"{rl}/a")
        assert done.returncode == 2
        assert done.stderr.endswith(f"to stop a process, use: symphony stop {rl}/a\n")
    assert program.state_entries() == [rl]


def test_unknown_name_is_ignored_with_force(program: Program, rl: str) -> None:
    done = program("delete", "-f", "nothing", rl)
    assert (done.returncode, done.stdout) == (0, "deleted rl\n")
    assert done.stderr.startswith("no experiment 'nothing'")
    assert program.json("delete", "-f", "nothing") == []


@pytest.mark.parametrize("content", ["", '{"experiment": ', "{}", "null"])
def test_experiment_with_a_broken_record_can_be_deleted(
    program: Program, rl: str, content: str
) -> None:
    pid = program.cluster.describe_process(rl, "a").pid
    (program.state / "local" / rl / "manifest.json").write_text(content)
    done = program("delete", "--dry-run", rl)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(
        "would delete rl (status unknown: the record of experiment 'rl' is damaged"
    )
    assert program.json("delete", "--dry-run", rl) == [rl]
    assert "--force" in program("delete", rl).stderr
    assert program.ok("delete", "-f", rl) == "deleted rl\n"
    assert program.state_entries() == []
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_error_for_one_experiment_does_not_prevent_the_others(program: Program) -> None:
    """An unfinished experiment of another host cannot be deleted from a shared home directory."""
    for name in ("away", "here"):
        program.run(name, {"a": "true"})
    events = program.state / "local" / "away" / "events.jsonl"
    events.write_text(events.read_text().partition('{"event":"finished"')[0])
    record = program.state / "local" / "away" / "supervisor.json"
    original = record.read_text()
    record.write_text(json.dumps({**json.loads(original), "host": "elsewhere", "boot": "another"}))
    done = program("delete", "-f", "away", "here")
    record.write_text(original)
    assert (done.returncode, done.stdout) == (3, "deleted here\n")
    assert re.fullmatch(r"symphony: error: .*elsewhere.*\n", done.stderr)


def test_interrupted_deletion_kills_what_ignores_sigterm(program: Program) -> None:
    """The deletion says what it waits for, and Ctrl-C skips the grace period."""
    name = program.launch("rl", {"stubborn": "trap '' TERM; while :; do sleep 0.1; done"})
    terminal = program.terminal("delete", "-f", name)
    terminal.expect("s for stubborn to exit (kill in ")
    terminal.expect("; Ctrl-C kills")
    terminal.press("\x03")
    terminal.expect("symphony: killing 'rl'")
    terminal.expect("deleted rl")
    assert terminal.finish() == 0
    assert program.state_entries() == []


@pytest.mark.usefixtures("finished")
class TestNames:
    def test_names_must_be_complete(self, program: Program) -> None:
        assert program("delete", "rl", "-f").returncode == 0
        assert program("delete", "rl").returncode == 2
        assert program.state_entries() == ["sarah-rl", "sarah-sweep"]


@pytest.mark.usefixtures("finished")
class TestPatterns:
    def test_matching_experiments_are_deleted(self, program: Program) -> None:
        program.run("other", {"p": "true"})
        program.run("third", {"p": "true"})
        names = program.json("delete", "third", "sarah-[rs]*", "-f")
        assert names == ["third", "sarah-rl", "sarah-sweep"]
        assert program.state_entries() == ["other"]
        assert program.ok("delete", "--all", "-f") == "deleted other\n"

    def test_confirmation_is_required(self, program: Program) -> None:
        assert program("delete", "sarah-*").returncode == 2
        terminal = program.terminal("delete", "*sweep")
        terminal.expect("delete sarah-sweep succeeded: 1 succeeded? [y/N]")
        terminal.press("n\n")
        terminal.expect("nothing was deleted")
        assert terminal.finish() == 1
        assert program.state_entries() == ["sarah-rl", "sarah-sweep"]

    def test_pattern_without_a_match(self, program: Program) -> None:
        """The old names of the command are aliases."""
        assert "no experiment matches 'tom-*'" in program("delete-batch", "tom-*").stderr
        done = program("delete-batch", "tom-*", "-f")
        assert (done.returncode, done.stderr) == (0, "no experiment matches; nothing to delete\n")

    @pytest.mark.parametrize("words", [(), ("rl", "--all")])
    def test_either_names_or_all_is_required(
        self, program: Program, words: tuple[str, ...]
    ) -> None:
        assert "quotes such as 'rl-*', or pass --all" in program("delete", *words).stderr
