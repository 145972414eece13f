"""``symphony stop``: the report about processes that were killed."""

from __future__ import annotations

from tests.cli.conftest import FOREVER, Program

STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.1; done"


def test_stop_reports_the_processes_that_it_has_killed(program: Program) -> None:
    stubborn = {"cmd": STUBBORN, "ready": {"log": "up"}, "termination_grace_period": 1}
    file = program.file("rl", {"stubborn": stubborn, "obedient": FOREVER})
    assert program("launch", file, "--wait", "ready").returncode == 0
    done = program("stop", "rl")
    assert done.stdout == "stopped stubborn, obedient of rl\n"
    assert done.stderr.splitlines()[-1:] == [
        "killed at the end of the grace period: stubborn of rl; to give more time, set "
        "termination_grace_period or use --grace"
    ]
    assert "killed" not in program("stop", "rl").stderr
    program.ok("start", "rl", "stubborn")
    assert "killed" not in program("stop", "rl", "stubborn", "--now").stderr
