"""The two ends of a copy, as they are typed: a path of this machine, and one beside a process. Pure.

What is beside a process is ``process:path`` or ``group/process:path``; a path of this machine with a colon in it
begins with ``./`` or ``/``.
"""

from __future__ import annotations

from dataclasses import dataclass

from symphony.errors import SpecError
from symphony.names import is_name


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePath:
    """A path beside a process; a relative one begins in the folder of the process."""

    process: str
    group: str | None
    path: str

    def __str__(self) -> str:
        return (
            f"{self.group}/{self.process}:{self.path}"
            if self.group
            else f"{self.process}:{self.path}"
        )


def parse_remote_path(text: str) -> RemotePath | None:
    """``process:path`` or ``group/process:path``; None for a path of this machine.

    >>> parse_remote_path("learner:out/model.pt").path
    'out/model.pt'
    >>> parse_remote_path("./learner:out")
    """
    whose, colon, path = text.partition(":")
    parts = whose.split("/")
    if not colon or len(parts) > 2 or not all(map(is_name, parts)):
        return None
    return RemotePath(
        process=parts[-1], group=parts[0] if len(parts) == 2 else None, path=path or "."
    )


def parse_transfer(source: str, target: str) -> tuple[RemotePath | None, RemotePath | None]:
    """What is beside a process of ``source`` and ``target``: exactly one of them, else `SpecError`."""
    from_there, to_there = parse_remote_path(source), parse_remote_path(target)
    if (from_there is None) == (to_there is None):
        what = "two paths of this machine" if from_there is None else "two processes"
        raise SpecError(
            f"{source!r} and {target!r} are {what}: one of them is process:path, the other a path here (a path with "
            "a colon begins with ./)"
        )
    return from_there, to_there
