"""Output and input on a terminal: widths, colours, questions, progress, keys."""

from __future__ import annotations

import pytest

from symphony.status import ExperimentStatus
from symphony.testing.contract import until
from tests.cli.conftest import FOREVER, LOOP, TIMEOUT, Program
from tests.cli.terminal import INTERRUPT

LONG = "a-process-with-a-name-that-is-much-longer-than-most-of-them"


@pytest.fixture
def rl(program: Program) -> str:
    """An experiment of a failed, a running and a succeeded process."""
    long = {"cmd": "true", "starts_after": "good"}
    program.launch("rl", {"bad": "exit 3", "good": FOREVER, LONG: long})
    until(program.cluster, "rl", has_expected_states)
    return "rl"


def has_expected_states(status: ExperimentStatus) -> bool:
    return [str(process.state) for process in status] == ["failed", "running", "succeeded"]


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_disabled(program: Program, rl: str, variable: dict[str, str]) -> None:
    for words in (("ps", rl), ("ls",), ("logs", rl)):
        screen = program.terminal(*words, **variable)
        assert screen.finish() == 0
        assert "\x1b[" not in screen.shown


def test_each_name_before_log_lines_has_a_colour(program: Program) -> None:
    program.run("talk", {"alice": "echo hi", "bo": "echo ho"})
    screen = program.terminal("logs", "talk")
    screen.finish()
    colours = {line.split("m")[0] for line in screen.shown.splitlines()}
    assert len(colours) == 2
    assert sorted(screen.text.splitlines()) == ["alice | hi", "bo    | ho"]


LINK = "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"
HOSTILE = f"\x1b[31mred\x1b[0m \x1b]0;title\x07{LINK} a\rb\x1b[2J\x9b1A\u202e."


def test_logs_cannot_control_the_terminal(program: Program) -> None:
    (program.directory / "output").write_text(f"{HOSTILE}\n", encoding="utf-8")
    program.run("bad", {"a": f"cat {program.directory}/output", "b": "true"})
    single = program.terminal("logs", "bad", "a")
    merged = program.terminal("logs", "bad", "-f")
    raw = program.terminal("logs", "bad", "a", "--raw")
    for screen in (single, merged, raw):
        screen.finish()
    assert single.shown == "\x1b[31mred\x1b[0m link a\r\nb.\r\n\x1b[0m"
    prefix = "\x1b[36ma | \x1b[0m"
    first = f"{prefix}\x1b[31mred\x1b[0m link a\x1b[0m\r\n"
    assert f"{first}{prefix}b.\x1b[0m\r\n" in merged.shown
    assert merged.shown.endswith("\x1b[0m")
    assert raw.shown == f"{HOSTILE}\r\n"
    # The test reads the output as text, so a carriage return becomes a newline.
    assert program.ok("logs", "bad", "a") == f"{HOSTILE}\n".replace("\r", "\n")


def test_other_output_cannot_control_the_terminal(program: Program) -> None:
    (program.directory / "output").write_text(f"{HOSTILE}\n", encoding="utf-8")
    directory = program.directory / "dir\x1b]0;title\x07\u202e"
    directory.mkdir()
    program.run(
        "bad", {"a": {"cmd": f"cat {program.directory}/output", "start_dir": f"{directory}"}}
    )
    screen = program.terminal("describe", "bad", "a")
    screen.finish()
    assert not set("\x1b\x07\x9b\u202e") & set(screen.shown)
    assert "dir\\x1b]0;title\\x07\\u202e" in screen.shown
    assert "  red link a" in screen.shown
    for words in (("launch", "no\x1b[2J\u202e.yml"), ("logs", "no\x1b[2J"), ("no\x1b[2J",)):
        error = program(*words)
        assert error.returncode == 2
        assert "no\\x1b[2J" in error.stderr
        assert "\x1b" not in error.stderr


@pytest.mark.parametrize(
    ("answer", "remaining", "code"),
    [("y", [], 0), ("yes", [], 0), ("n", ["rl"], 1), ("", ["rl"], 1)],
)
def test_delete_asks(program: Program, answer: str, remaining: list[str], code: int) -> None:
    program.run("rl", {"a": "true"})
    screen = program.terminal("delete", "rl")
    screen.expect("delete rl succeeded: 1 succeeded? [y/N] ")
    screen.press(f"{answer}\n")
    assert screen.finish() == code
    assert program.state_entries() == remaining
    assert ("nothing was deleted" in screen.text) is (code == 1)


def test_an_experiment_without_a_status_can_be_deleted(program: Program) -> None:
    program.run("rl", {"a": "true"})
    (program.state / "local" / "rl" / "manifest.json").write_text("")
    screen = program.terminal("delete", "rl", width=500)
    screen.expect("delete rl (status unknown: the record of experiment 'rl' is damaged")
    screen.expect("[y/N] ")
    screen.press("y\n")
    assert screen.finish() == 0
    assert program.state_entries() == []


def test_ctrl_c_at_the_question_deletes_nothing(program: Program) -> None:
    program.run("rl", {"a": "true"})
    screen = program.terminal("delete", "rl")
    screen.expect("[y/N]")
    screen.press(INTERRUPT)
    assert screen.finish() == 130
    assert "symphony: interrupted" in screen.text
    assert program.state_entries() == ["rl"]


def test_force_does_not_ask(program: Program, rl: str) -> None:
    screen = program.terminal("delete", "--force", rl)
    assert screen.finish() == 0
    assert "?" not in screen.text
    assert "deleting rl (3 processes)" in screen.text
    assert screen.shown.replace("\r\n", "\n").endswith("\r\x1b[Kdeleted rl\n")


def test_launching_and_waiting_show_progress(program: Program) -> None:
    screen = program.terminal("launch", program.file("rl", {"a": "exit 2"}))
    assert screen.finish() == 0
    assert "launching rl (1 process)" in screen.text
    program.cluster.wait("rl", timeout=TIMEOUT)
    screen = program.terminal("wait", "rl")
    assert screen.finish() == 2
    assert screen.text.endswith("rl failed: 1 failed\na failed: exit code 2\n")


def test_ctrl_c_during_wait_does_not_stop_the_experiment(program: Program, rl: str) -> None:
    screen = program.terminal("wait", rl)
    screen.expect("waiting for rl (1 failed, 1 running, 1 succeeded)")
    screen.press(INTERRUPT)
    assert screen.finish() == 130
    assert program.cluster.describe_process(rl, "good").state.value == "running"


def test_an_empty_log_is_explained(program: Program) -> None:
    program.run("rl", {"a": "true"})
    screen = program.terminal("logs", "rl", "a")
    assert screen.finish() == 0
    assert screen.text == "a has no output (succeeded)\n"


class TestExec:
    def test_the_command_has_the_terminal(self, program: Program, rl: str) -> None:
        screen = program.terminal(
            "exec", rl, "good", "--", "sh", "-c", "test -t 0 && test -t 1 && read x && exit $x"
        )
        screen.press("7\n")
        assert screen.finish() == 7

    def test_ctrl_c_goes_to_the_command_alone(self, program: Program, rl: str) -> None:
        script = f"trap 'echo heard; exit 8' INT; echo up; {LOOP}"
        screen = program.terminal("exec", rl, "good", "--", "sh", "-c", script)
        screen.expect("up")
        screen.press(INTERRUPT)
        assert screen.finish() == 8
        assert "heard" in screen.text

    def test_ctrl_c_kills_a_command_that_does_not_handle_it(
        self, program: Program, rl: str
    ) -> None:
        screen = program.terminal("exec", rl, "good", "--", "sh", "-c", f"echo up; {FOREVER}")
        screen.expect("up")
        screen.press(INTERRUPT)
        assert screen.finish() == 130
