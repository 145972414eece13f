"""Trials of the logs."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from symphony.plan.restart_policy import Backoff
from torture import checks
from torture.checks import FoundProcess
from torture.children import Child
from torture.trial import trial
from torture.workspace import LOCAL, NAME, Violation, Workspace, is_success

# Each start of the program prints the next lines and fails, except for the last start.
COUNT = """
import json, pathlib, sys
state = pathlib.Path(sys.argv[1])
sizes, first = json.loads(state.read_text())
for number in range(first, first + sizes[0]):
    sys.stdout.write(f"line {number}\\n")
    if number % 50 == 0:
        sys.stdout.flush()
state.write_text(json.dumps([sizes[1:], first + sizes[0]]))
sys.stdout.flush()
sys.exit(1 if sizes[1:] else 0)
"""

# Prints numbered lines, with a pause after some of them.
WRITE = """
import sys, time
for number in range(int(sys.argv[1])):
    sys.stdout.write(f"line {number}\\n")
    if number % 50 == 0:
        sys.stdout.flush()
        time.sleep(0.001)
"""
# The program that copies output loses at most what it has read when it is killed.
PIPE_BYTES = 1 << 16


@trial("kill-copier", backends=[LOCAL])
def kill_copier(workspace: Workspace) -> None:
    """The program that copies the output of a process, or its supervisor, or both of them, are
    killed at random moments: the process finishes, and only what the program had read is missing.
    """
    count = workspace.count(5_000, 50_000)
    cluster = workspace.cluster()
    experiment = cluster.new_experiment(NAME)
    command = [sys.executable, "-I", "-S", "-c", WRITE, str(count)]
    experiment.new_process("p-0", command=command)
    workspace.launch(experiment)
    kills = 0
    for _ in range(workspace.count(2, 5)):
        workspace.sleep()
        victims = workspace.random.choice((("copier",), ("supervisor",), ("copier", "supervisor")))
        if "copier" in victims:
            kills += _kill(workspace.copiers())
        if "supervisor" in victims:
            _kill(workspace.supervisors())
            workspace.run("ps", NAME, is_permitted=is_success)
    workspace.run("wait", NAME, is_permitted=_any)
    log = cluster.get_log(NAME, "p-0")
    expected = "".join(f"line {number}\n" for number in range(count))
    if len(log) + kills * PIPE_BYTES < len(expected):
        raise Violation(f"{len(expected) - len(log)} bytes are missing after {kills} kills")
    # The end of a line can be missing, and the beginning of the next one.
    numbers = [int(line[5:]) for line in log.splitlines() if line in _lines(count)]
    damaged = len(log.splitlines()) - len(numbers)
    if damaged > kills or any(later <= number for number, later in itertools.pairwise(numbers)):
        raise Violation(f"{damaged} lines are damaged after {kills} kills, or lines are repeated")


def _kill(found: Sequence[FoundProcess]) -> int:
    """Kill processes, and return their number."""
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return len(found)


@functools.cache
def _lines(count: int) -> frozenset[str]:
    return frozenset(f"line {number}" for number in range(count))


def _any(_: int) -> bool:
    # The exit code of a process is unknown if its supervisor was killed.
    return True


@trial("follow-logs")
def follow_logs(workspace: Workspace) -> None:
    """Logs are followed over many restarts: no line is lost and none is printed twice."""
    starts = workspace.count(4, 40)
    longest = workspace.random.choice((0, 3, 300, 3000))
    sizes = [workspace.random.randint(0, longest) for _ in range(starts)]
    state = workspace.directory / "lines.json"
    state.write_text(json.dumps([sizes, 0]))
    launcher = workspace.start(lambda: _launch(workspace, state), "launch")
    workspace.expect(launcher, "launch", is_permitted=is_success)
    followers: list[tuple[Child, tuple[str, ...]]] = []
    for option in ((), ("--json",), ()):
        words = ("logs", "--follow", NAME, "p-0", *option)
        followers.append((workspace.start_command(*words), words))
        workspace.sleep()
    workspace.run("wait", NAME, is_permitted=is_success)
    for follower, words in followers:
        workspace.expect(follower, *words, is_permitted=is_success)
        _check(sum(sizes), follower, words)
    words = ("logs", NAME, "p-0")
    reader = workspace.start_command(*words)
    workspace.expect(reader, *words, is_permitted=is_success)
    _check(sum(sizes), reader, words)


def _launch(workspace: Workspace, state: Path) -> int:
    # A restart that is delayed by seconds would show nothing more.
    cluster = workspace.cluster(Backoff(first=0.001, longest=0.001))
    experiment = cluster.new_experiment(NAME)
    command = [sys.executable, "-I", "-S", "-c", COUNT, str(state)]
    experiment.new_process("p-0", command=command).restart_policy("OnFailure")
    cluster.launch(experiment)
    return 0


def _check(expected: int, command: Child, words: tuple[str, ...]) -> None:
    # Events, such as restarts, are written to standard error.
    lines = command.output.splitlines()
    if "--json" in words:
        lines = [text for line in lines if (text := _text(line)) is not None]
    violations = checks.wrong_lines(expected, lines)
    if violations:
        raise Violation(f"symphony {' '.join(words)}: {'; '.join(violations)}")


def _text(line: str) -> str | None:
    """Return the log line in a line of JSON, or None if the line describes an event."""
    text: str | None = json.loads(line).get("text")
    return text
