"""The record of the programs that have been asked to exit while stops are in progress.

If the program that stops processes is killed, another one continues. It must not send the signal to
the same programs again, because many programs give up their work at the second signal.

Each line of the file consists of a kind, the process group of the stopped process, and the pid and
the creation time of a program. The file is empty when no stop is in progress.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from symphony.supervised.processes.identity import ProcessId
from symphony.support.data_classes import dataclass, field

_FILE_MODE = 0o600
# The group of the programs that have left the process groups of the run.
STRAYS = 0


class Kind(Enum):
    """How a program was asked to exit, or that it is suspended until it can exit."""

    SIGNALED = "signaled"
    COMMANDED = "commanded"
    HELD = "held"


@dataclass(slots=True)
class RecordedStop:
    """The record of the stop of one process. ``programs`` maps kinds to programs.

    The command that stops the process was begun if there is an entry for `Kind.COMMANDED`, which
    can be empty.
    """

    programs: dict[Kind, set[ProcessId]] = field(default_factory=dict)

    def of(self, kind: Kind) -> set[ProcessId]:
        """Return the programs of one kind."""
        return self.programs.get(kind, set())


class Entry(NamedTuple):
    """The record of the stop of one process: how some of its programs were asked to exit.

    ``group`` is its process group. ``programs`` is empty if the command that stops the process was
    begun.
    """

    kind: Kind
    group: int
    programs: Iterable[ProcessId]


class StopRecord:
    """The record in the file ``path``, which need not exist.

    Errors while it is written are ignored, because a stop must not fail when the disk is full.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._previous = _read(path)

    def take_previous(self, group: int) -> RecordedStop | None:
        """Return what a program that was killed has recorded about a process group, once."""
        return self._previous.pop(group, None)

    def has_previous(self, group: int) -> bool:
        """Return whether a program that was killed has begun to stop a process group."""
        return group in self._previous

    def add(self, kind: Kind, group: int, programs: Iterable[ProcessId]) -> None:
        """Record programs. Without any, record that the command of the process was begun."""
        self.add_all([Entry(kind, group, programs)])

    def add_all(self, entries: Iterable[Entry]) -> None:
        """Record programs of several processes in one step."""
        data = "".join(map(_encode, entries))
        with contextlib.suppress(OSError):
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, _FILE_MODE)
            os.write(self._descriptor, data.encode())

    def clear(self) -> None:
        """Remove all entries, because no stop is in progress any more."""
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
        self._descriptor = None


def _encode(entry: Entry) -> str:
    """Return the lines of an entry."""
    prefix = f"{entry.kind.value} {entry.group}"
    lines = [f"{prefix} {program.pid} {program.birth:.0f}\n" for program in entry.programs]
    return "".join(lines) or f"{prefix}\n"


def _read(path: str) -> dict[int, RecordedStop]:
    """Return the recorded stops by process group. Damaged lines are ignored."""
    try:
        content = Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    stops: dict[int, RecordedStop] = {}
    for line in content.splitlines():
        with contextlib.suppress(ValueError):
            kind, group, *program = line.split()
            stop = stops.setdefault(int(group), RecordedStop())
            programs = stop.programs.setdefault(Kind(kind), set())
            if program:
                pid, birth = program
                programs.add(ProcessId(int(pid), float(birth)))
    return stops
