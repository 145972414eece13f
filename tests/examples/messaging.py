"""The output of the messaging examples, which is the same on all backends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

DIRECTORY = Path(__file__).parents[2] / "examples"
EXAMPLES = [
    DIRECTORY / "zmq/patterns.py",
    DIRECTORY / "integration/experiment.py",
    DIRECTORY / "sockets/experiment.py",
]


def check(path: Path, logs: Mapping[str, str]) -> None:
    """Check the logs of the processes of an example."""
    checks = {"zmq": _check_patterns, "integration": _check_integration, "sockets": _check_sockets}
    lines = {}
    for name, log in logs.items():
        lines[name] = [line.strip() for line in log.split("\n") if line.strip()]
    checks[path.parent.name](lines)


def _check_patterns(lines: Mapping[str, list[str]]) -> None:
    assert lines["client"] == [
        f"client: {[number**2 for number in range(10)]}",
        "client: the server says TypeError: cannot square 'ten'",
        "client: bye",
    ]
    # The traceback of the expected error is in stderr, which Kubernetes may log after stdout.
    assert "server: stopped" in lines["server"]
    assert lines["puller"] == ["puller: 499500"]
    assert lines["pusher"] == ["pusher: sent 1000"]
    assert lines["subscriber"] == ["subscriber: 3 versions of weights, in order: True"]
    assert lines["publisher"] == ["publisher: thanks"]


def _check_integration(lines: Mapping[str, list[str]]) -> None:
    assert lines["master"] == ["333.33"]
    assert lines["small-master"] == ["0.00 to 3.33: 12.35"]
    assert lines["large-master"] == ["3.33 to 10.00: 320.99"]
    assert len(lines) == 9
    assert all(
        re.fullmatch(r"\d+\.\d\d to \d+\.\d\d: \d+\.\d\d", lines[f"large-{number}"][0])
        for number in range(4)
    )


def _check_sockets(lines: Mapping[str, list[str]]) -> None:
    around = "first second third"
    expected = [f"round {turn}: {' '.join([around] * turn)}" for turn in (1, 2, 3)]
    assert lines == {
        "first": [*expected, "first: done"],
        "second": ["second: done"],
        "third": ["third: done"],
    }
