"""What the examples of messaging print, wherever they run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = [
    FOLDER / "zmq/patterns.py",
    FOLDER / "integration/experiment.py",
    FOLDER / "sockets/experiment.py",
]


def check(path: Path, logs: Mapping[str, str]) -> None:
    """Whether the processes of an example said what they are to say."""
    said = {name: log.split("\n") for name, log in logs.items()}
    {"zmq": _patterns, "integration": _integration, "sockets": _sockets}[path.parent.name](
        {name: [line.strip() for line in lines if line.strip()] for name, lines in said.items()}
    )


def _patterns(said: Mapping[str, list[str]]) -> None:
    assert said["client"] == [
        f"client: {[number**2 for number in range(10)]}",
        "client: the server says TypeError: cannot square 'ten'",
        "client: bye",
    ]
    assert said["server"][-1] == "server: stopped"
    assert said["puller"] == ["puller: 499500"]
    assert said["pusher"] == ["pusher: sent 1000"]
    assert said["subscriber"] == ["subscriber: 3 versions of weights, in order: True"]
    assert said["publisher"] == ["publisher: thanks"]


def _integration(said: Mapping[str, list[str]]) -> None:
    assert said["master"] == ["333.33"]
    assert said["small-master"] == ["0.00 to 3.33: 12.35"]
    assert said["large-master"] == ["3.33 to 10.00: 320.99"]
    assert len(said) == 9
    assert all(
        re.fullmatch(r"\d+\.\d\d to \d+\.\d\d: \d+\.\d\d", said[f"large-{number}"][0])
        for number in range(4)
    )


def _sockets(said: Mapping[str, list[str]]) -> None:
    around = "first second third"
    expected = [f"round {turn}: {' '.join([around] * turn)}" for turn in (1, 2, 3)]
    assert said == {
        "first": [*expected, "first: done"],
        "second": ["second: done"],
        "third": ["third: done"],
    }
