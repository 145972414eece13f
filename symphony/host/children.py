"""What a supervisor needs of whoever starts its processes. Each backend of this machine has its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from symphony.host.commands import Command
from symphony.host.loop import Loop
from symphony.host.rundir import RunDirectory


class Child(Protocol):
    """A process that was started and whose end has not been told. ``birth`` is that of its `ProcessId`."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def pid(self) -> int: ...  # noqa: D102
    @property
    def birth(self) -> float: ...  # noqa: D102


Ended = Callable[[Child, int], None]


class Children(Protocol):
    """Starts processes, each leader of a process group of its own, and tells their ends."""

    def __init__(self, loop: Loop, run: RunDirectory, ended: Ended) -> None:
        """``ended`` is called from the loop with a child and its exit code, 128 + n for signal n."""

    def start(self, commands: Iterable[Command], env: Mapping[str, str]) -> Iterator[tuple[Command, Child | OSError]]:
        """Start processes, in order, each writing to its log, with ``env`` below its own variables.

        Yields each as soon as it runs, or with the error for which it does not.
        """

    def get(self, name: str) -> Child | None:
        """The living child of that name."""

    def __len__(self) -> int:
        """How many live."""


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False where nobody is left in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so of a group that has only corpses
        return os.uname().sysname != "Darwin"
    return True
