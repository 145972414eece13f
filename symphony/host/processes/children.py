"""What a supervisor needs of whoever starts its processes. Each backend of this machine has its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from symphony.host.processes.spec import Command
from symphony.host.run.directory import RunDirectory
from symphony.host.supervisor.event_loop import Loop


class Child(Protocol):
    """A process that was started and whose end has not been told. ``birth`` is that of its `ProcessId`."""

    @property
    def name(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def birth(self) -> float: ...


class Ended(Protocol):
    """Called with a child that has ended."""

    def __call__(self, child: Child, code: int | None, reason: str = "") -> None:
        """``code`` is its exit code, 128 + n for signal n, or None where nobody saw it; ``reason`` then says why."""


class StartRefused(OSError):
    """A process was not started, and not for want of its command or folder: ``strerror`` says all of it."""


class Children(Protocol):
    """Starts processes, each leader of a process group of its own, and tells their ends."""

    def __init__(self, loop: Loop, run: RunDirectory, ended: Ended) -> None:
        """``ended`` is called from the loop."""

    def start(
        self, commands: Iterable[Command], env: Mapping[str, str]
    ) -> Iterator[tuple[Command, Child | OSError]]:
        """Start processes, in order, each writing to its log, with ``env`` below its own variables.

        Yields each as soon as it runs, or with the error for which it does not.
        """

    def get(self, name: str) -> Child | None:
        """The living child of that name."""

    def __len__(self) -> int:
        """How many live."""

    def discard(self) -> None:
        """Remove what ended children leave behind, of a launch that was taken back."""


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False where nobody is left in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so of a group that has only corpses
        return os.uname().sysname != "Darwin"
    return True
