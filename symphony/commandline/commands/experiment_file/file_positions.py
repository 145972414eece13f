"""The positions of values in an experiment file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from symphony.errors import LaunchFailed, SpecError
from symphony.model.document_path import DocumentPath

# Matches the line and column numbers between the file name and the rest of an error message, as in
# "rl.yml:3:5: ...".
POSITION_PATTERN = re.compile(r"(?::(\d+)(?::(\d+))?)?: ")


class Position(NamedTuple):
    """A position in a file. Line and column numbers start at 1 and are None if they are unknown."""

    line: int | None = None
    column: int | None = None


UNKNOWN_POSITION = Position()


def position_from(match: re.Match[str]) -> Position:
    """Return the position that a match of `POSITION_PATTERN` contains."""
    line, column = match.groups()
    return Position(int(line) if line else None, int(column) if column else None)


def position_finder(path: Path) -> Callable[[DocumentPath], Position]:
    """Return a function that returns the position of a setting in the file.

    Positions are known only for YAML files.
    """
    if path.suffix not in {".yml", ".yaml"}:
        return lambda _: UNKNOWN_POSITION
    from symphony.model.document.documents import from_yaml, read_text
    from symphony.model.document.text_values import is_text

    data, locate = from_yaml(path, read_text(path), is_text)

    def position_of(document_path: DocumentPath) -> Position:
        location = locate(_path_in_file(data, document_path))
        match = POSITION_PATTERN.match(location.removeprefix(str(path)) + ": ")
        return UNKNOWN_POSITION if match is None else position_from(match)

    return position_of


def with_position(error: SpecError | LaunchFailed, path: Path) -> SpecError | LaunchFailed:
    """Return a copy of an error whose message begins with its position in the experiment file.

    Return ``error`` itself if its message contains the file name, or if the position is unknown.
    """
    if str(error).startswith(str(path)):
        return error
    position = position_finder(path)(error.path)
    numbers = [str(number) for number in position if number is not None]
    if not numbers:
        return error
    text = f"{':'.join([str(path), *numbers])}: {error}"
    if isinstance(error, LaunchFailed):
        return LaunchFailed(text, trouble=error.trouble, path=error.path)
    return SpecError(text, path=error.path)


def _path_in_file(data: Any, path: DocumentPath) -> DocumentPath:
    """Translate a path in the loaded experiment to the corresponding path in the file.

    Some keys differ between the two paths: in the file, replica ``agent-3`` is written as ``agent``
    with ``replicas``, and ``cmds`` can be written as ``cmd``. The result ends before the first key
    that the file does not contain.
    """
    written: list[str | int] = []
    for step in path:
        if isinstance(data, list) and isinstance(step, int) and step < len(data):
            key: str | int = step
        else:
            found = _key_in_file(data, step)
            if found is None:
                break
            key = found
        data = data[key]
        written.append(key)
    return tuple(written)


def _key_in_file(data: Any, step: str | int) -> str | int | None:
    """Return the key in ``data`` that corresponds to ``step``, or None if there is no such key."""
    if not isinstance(data, dict):
        return None
    if step in data:
        return step
    name = str(step)
    alternative = "cmd" if name == "cmds" else re.sub(r"-\d+$", "", name)
    return alternative if alternative in data else None
