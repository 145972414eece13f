"""The configurations of VS Code's debugger in the file ``.vscode/launch.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from symphony.errors import SpecError
from symphony.support.replace_file import replace_file

LAUNCH_FILE = Path(".vscode", "launch.json")
_VERSION = "0.2.0"
_INDENT = 4
# A string, or a comment, in JSON with comments.
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_TRAILING_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n]")
_SPACE = re.compile(r"\s*")


def attach_configuration(
    name: str, host: str, port: int, local_root: str = "", remote_root: str = ""
) -> dict[str, Any]:
    """Return the configuration that attaches to debugpy.

    If the roots are given, the files below ``local_root`` are those that the process has below
    ``remote_root``.
    """
    configuration: dict[str, Any] = {
        "name": name,
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": host, "port": port},
    }
    if remote_root:
        configuration["pathMappings"] = [{"localRoot": local_root, "remoteRoot": remote_root}]
    return configuration


def workspace_path(path: Path, workspace: Path) -> str:
    """Return a path for a configuration, relative to the workspace if it is inside."""
    variable = "${workspaceFolder}"
    try:
        relative = path.relative_to(workspace)
    except ValueError:
        return str(path)
    return variable if relative == Path() else f"{variable}/{relative}"


def write_configuration(path: Path, configuration: Mapping[str, Any]) -> None:
    """Add a configuration to a file, or replace the one with the same name.

    All other text of the file is kept, including comments. Raises SpecError if the file is not
    valid or cannot be written.
    """
    try:
        path.parent.mkdir(exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        new = merged_text(text, configuration)
        replace_file(path.resolve(), [new.encode()])
    except (OSError, UnicodeDecodeError, _NotValid) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise SpecError(
            f"cannot add the configuration to {path}: {reason}; correct the file, or paste the "
            "configuration that symphony debug prints without --write"
        ) from exc


class _NotValid(Exception):
    """The text is not a launch.json. The message states what is wrong."""


def merged_text(text: str, configuration: Mapping[str, Any]) -> str:
    """Return the text of a launch.json with a configuration that is new or replaces another one."""
    if not text.strip():
        content = {"version": _VERSION, "configurations": [configuration]}
        return json.dumps(content, indent=_INDENT) + "\n"
    # The replaced comments have the same length, so that positions are those of the text.
    plain = _STRING_OR_TRAILING_COMMA.sub(_blank, _STRING_OR_COMMENT.sub(_blank, text))
    try:
        content = json.loads(plain)
    except ValueError as exc:
        raise _NotValid(f"it is not valid JSON ({exc})") from exc
    if not isinstance(content, dict):
        raise _NotValid("it does not contain an object")
    present = content.get("configurations", [])
    if not isinstance(present, list):
        raise _NotValid("its 'configurations' is not a list")
    body = _indented(configuration, depth=2)
    if "configurations" not in content:
        comma = "," if content else ""
        start = plain.index("{") + 1
        item = f'\n{" " * _INDENT}"configurations": [\n{body}\n{" " * _INDENT}]{comma}\n'
        return text[:start] + item + text[start:]
    members = {key: start for key, start, _ in _members(plain, _start(plain, 0))}
    opening = members["configurations"]
    for item, start, end in _items(plain, opening):
        if isinstance(item, dict) and item.get("name") == configuration["name"]:
            return text[:start] + body.lstrip() + text[end:]
    comma = "," if present else f"\n{' ' * _INDENT}"
    return f"{text[: opening + 1]}\n{body}{comma}{text[opening + 1 :]}"


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return found if found.startswith('"') else _NOT_NEWLINE.sub(" ", found)


def _indented(value: Any, *, depth: int) -> str:
    margin = " " * (_INDENT * depth)
    return "\n".join(margin + line for line in json.dumps(value, indent=_INDENT).splitlines())


def _start(text: str, position: int) -> int:
    """Return the position of the next character that is not a space."""
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def _members(text: str, position: int) -> Iterator[tuple[str, int, int]]:
    """Yield the keys of the object at a position, with the starts and ends of their values."""
    decoder = json.JSONDecoder()
    position = _start(text, position + 1)
    while text[position] != "}":
        key, position = decoder.raw_decode(text, position)
        start = _start(text, _start(text, position) + 1)
        _, end = decoder.raw_decode(text, start)
        yield key, start, end
        position = _after_comma(text, end)


def _items(text: str, position: int) -> Iterator[tuple[Any, int, int]]:
    """Yield the items of the array at a position, with their starts and ends."""
    decoder = json.JSONDecoder()
    position = _start(text, position + 1)
    while text[position] != "]":
        item, end = decoder.raw_decode(text, position)
        yield item, position, end
        position = _after_comma(text, end)


def _after_comma(text: str, position: int) -> int:
    position = _start(text, position)
    return _start(text, position + 1) if text[position] == "," else position
