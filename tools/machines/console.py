"""The tool's output: one-line errors, and steps with their durations."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class RequirementError(Exception):
    """Raised if the environment or the input does not allow the operation.

    The message is one line and includes the fix. The exit code is 2.
    """


class ToolError(Exception):
    """Raised if an operation fails.

    The message states what failed. It often includes the end of a log. The exit code is 1.
    """


@dataclass(slots=True)
class Console:
    """A console that writes progress to standard error and records the duration of each step in
    seconds.
    """

    quiet: bool = False
    timings: dict[str, float] = field(default_factory=dict)

    def report(self, text: str) -> None:
        """Print one line of progress, unless `quiet` is true."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def step(self, name: str, hint: str = "") -> Iterator[None]:
        """Announce a step, and print and record its duration when the step is complete."""
        self.report(f"{name}{f' ({hint})' if hint else ''} ...")
        begun = time.monotonic()
        yield
        self.timings[name] = round(time.monotonic() - begun, 2)
        self.report(f"{name}: {self.timings[name]:.1f} s")
