"""Parsing the source and the target of a copy operation, as the user writes them.

A path in a process has the form ``process:path`` or ``group/process:path``. A local path that
contains a colon must begin with ``./`` or ``/``, so that it is not mistaken for a path in a
process.
"""

from __future__ import annotations

from dataclasses import dataclass

from symphony.errors import SpecError
from symphony.support.names import is_name


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePath:
    """A path in a process. A relative ``path`` is relative to the process's working directory."""

    process: str
    group: str | None
    path: str

    def __str__(self) -> str:
        if self.group:
            return f"{self.group}/{self.process}:{self.path}"
        return f"{self.process}:{self.path}"


def parse_remote_path(text: str) -> RemotePath | None:
    """Parse ``process:path`` or ``group/process:path``. Return None if ``text`` is a local path.

    >>> parse_remote_path("learner:out/model.pt").path
    'out/model.pt'
    >>> parse_remote_path("./learner:out")
    """
    before, colon, path = text.partition(":")
    names = before.split("/")
    if not colon or len(names) > 2 or not all(is_name(name) for name in names):
        return None
    group = names[0] if len(names) == 2 else None
    return RemotePath(process=names[-1], group=group, path=path or ".")


def parse_transfer(source: str, target: str) -> tuple[RemotePath | None, RemotePath | None]:
    """Parse the source and the target of a copy operation. In the result, None stands for the local
    path.

    Raises `SpecError` if both paths are local or if both are in processes.
    """
    remote_source = parse_remote_path(source)
    remote_target = parse_remote_path(target)
    if (remote_source is None) == (remote_target is None):
        kind = "local paths" if remote_source is None else "paths in processes"
        raise SpecError(
            f"{source!r} and {target!r} are both {kind}: one of them must be process:path and the "
            "other a local path (a local path with a colon begins with ./)"
        )
    return remote_source, remote_target
