"""What is different on a terminal: widths, colours, questions, progress, keys."""

from __future__ import annotations

import pytest

from symphony.status import ExperimentStatus
from symphony.testing.contract import until
from tests.cli.conftest import FOREVER, Program
from tests.cli.terminal import INTERRUPT

RED, CYAN = "\x1b[31m", "\x1b[36m"
LONG = "a-process-with-a-name-that-is-much-longer-than-most-of-them"


@pytest.fixture
def rl(program: Program) -> str:
    """One process has failed, one runs, and one has ended."""
    program.launched(
        "rl", {"bad": "exit 3", "good": FOREVER, LONG: {"cmd": "true", "starts_after": "good"}}
    )
    until(program.cluster, "rl", as_it_is_shown)
    return "rl"


def as_it_is_shown(status: ExperimentStatus) -> bool:
    return [str(process.state) for process in status] == ["failed", "running", "succeeded"]


def test_a_narrow_table_keeps_what_matters(program: Program, rl: str) -> None:
    screen = program.terminal("ps", rl, width=60)
    screen.finish()
    header, bad, *_, long = screen.text.splitlines()
    assert header.split() == ["NAME", "STATE", "EXIT"]  # the reasons are empty
    assert bad.split()[:3] == ["bad", "failed", "3"]
    assert long.startswith(LONG[:8])
    assert "…" in long


def test_a_wide_table_is_the_one_of_a_pipe(program: Program) -> None:
    program.ended("rl", {"bad": "exit 3"})
    screen = program.terminal("ps", "rl", width=160, NO_COLOR="1")
    screen.finish()
    assert [line.split()[:5] for line in screen.text.splitlines()] == [
        line.split()[:5] for line in program.ok("ps", "rl").splitlines()
    ]


def test_states_are_coloured(program: Program, rl: str) -> None:
    screen = program.terminal("ps", rl)
    screen.finish()
    assert f"{RED}failed" in screen.shown
    assert f"{CYAN}running" in screen.shown


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_refused(program: Program, rl: str, variable: dict[str, str]) -> None:
    for words in (("ps", rl), ("ls",), ("logs", rl)):
        screen = program.terminal(*words, **variable)
        assert screen.finish() == 0
        assert "\x1b[" not in screen.shown


def test_a_pipe_is_never_coloured(program: Program, rl: str) -> None:
    assert "\x1b" not in program.ok("ps", rl) + program.ok("ls") + program.ok("logs", rl)


def test_names_before_log_lines_are_coloured_one_each(program: Program) -> None:
    program.ended("talk", {"alice": "echo hi", "bo": "echo ho"})
    screen = program.terminal("logs", "talk")
    screen.finish()
    tints = {line.split("m")[0] for line in screen.shown.splitlines()}
    assert len(tints) == 2
    assert sorted(screen.text.splitlines()) == ["alice | hi", "bo    | ho"]


@pytest.mark.parametrize(
    ("answer", "left", "code"), [("y", [], 0), ("yes", [], 0), ("n", ["rl"], 1), ("", ["rl"], 1)]
)
def test_delete_asks(program: Program, answer: str, left: list[str], code: int) -> None:
    program.ended("rl", {"a": "true"})
    screen = program.terminal("delete", "rl")
    screen.expect("delete rl succeeded: 1 succeeded? [y/N] ")
    screen.press(f"{answer}\n")
    assert screen.finish() == code
    assert program.left() == left
    assert ("nothing was deleted" in screen.text) is (code == 1)


@pytest.mark.parametrize("name", ["rl", "r"])
def test_what_cannot_be_described_can_be_deleted(program: Program, name: str) -> None:
    program.ended("rl", {"a": "true"})
    (program.state / "local" / "rl" / "manifest.json").write_text("")
    screen = program.terminal("delete", name, width=500)
    screen.expect("delete rl (status unknown: the record of experiment 'rl' is damaged")
    screen.expect("[y/N] ")
    screen.press("y\n")
    assert screen.finish() == 0
    assert program.left() == []


def test_ctrl_c_at_the_question_deletes_nothing(program: Program) -> None:
    program.ended("rl", {"a": "true"})
    screen = program.terminal("delete", "rl")
    screen.expect("[y/N]")
    screen.press(INTERRUPT)
    assert screen.finish() == 130
    assert "symphony: interrupted" in screen.text
    assert program.left() == ["rl"]


def test_force_does_not_ask(program: Program, rl: str) -> None:
    screen = program.terminal("delete", "--force", rl)
    assert screen.finish() == 0
    assert "?" not in screen.text
    assert "deleting rl (3 processes)" in screen.text
    assert screen.shown.replace("\r\n", "\n").endswith("\r\x1b[Kdeleted rl\n")


def test_launching_and_waiting_show_progress(program: Program) -> None:
    screen = program.terminal("launch", program.file("rl", {"a": "read line < go"}))
    assert screen.finish() == 0
    assert "launching rl (1 process)" in screen.text
    program.cluster.wait("rl", timeout=30)  # no file to read
    screen = program.terminal("wait", "rl")
    assert screen.finish() == 1 or screen.text
    assert (
        screen.text.endswith("rl failed: 1 failed\na failed: exit code 1\n")
        or "exit code 2" in screen.text
    )


def test_wait_tells_what_it_waits_for_and_ctrl_c_leaves_that_alone(
    program: Program, rl: str
) -> None:
    screen = program.terminal("wait", rl)
    screen.expect("waiting for rl (1 failed, 1 running, 1 succeeded)")
    screen.press(INTERRUPT)
    assert screen.finish() == 130
    assert program.cluster.describe_process(rl, "good").state.value == "running"


def test_a_process_that_wrote_nothing_is_explained(program: Program) -> None:
    program.ended("rl", {"a": "true"})
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
        script = f"trap 'echo heard; exit 8' INT; echo up; {FOREVER}"
        screen = program.terminal("exec", rl, "good", "--", "sh", "-c", script)
        screen.expect("up")
        screen.press(INTERRUPT)
        assert screen.finish() == 8
        assert "heard" in screen.text

    def test_a_command_that_ctrl_c_ends(self, program: Program, rl: str) -> None:
        screen = program.terminal("exec", rl, "good", "--", "sh", "-c", f"echo up; {FOREVER}")
        screen.expect("up")
        screen.press(INTERRUPT)
        assert screen.finish() == 130
