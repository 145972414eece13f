"""The report about processes that were killed because they did not stop in time."""

from __future__ import annotations

from symphony.commandline.commands.kill_report import killed_processes
from symphony.events import EventKind, ExperimentEvent, exit_text, stop_text
from tests.cli.conftest import FOREVER, Program

STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.1; done"
KILLED = (
    "killed at the end of the grace period: stubborn of rl; to give more time, set "
    "termination_grace_period"
)


def test_commands_report_the_processes_that_they_have_killed(program: Program) -> None:
    stubborn = {"cmd": STUBBORN, "ready": {"log": "up"}, "termination_grace_period": 1}
    file = program.file("rl", {"stubborn": stubborn, "obedient": FOREVER})
    assert program("launch", file, "--wait", "ready").returncode == 0
    done = program("stop", "rl")
    assert done.stdout == "stopped stubborn, obedient of rl\n"
    assert done.stderr.splitlines()[-1:] == [KILLED + " or use --grace"]
    assert "killed" not in program("stop", "rl").stderr
    program.ok("start", "rl", "stubborn")
    assert "killed" not in program("stop", "rl", "stubborn", "--now").stderr
    program.ok("start", "rl")
    assert program("up", file, "--wait", "ready").returncode == 0
    assert program("restart", "rl").stderr.splitlines()[-1:] == [KILLED + " or use --grace"]
    assert "killed" not in program("restart", "rl", "--now").stderr
    assert program("up", file, "--wait", "ready").returncode == 0
    file = program.file("rl", {"stubborn": {**stubborn, "env": {"A": "1"}}, "obedient": FOREVER})
    assert program("up", file, "--wait", "ready").stderr.splitlines()[:1] == [KILLED]
    assert program("down", "rl").stderr.splitlines()[-1:] == [KILLED]


def test_a_kill_by_another_program_is_not_reported() -> None:
    def event(kind: EventKind, process: str | None, text: str = "") -> ExperimentEvent:
        return ExperimentEvent(at=1.0, kind=kind, process=process, text=text)

    killed, stopped = exit_text(137), stop_text(137)
    by_request = [event(EventKind.STOPPING, "b"), event(EventKind.EXITED, "b", killed)]
    others = [
        event(EventKind.EXITED, "a", killed),
        event(EventKind.STOPPED, "c", stopped),
        event(EventKind.STOPPED, "d", stop_text(143)),
    ]
    assert killed_processes([*by_request, *others]) == ["b", "c"]
    of_all = [event(EventKind.STOPPING, None), event(EventKind.EXITED, "a", killed)]
    assert killed_processes(of_all) == ["a"]
