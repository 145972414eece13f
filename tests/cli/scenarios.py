"""What the command line does alike on every backend: one class of scenarios, which each backend's tests inherit.

The real program is driven, in a pipe and in a pseudo-terminal. What needs no backend is tested elsewhere. One
experiment, ``scene``, goes on while it is looked at; tests that change something launch another one.
"""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.cli.conftest import TIMEOUT, Program
from tests.cli.terminal import INTERRUPT, Terminal

ON = "exec sleep 1000"
POLITE = "trap 'echo bye; exit 0' TERM; echo up; sleep 1000 & wait"
PROCESSES = ["learner", "crew/agent-0", "crew/agent-1", "late"]
CYAN = "\x1b[36m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A program that ran in a pseudo-terminal: what was shown, and its exit code."""

    text: str
    code: int


class Scenarios:
    """A backend's class has a fixture ``cli`` of class scope, a `Program` whose environment chooses the backend."""

    backend: ClassVar[str]
    # What keeps a process from starting for good.
    held: ClassVar[dict[str, Any]] = {"starts_after": {"learner": "succeeded"}}
    # What ``ps`` begins its reason with.
    held_because: ClassVar[str] = "waiting for learner to succeed"
    # How a dry run looks at what is live.
    dry_run: ClassVar[str] = "--dry-run"

    @pytest.fixture(scope="class")
    @classmethod
    def launch(cls, cli: Program) -> Done:
        """The launch of ``scene``, on a terminal."""
        crew = {f"agent-{number}": {"cmd": f"echo here {number}; {ON}"} for number in range(2)}
        file = cli.file(
            "scene",
            {
                "learner": {"cmd": f"echo up; echo ready; {ON}", "binds": "replay"},
                "crew": {"processes": crew},
                "late": {"cmd": "true", **cls.held},
            },
        )
        terminal = cli.terminal("launch", file)
        code = terminal.finish()
        done = Done(text=terminal.text, code=code)
        if code == 0:
            for process in ("learner", "agent-0", "agent-1"):
                wait_for_line(cli, process)
            wait_until_held(cli, cls.held_because)
        return done

    @pytest.fixture(scope="class")
    @classmethod
    def scene(cls, launch: Done) -> str:
        assert launch.code == 0, launch.text
        return "scene"

    @pytest.fixture(scope="class")
    @classmethod
    def brief(cls, cli: Program) -> subprocess.CompletedProcess[str]:
        """An experiment that was followed to its end, in a pipe."""
        return cli(
            "launch",
            cli.file("brief", {"good": "echo fine", "bad": "sleep 0.3; echo oh; exit 7"}),
            "--follow",
        )

    # --- launch ---

    def test_launching_shows_progress_and_says_how_to_go_on(
        self, cli: Program, launch: Done
    ) -> None:
        progress, _, told = launch.text.rpartition("\r")
        assert "launching scene (4 processes)" in progress
        assert told.splitlines()[0] == f"launched scene on {self.backend}: 4 processes"
        assert [line.split("  ")[1] for line in told.splitlines()[1:]] == [
            "symphony ps scene",
            "symphony logs -f scene",
            "symphony delete scene",
        ]

    def test_a_live_name_is_refused(self, cli: Program, scene: str) -> None:
        assert "'scene' is running" in refused(cli, "launch", cli.folder / "scene.yml")
        assert cli.json("ps", scene)["state"] == "running"

    def test_a_followed_launch_ends_as_the_experiment(
        self, brief: subprocess.CompletedProcess[str]
    ) -> None:
        assert brief.returncode == 7
        assert sorted(brief.stdout.splitlines()) == ["bad  | oh", "good | fine"]
        # Where they take long to start, as they may on a cluster, that is told too.
        assert [line for line in brief.stderr.splitlines() if ": pending: " not in line] == [
            f"launched brief on {self.backend}: 2 processes",
            "bad failed: exit code 7",
        ]

    def test_ctrl_c_stops_what_is_followed(self, cli: Program) -> None:
        file = cli.file("stopped", {"a": POLITE})
        terminal = cli.terminal("launch", file, "--follow")
        terminal.expect("up")
        terminal.press(INTERRUPT)
        terminal.expect("symphony: stopping 'stopped'; press Ctrl-C again to kill it")
        assert terminal.finish() == 130
        assert "bye" in terminal.text
        assert "Traceback" not in terminal.text
        states = [status["state"] for status in cli.json("ls") if status["name"] == "stopped"]
        assert "running" not in states

    def test_a_dry_run_refuses_a_live_name_too(self, cli: Program, scene: str) -> None:
        file = cli.folder / "scene.yml"
        assert "'scene' is running" in refused(cli, "launch", file, self.dry_run)
        assert "job 'scene' already exists (running)" in refused(
            cli, "submit", "--name", scene, self.dry_run, "--", "true"
        )
        shown = cli.ok("render", file)
        assert "replay" in shown
        for words in (
            ("--dry-run", "--force"),
            () if self.dry_run == "--dry-run" else ("--dry-run",),
        ):
            assert not words or "replay" in cli.ok("launch", file, *words)
        assert cli.json("ps", scene)["state"] == "running"

    # --- looking ---

    def test_ls(self, cli: Program, scene: str) -> None:
        header, *rows = cli.ok("ls").splitlines()
        assert header.split() == ["NAME", "STATE", "PROCESSES", "READY", "FAILED", "AGE", "NOTE"]
        assert [row.split()[:5] for row in rows if row.startswith("scene ")] == [
            ["scene", "running", "4", "3", "0"]
        ]
        assert f"{CYAN}running" in shown(cli, "ls").shown

    def test_ps(self, cli: Program, scene: str) -> None:
        header, *rows = cli.ok("ps", scene).splitlines()
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
        assert [row.split()[:5] for row in rows[:3]] == [
            [name, "running", "yes", "-", "0"] for name in PROCESSES[:3]
        ]
        assert rows[3].split()[:6] == ["late", "pending", "no", "-", "0", "-"]
        assert f"  {self.held_because}" in rows[3]
        narrow = shown(cli, "ps", scene, width=60)
        assert max(map(len, narrow.text.splitlines())) <= 60
        assert f"{CYAN}running" in narrow.shown

    def test_ps_is_refreshed_in_place_until_ctrl_c(self, cli: Program, scene: str) -> None:
        terminal = cli.terminal("ps", scene, "-w")
        terminal.expect("late")
        terminal.expect("\x1b[5F\x1b[J", escapes=True)  # the ages have changed
        terminal.press(INTERRUPT)
        assert terminal.finish() == 130
        assert "Traceback" not in terminal.text

    def test_describe(self, cli: Program, scene: str) -> None:
        found = {
            line.split()[0]: line for line in cli.ok("describe", scene, "agent-1").splitlines()
        }
        assert found["process"].endswith("crew/agent-1 of scene")
        assert found["state"].endswith("running, ready")
        assert "replay" in found
        assert found["here"] == "  here 1"
        reason = cli.json("describe", scene, "late")["reason"]
        assert reason.startswith(self.held_because)

    def test_a_failure_is_described(self, cli: Program, brief: object) -> None:
        found = cli.json("describe", "brief", "bad")
        assert (found["state"], found["exit_code"]) == ("failed", 7)
        assert found["events"]

    def test_waiting(self, cli: Program, scene: str, brief: object) -> None:
        done = cli("wait", "brief")
        assert (done.returncode, done.stdout) == (7, "brief failed: 1 succeeded, 1 failed\n")
        assert done.stderr == "bad failed: exit code 7\n"
        done = cli("wait", scene, "--timeout", "0.1")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("symphony: error: ")
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
        assert [
            json.loads(line) for line in cli.ok("logs", scene, "agent-1", "--json").splitlines()
        ] == [{"process": "agent-1", "text": "here 1"}]

    def test_following_logs_ends_with_ctrl_c_and_the_experiment_goes_on(
        self, cli: Program, scene: str
    ) -> None:
        terminal = cli.terminal("logs", "-f", scene, "learner")
        terminal.expect("up\nready\n")
        terminal.press(INTERRUPT)
        assert terminal.finish() == 130
        assert terminal.text == "up\nready\n^C"
        assert cli.json("ps", scene)["state"] == "running"

    def test_a_process_that_has_no_log_yet(self, cli: Program, scene: str) -> None:
        assert cli.ok("logs", scene, "late") == ""
        assert cli.ok("logs", scene, "late", "learner").startswith("learner | up\n")
        told = shown(cli, "logs", scene, "late").text
        assert told.startswith(f"late has no output (pending: {self.held_because}")
        assert told.count("\n") == 1

    # --- exec ---

    def test_what_follows_the_first_dashes_is_untouched(self, cli: Program, scene: str) -> None:
        words = ["--json", "-b", "nowhere", "--", "--help", "", "a b", "$HOME"]
        found = cli.ok("exec", scene, "learner", "--", "printf", "%s|", *words)
        assert found == "".join(f"{word}|" for word in words)

    def test_a_command_ends_as_it_does(self, cli: Program, scene: str) -> None:
        script = 'cat; echo "$SYMPHONY_GROUP/$SYMPHONY_ROLE"; echo oh >&2; exit 5'
        done = cli("exec", scene, "crew/agent-1", "--", "sh", "-c", script, input="in and ")
        assert (done.returncode, done.stdout, done.stderr) == (5, "in and crew/agent-1\n", "oh\n")

    def test_a_command_has_the_terminal(self, cli: Program, scene: str) -> None:
        script = "test -t 0 && test -t 1 && echo go && read x && exit $x"
        terminal = cli.terminal("exec", scene, "learner", "--", "sh", "-c", script)
        terminal.expect("go")
        terminal.press("6\n")
        assert terminal.finish() == 6

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("learner",), "the command must follow --: symphony exec scene learner -- CMD..."),
            (("crew/learner", "--", "true"), "not in 'crew'"),
            (("learner", "--", "no-such-program"), "no-such-program"),
            (("late", "--", "true"), "late"),
        ],
    )
    def test_a_command_that_cannot_run(
        self, cli: Program, scene: str, words: tuple[str, ...], said: str
    ) -> None:
        assert said in refused(cli, "exec", scene, *words)

    # --- files ---

    def test_files_go_there_and_back(self, cli: Program, scene: str) -> None:
        name = f"symphony-scene-{secrets.token_hex(6)}"
        (cli.folder / name).mkdir()
        (cli.folder / name / "sent").write_text("as it is")
        try:
            assert cli.ok("cp", scene, name, "learner:/tmp") == ""
            assert cli.ok("exec", scene, "learner", "--", "cat", f"/tmp/{name}/sent") == "as it is"
            assert cli.ok("cp", scene, f"learner:/tmp/{name}/sent", "back") == ""
            assert (
                f"would copy learner:/tmp/{name} to "
                in cli("cp", scene, f"lea:/tmp/{name}", "x", "--dry-run").stderr
            )
            assert "no such file or folder" in refused(
                cli, "cp", scene, f"learner:/tmp/{name}/no", "x"
            )
        finally:
            cli("exec", scene, "learner", "--", "rm", "-r", f"/tmp/{name}")
        assert (cli.folder / "back").read_text() == "as it is"
        assert not (cli.folder / "x").exists()

    # --- names ---

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("ps", "scnee"), "no experiment 'scnee'; did you mean 'scene'?"),
            (("wait", "nothing-of-it"), "no experiment 'nothing-of-it'"),
            (("logs", "scene", "lerner"), "did you mean 'learner'?"),
            (("logs", "scene", "other/agent-0"), "is in group 'crew', not in 'other'"),
            (("describe", "scene", "crew/learner"), "not in 'crew'"),
            (
                ("logs", "scene", "agent"),
                "process 'agent' is ambiguous: agent-0, agent-1; type more of the name",
            ),
            (("delete", "scnee"), "no experiment 'scnee'; did you mean 'scene'?"),
            (("delete", "scene"), "pass --force (-f) to delete"),
            (("ps", "."), "symphony switch-experiment NAME"),
            (("descirbe", "scene"), "unknown command 'descirbe'; did you mean 'describe'?"),
        ],
    )
    def test_what_is_wrong_is_one_line(
        self, cli: Program, scene: str, words: tuple[str, ...], said: str
    ) -> None:
        assert said in refused(cli, *words)

    def test_a_name_may_be_shortened(self, cli: Program, scene: str) -> None:
        assert cli.ok("logs", "sce", "learn") == "up\nready\n"
        told = shown(cli, "logs", "cene", "gent-1").text
        assert told == "experiment 'cene' is scene\nprocess 'gent-1' is agent-1\nhere 1\n"

    def test_several_that_fit_are_a_menu_on_a_terminal(self, cli: Program, scene: str) -> None:
        terminal = cli.terminal("logs", scene, "agent")
        terminal.expect(
            "process 'agent' is ambiguous:\n   1 agent-0\n   2 agent-1\nwhich one? [1-2] "
        )
        terminal.press("2\n")
        terminal.expect("here 1")
        assert terminal.finish() == 0

    def test_the_current_experiment(self, cli: Program, scene: str) -> None:
        assert cli.ok("switch-experiment", "sce") == "scene\n"
        try:
            assert cli.json("ps")["name"] == scene
            assert cli.ok("logs", ".", "agent-0") == "here 0\n"
            assert cli.json("se") == {"backend": self.backend, "experiment": scene}
        finally:
            for file in (cli.state / "current").iterdir():
                file.unlink()

    # --- the end of it ---

    def test_delete_asks(self, cli: Program) -> None:
        name = cli.launched("doomed", {"a": ON})
        cli.ok("se", name)
        assert cli("delete", name, "--dry-run").returncode == 0
        for keys, code, said in (
            ("n\n", 1, "nothing was deleted"),
            (INTERRUPT, 130, "symphony: interrupted"),
        ):
            terminal = ask(cli, name)
            terminal.press(keys)
            assert terminal.finish() == code
            assert said in terminal.text
        assert cli.json("ps", name)["name"] == name
        terminal = ask(cli, name)
        terminal.press("y\n")
        assert terminal.finish() == 0
        assert "deleting doomed (1 process)" in terminal.text
        assert terminal.text.endswith("deleted doomed\n")
        assert name not in [status["name"] for status in cli.json("ls")]
        assert "no current experiment on" in refused(cli, "ps")  # the current one went with it
        done = cli("delete", "-f", name)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.startswith("no experiment 'doomed'")


def ask(cli: Program, name: str) -> Terminal:
    """``delete`` on a terminal, when it has asked."""
    terminal = cli.terminal("delete", name)
    terminal.expect(f"delete {name} ")
    terminal.expect("? [y/N] ")
    return terminal


def refused(cli: Program, *words: object, code: int = 2) -> str:
    """Run what must be refused; what is said, which is one line."""
    done = cli(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    assert done.stderr.startswith("symphony: error: ")
    return done.stderr


def shown(cli: Program, *words: object, width: int = 80) -> Terminal:
    """What is shown on a terminal of what must succeed."""
    terminal = cli.terminal(*words, width=width)
    assert terminal.finish() == 0, terminal.text
    return terminal


def wait_for_line(cli: Program, process: str) -> None:
    """Wait until a process of ``scene`` has written all that it writes."""
    with cli.popen("logs", "-f", "scene", process, stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        for _ in range(2 if process == "learner" else 1):
            following.stdout.readline()
        following.terminate()


def wait_until_held(cli: Program, because: str) -> None:
    """Wait until it is known of a process of ``scene`` why it does not start."""
    with cli.popen("ps", "scene", "--watch", stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        while f"  {because}" not in (line := watching.stdout.readline()):
            assert line, "it is not told"
        watching.terminate()


def driven(folder: Path, cache: Path, **env: str) -> Iterator[Program]:
    """A program with an environment that chooses the backend; all that it launched is deleted at the end."""
    program = Program(folder, cache)
    program.env.update(env)
    try:
        yield program
    finally:
        for terminal in program.terminals:
            terminal.close()
        done = program("delete-batch", "--all", "-f")
        assert done.returncode == 0, done.stderr
