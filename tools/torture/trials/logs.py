"""Trials of the logs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from symphony.plan.restart_policy import Backoff
from torture import checks
from torture.children import Child
from torture.trial import trial
from torture.workspace import NAME, Violation, Workspace, is_success

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
