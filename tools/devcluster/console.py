"""What the tool says: errors in one line, and steps with the time that each took."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class Refusal(Exception):
    """The circumstances or the input forbid it: one line with the remedy, exit code 2."""


class Failure(Exception):
    """Something that should have worked did not: what, and which log tells more; exit code 1."""


@dataclass(slots=True)
class Console:
    """Writes progress to standard error and keeps the seconds that each step took."""

    quiet: bool = False
    timings: dict[str, float] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """Print one line of progress."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def step(self, name: str, hint: str = "") -> Iterator[None]:
        """Announce a step, time it, and say how long it took."""
        self.say(f"{name}{f' ({hint})' if hint else ''} ...")
        begun = time.monotonic()
        yield
        self.timings[name] = round(time.monotonic() - begun, 2)
        self.say(f"{name}: {self.timings[name]:.1f} s")
