"""Scenarios for the command line that hold on every backend.

The tests of each backend inherit them.
Most scenarios use one experiment, ``scene``, which keeps running. A scenario that changes an
experiment launches another one.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.cli.conftest import TIMEOUT, Program
from tests.cli.terminal import INTERRUPT, Terminal
from tests.cli.top_scenario import TopScenario
from tests.web.scenario import PageScenario

SLEEP = "exec sleep 1000"
STOPS_ON_TERM = "trap 'echo bye; exit 0' TERM; echo up; sleep 1000 & wait"
RUNNING_PROCESSES = ["learner", "crew/agent-0", "crew/agent-1"]
CYAN = "\x1b[36m"


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalResult:
    """The text and the exit code of a program that ran in a pseudo-terminal."""

    text: str
    code: int


class Scenarios(TopScenario, PageScenario):
    """The scenarios. A subclass has a class-scoped fixture ``cli`` that selects the backend."""

    # Settings that keep a process pending for good.
    pending_settings: ClassVar[dict[str, Any]] = {"starts_after": {"learner": "succeeded"}}
    # The beginning of the reason that ``ps`` shows for such a process.
    pending_reason: ClassVar[str] = "waiting for learner to succeed"
    # The option for a dry run that looks at existing experiments.
    dry_run_option: ClassVar[str] = "--dry-run"
    exec_needs_running_process: ClassVar[bool] = False
    # Whether processes of this backend run on several nodes, which ``ps`` shows.
    has_nodes: ClassVar[bool] = False

    @pytest.fixture(scope="class")
    @classmethod
    def launch(cls, cli: Program) -> TerminalResult:
        """Launch ``scene`` on a terminal, and wait for the output of its processes."""
        crew = {f"agent-{number}": {"cmd": f"echo here {number}; {SLEEP}"} for number in range(2)}
        file = cli.file(
            "scene",
            {
                "learner": {"cmd": f"echo up; echo ready; {SLEEP}", "binds": "replay"},
                "crew": {"processes": crew},
                "late": {"cmd": "true", **cls.pending_settings},
            },
        )
        terminal = cli.terminal("launch", file)
        result = TerminalResult(code=terminal.finish(), text=terminal.text)
        if result.code == 0:
            wait_for_lines(cli, "learner", 2)
            wait_for_lines(cli, "agent-0", 1)
            wait_for_lines(cli, "agent-1", 1)
            wait_for_reason(cli, cls.pending_reason)
        return result

    @pytest.fixture(scope="class")
    @classmethod
    def scene(cls, launch: TerminalResult) -> str:
        assert launch.code == 0, launch.text
        return "scene"

    @pytest.fixture(scope="class")
    @classmethod
    def failed(cls, cli: Program) -> subprocess.CompletedProcess[str]:
        """An experiment with a failure that was followed until it finished."""
        processes = {"good": "echo fine", "bad": "sleep 0.3; echo oh; exit 7"}
        return cli("launch", cli.file("failed", processes), "--follow")

    # --- launch ---

    def test_launch_shows_progress_and_next_commands(
        self, cli: Program, launch: TerminalResult
    ) -> None:
        progress, _, output = launch.text.rpartition("\r")
        assert "launching scene (4 processes)" in progress
        first, *hints = output.splitlines()
        assert first == f"launched scene on {self.backend}: 4 processes"
        assert [line.split("  ")[1] for line in hints] == [
            "symphony ps scene",
            "symphony logs -f scene",
            "symphony delete scene",
        ]

    def test_name_of_a_running_experiment_is_refused(self, cli: Program, scene: str) -> None:
        file = cli.directory / "scene.yml"
        for words in (["launch", file], ["launch", file, self.dry_run_option]):
            assert "'scene' is running" in refuse(cli, *words)
        submit = ["submit", "--name", scene, self.dry_run_option, "--", "true"]
        assert "job 'scene' already exists (running)" in refuse(cli, *submit)
        assert cli.json("ps", scene)["state"] == "running"

    def test_dry_run_shows_the_manifest(self, cli: Program, scene: str) -> None:
        file = cli.directory / "scene.yml"
        assert "replay" in cli.ok("render", file)
        assert "replay" in cli.ok("launch", file, "--dry-run", "--force")
        if self.dry_run_option != "--dry-run":
            assert "replay" in cli.ok("launch", file, "--dry-run")

    def test_follow_exits_with_the_exit_code_of_the_experiment(
        self, failed: subprocess.CompletedProcess[str]
    ) -> None:
        assert failed.returncode == 7
        assert sorted(failed.stdout.splitlines()) == ["bad  | oh", "good | fine"]
        # If the processes start slowly, as on a busy cluster, the reasons are reported too.
        messages = [line for line in failed.stderr.splitlines() if ": pending: " not in line]
        assert messages[0] == f"launched failed on {self.backend}: 2 processes"
        exits = ["symphony: process bad exited with 7", "symphony: process good exited with 0"]
        assert sorted(line for line in messages if line.startswith("symphony: ")) == exits
        assert re.fullmatch(r"failed failed after \S+ s with exit code 7: .*", messages[-2])
        assert messages[-1] == "bad failed: exit code 7"

    def test_ctrl_c_stops_a_followed_experiment(self, cli: Program) -> None:
        terminal = cli.terminal("launch", cli.file("stopped", {"a": STOPS_ON_TERM}), "--follow")
        terminal.expect("up")
        terminal.press(INTERRUPT)
        terminal.expect("symphony: stopping 'stopped'; press Ctrl-C again to kill it")
        assert terminal.finish() == 130
        assert "bye" in terminal.text
        assert "Traceback" not in terminal.text
        states = [status["state"] for status in cli.json("ls") if status["name"] == "stopped"]
        assert "running" not in states

    # --- state ---

    def test_ls(self, cli: Program, scene: str) -> None:
        header, *rows = cli.ok("ls").splitlines()
        assert header.split()[:5] == ["NAME", "STATE", "PROCESSES", "READY", "FAILED"]
        assert [row.split()[:5] for row in rows if row.startswith("scene ")] == [
            ["scene", "running", "4", "3/4", "0"]
        ]
        assert f"{CYAN}running" in run_in_terminal(cli, "ls").shown

    def test_ps(self, cli: Program, scene: str) -> None:
        header, *rows = cli.ok("ps", scene).splitlines()
        places = ["PID", "NODE"] if self.has_nodes else ["PID"]
        assert header.split() == [
            "NAME", "STATE", "READY", "EXIT", "RESTARTS", "AGE", *places, "REASON",
        ]  # fmt: skip
        assert [row.split()[:5] for row in rows[:3]] == [
            [name, "running", "yes", "-", "0"] for name in RUNNING_PROCESSES
        ]
        assert rows[3].split()[:6] == ["late", "pending", "no", "-", "0", "-"]
        assert f"  {self.pending_reason}" in rows[3]
        narrow = run_in_terminal(cli, "ps", scene, width=60)
        assert max(map(len, narrow.text.splitlines())) <= 60
        assert f"{CYAN}running" in narrow.shown

    def test_watch_refreshes_in_place_until_ctrl_c(self, cli: Program, scene: str) -> None:
        terminal = cli.terminal("ps", scene, "-w")
        terminal.expect("late")
        # The table is drawn again because the ages have changed.
        terminal.expect("\x1b[5F\x1b[J", escapes=True)
        terminal.press(INTERRUPT)
        assert terminal.finish() == 130
        assert "Traceback" not in terminal.text

    def test_describe(self, cli: Program, scene: str) -> None:
        output = cli.ok("describe", scene, "agent-1").splitlines()
        lines = {line.split()[0]: line for line in output}
        assert lines["process"].endswith("crew/agent-1 of scene")
        assert lines["state"].endswith("running, ready")
        assert "replay" in lines
        assert lines["here"] == "  here 1"
        assert cli.json("describe", scene, "late")["reason"].startswith(self.pending_reason)

    def test_describe_failed_process(self, cli: Program, failed: object) -> None:
        details = cli.json("describe", "failed", "bad")
        assert (details["state"], details["exit_code"]) == ("failed", 7)
        assert details["events"]

    def test_wait(self, cli: Program, scene: str, failed: object) -> None:
        done = cli("wait", "failed")
        assert (done.returncode, done.stdout) == (7, "failed failed: 1 succeeded, 1 failed\n")
        assert done.stderr == "bad failed: exit code 7\nlast lines (of bad):\n  oh\n"
        refuse(cli, "wait", scene, "--timeout", "0.1", code=124)
        terminal = cli.terminal("wait", scene)
        terminal.expect("waiting for scene (3 running, 1 pending)")
        terminal.press(INTERRUPT)
        assert terminal.finish() == 130

    # --- logs ---

    def test_logs(self, cli: Program, scene: str) -> None:
        assert cli.ok("logs", scene, "learner") == "up\nready\n"
        assert cli.ok("logs", scene, "learner", "--tail", "1") == "ready\n"
        merged = cli.ok("logs", scene, "learner", "crew/agent-0").splitlines()
        assert sorted(merged) == ["agent-0 | here 0", "learner | ready", "learner | up"]
        line = json.loads(cli.ok("logs", scene, "agent-1", "--json"))
        assert line == {"process": "agent-1", "text": "here 1"}

    def test_ctrl_c_stops_following_and_the_experiment_keeps_running(
        self, cli: Program, scene: str
    ) -> None:
        terminal = cli.terminal("logs", "-f", scene, "learner")
        terminal.expect("up\nready\n")
        terminal.press(INTERRUPT)
        assert terminal.finish() == 130
        # On Kubernetes, a message can say before that the start of the process is slow.
        assert terminal.text.endswith("up\nready\n^C"), terminal.text
        assert cli.json("ps", scene)["state"] == "running"

    def test_following_exits_quietly_when_the_pipe_is_closed(self, cli: Program) -> None:
        name = cli.launch("chatty", {"a": "while :; do echo more; sleep 0.1; done"})
        with cli.popen(
            "logs", "-f", name, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as following:
            assert following.stdout is not None
            assert following.stderr is not None
            assert following.stdout.readline() == "more\n"
            following.stdout.close()
            assert (following.wait(TIMEOUT), following.stderr.read()) == (141, "")

    def test_process_without_output(self, cli: Program, scene: str) -> None:
        assert cli.ok("logs", scene, "late") == ""
        assert cli.ok("logs", scene, "late", "learner").startswith("learner | up\n")
        text = run_in_terminal(cli, "logs", scene, "late").text
        assert text.startswith(f"late has no output (pending: {self.pending_reason}")
        assert text.count("\n") == 1

    # --- exec ---

    def test_command_after_the_dashes_is_passed_on_unchanged(
        self, cli: Program, scene: str
    ) -> None:
        words = ["--json", "-b", "nowhere", "--", "--help", "", "a b", "$HOME"]
        output = cli.ok("exec", scene, "learner", "--", "printf", "%s|", *words)
        assert output == "".join(f"{word}|" for word in words)

    def test_exec_has_streams_environment_and_exit_code(self, cli: Program, scene: str) -> None:
        script = 'cat; echo "$SYMPHONY_GROUP/$SYMPHONY_ROLE"; echo oh >&2; exit 5'
        done = cli("exec", scene, "crew/agent-1", "--", "sh", "-c", script, input="in and ")
        assert (done.returncode, done.stdout, done.stderr) == (5, "in and crew/agent-1\n", "oh\n")

    def test_exec_has_the_terminal(self, cli: Program, scene: str) -> None:
        script = "test -t 0 && test -t 1 && echo go && read x && exit $x"
        terminal = cli.terminal("exec", scene, "learner", "--", "sh", "-c", script)
        terminal.expect("go")
        terminal.press("6\n")
        assert terminal.finish() == 6

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("learner",), "the command is missing: symphony exec scene learner -- CMD..."),
            (("crew/learner", "--", "true"), "not in 'crew'"),
            (("learner", "--", "no-such-program"), "no-such-program"),
        ],
    )
    def test_exec_errors_are_one_line(
        self, cli: Program, scene: str, words: tuple[str, ...], message: str
    ) -> None:
        assert message in refuse(cli, "exec", scene, *words)

    def test_exec_in_the_environment_of_a_process_that_does_not_run(
        self, cli: Program, scene: str
    ) -> None:
        words = ("exec", scene, "late", "--", "sh", "-c", "echo $SYMPHONY_ROLE")
        if self.exec_needs_running_process:
            assert "is not running" in refuse(cli, *words)
        else:
            assert cli.ok(*words) == "late\n"

    # --- cp ---

    def test_files_are_copied_both_ways(self, cli: Program, scene: str) -> None:
        name = f"symphony-scene-{secrets.token_hex(6)}"
        (cli.directory / name).mkdir()
        (cli.directory / name / "sent").write_text("unchanged")
        try:
            assert cli.ok("cp", scene, name, "learner:/tmp") == ""
            sent = cli.ok("exec", scene, "learner", "--", "cat", f"/tmp/{name}/sent")
            assert sent == "unchanged"
            assert cli.ok("cp", scene, f"learner:/tmp/{name}/sent", "back") == ""
            done = cli("cp", scene, f"learn*:/tmp/{name}", "x", "--dry-run")
            assert f"would copy learner:/tmp/{name} to " in done.stderr
            assert f"/tmp/{name}/no" in refuse(cli, "cp", scene, f"learner:/tmp/{name}/no", "x")
        finally:
            cli("exec", scene, "learner", "--", "rm", "-r", f"/tmp/{name}")
        assert (cli.directory / "back").read_text() == "unchanged"
        assert not (cli.directory / "x").exists()

    # --- names ---

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("ps", "scnee"), "no experiment 'scnee'; did you mean 'scene'?"),
            (("wait", "no-such"), "no experiment 'no-such'"),
            (("logs", "scene", "lerner"), "did you mean 'learner'?"),
            (("logs", "scene", "other/agent-0"), "is in group 'crew', not in 'other'"),
            (("describe", "scene", "crew/learner"), "not in 'crew'"),
            (("logs", "scene", "agent-"), "process 'agent-' is ambiguous: agent-0, agent-1;"),
            (("stop", "sce"), "no experiment 'sce'; did you mean 'scene'?"),
            (("delete", "scnee"), "no experiment 'scnee'; did you mean 'scene'?"),
            (("delete", "scene"), "pass --force (-f) to delete"),
            (("switch-experiment", "scene"), "use 'symphony ps scene'"),
            (("ps", "."), "no experiment '.'"),
            (("descirbe", "scene"), "unknown command 'descirbe'; did you mean 'describe'?"),
        ],
    )
    def test_errors_are_one_line(
        self, cli: Program, scene: str, words: tuple[str, ...], message: str
    ) -> None:
        assert message in refuse(cli, *words)

    def test_reading_command_accepts_the_beginning_of_a_name(
        self, cli: Program, scene: str
    ) -> None:
        done = cli("logs", scene[:3], "lea")
        assert done.stdout == "up\nready\n"
        assert done.stderr == "experiment 'sce' is scene\nprocess 'lea' is learner\n"

    def test_ambiguous_name_is_a_menu_on_a_terminal(self, cli: Program, scene: str) -> None:
        terminal = cli.terminal("logs", scene, "agent-")
        menu = "process 'agent-' is ambiguous:\n   1 agent-0\n   2 agent-1\nwhich one? [1-2] "
        terminal.expect(menu)
        terminal.press("2\n")
        terminal.expect("here 1")
        assert terminal.finish() == 0

    # --- delete ---

    def test_delete_asks_for_confirmation(self, cli: Program) -> None:
        name = cli.launch("doomed", {"a": SLEEP})
        assert cli("delete", name, "--dry-run").returncode == 0
        refusals = ((INTERRUPT, 130, "symphony: interrupted"), ("n\n", 1, "nothing was deleted"))
        for keys, code, message in refusals:
            terminal = start_delete(cli, name)
            terminal.press(keys)
            assert terminal.finish() == code
            assert message in terminal.text
        assert cli.json("ps", name)["name"] == name
        terminal = start_delete(cli, name)
        terminal.press("y\n")
        assert terminal.finish() == 0
        assert "deleting doomed (1 process)" in terminal.text
        assert terminal.text.endswith("deleted doomed\n")
        assert name not in [status["name"] for status in cli.json("ls")]
        done = cli("delete", "-f", name)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.startswith("no experiment 'doomed'")


# The command line treats the answers of all backends in the same way, so these scenarios run on
# local processes. Other backends leave them out, or some of them.
SAME_ON_ALL_BACKENDS = (
    "test_ambiguous_name_is_a_menu_on_a_terminal",
    "test_command_after_the_dashes_is_passed_on_unchanged",
    "test_ctrl_c_stops_following_and_the_experiment_keeps_running",
    "test_delete_asks_for_confirmation",
    "test_describe_failed_process",
    "test_dry_run_shows_the_manifest",
    "test_errors_are_one_line",
    "test_exec_errors_are_one_line",
    "test_exec_has_streams_environment_and_exit_code",
    "test_exec_has_the_terminal",
    "test_files_are_copied_both_ways",
    "test_following_exits_quietly_when_the_pipe_is_closed",
    "test_logs",
    "test_ls",
    "test_name_of_a_running_experiment_is_refused",
    "test_process_without_output",
    "test_reading_command_accepts_the_beginning_of_a_name",
    "test_the_page_shows_and_controls_an_experiment",
    "test_top_shows_and_controls_an_experiment",
    "test_wait",
    "test_watch_refreshes_in_place_until_ctrl_c",
)
for _name in SAME_ON_ALL_BACKENDS:
    getattr(Scenarios, _name)  # An unknown name must not be accepted silently.


def start_delete(cli: Program, name: str) -> Terminal:
    """Start ``delete`` on a terminal, and wait for its question."""
    terminal = cli.terminal("delete", name)
    terminal.expect(f"delete {name} ")
    terminal.expect("? [y/N] ")
    return terminal


def refuse(cli: Program, *words: object, code: int = 2) -> str:
    """Run a command that must fail, and return its message, which must be one line."""
    done = cli(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    assert done.stderr.startswith("symphony: error: ")
    return done.stderr


def run_in_terminal(cli: Program, *words: object, width: int = 80) -> Terminal:
    """Run a command that must succeed on a terminal."""
    terminal = cli.terminal(*words, width=width)
    assert terminal.finish() == 0, terminal.text
    return terminal


def wait_for_lines(cli: Program, process: str, number: int) -> None:
    """Wait until a process of ``scene`` has written a number of lines."""
    with cli.popen("logs", "-f", "scene", process, stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        for _ in range(number):
            following.stdout.readline()
        following.terminate()


def wait_for_reason(cli: Program, reason: str) -> None:
    """Wait until ``ps`` shows the reason why a process of ``scene`` is pending."""
    with cli.popen("ps", "scene", "--watch", stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        while f"  {reason}" not in (line := watching.stdout.readline()):
            assert line, f"ps does not show the reason {reason!r}"
        watching.terminate()


def program_for_backend(directory: Path, **env: str) -> Iterator[Program]:
    """Yield a program whose environment selects the backend; delete its experiments afterwards."""
    program = Program(directory)
    program.env.update(env)
    try:
        yield program
    finally:
        for terminal in program.terminals:
            terminal.close()
        done = program("delete-batch", "--all", "-f")
        assert done.returncode == 0, done.stderr
