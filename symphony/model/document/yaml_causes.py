"""Likely causes of the syntax errors of YAML, in the words of a user who edits the file.

A YAML parser reports the position at which it could not continue, and the tokens that it expected.
The functions here look at the lines around this position for the usual mistakes.
"""

from __future__ import annotations

import re

_KEY = re.compile(r"\s*(?:- +)*(?P<key>[^\s#:'\"{\[][^:#]*):(?P<value>\s+\S.*)?\s*$")
_KEY_WITHOUT_SPACE = re.compile(r"\s*(?:- +)*(?P<key>[A-Za-z_][\w-]*):(?P<value>[^\s/].*)$")
# A plain value cannot begin with these characters.
_RESERVED_CHARACTERS = "@`%"


def likely_cause(
    text: str, problem: str, line: int, column: int, context_line: int | None = None
) -> str | None:
    """Return the likely cause of a syntax error and its fix, or None if no usual mistake is found.

    ``problem`` is the parser's message. ``line`` and ``column`` are its position, counted from 0.
    ``context_line`` is the line at which the incomplete value begins, if the parser reports it.
    """
    lines = text.split("\n")
    current = lines[line] if line < len(lines) else ""
    tab_line = _indented_with_tab(lines, line)
    if tab_line is not None:
        return f"line {tab_line + 1} is indented with a tab; indent it with spaces"
    if "unexpected end of stream" in problem and context_line is not None:
        return f"the quote that begins at line {context_line + 1} is not closed"
    if "expected ',' or" in problem and context_line is not None:
        bracket = "}" if "'}'" in problem else "]"
        return f"a {bracket!r} is missing after line {context_line + 1}, or a comma before this one"
    if "unknown escape character" in problem:
        return "put the value in single quotes, in which a backslash has no special meaning"
    if "expected a single document" in problem:
        return "an experiment file contains one experiment; write the others to files of their own"
    if "undefined alias" in problem or "scanning an alias" in problem:
        return "a value that begins with * must be in quotes"
    if "cannot start any token" in problem and current[column : column + 1] in _RESERVED_CHARACTERS:
        return f"a value that begins with {current[column]} must be in quotes"
    if "mapping values are not allowed" in problem:
        return _misplaced_colon(lines, line, column)
    if "expected <block end>" in problem or "could not find expected ':'" in problem:
        return _wrong_indentation(lines, line)
    return None


def _indented_with_tab(lines: list[str], line: int) -> int | None:
    """Return the number of the line at the error, or just above it, that is indented with a tab."""
    for number in (line, line - 1):
        if 0 <= number < len(lines):
            indentation = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
            if "\t" in indentation:
                return number
    return None


def _misplaced_colon(lines: list[str], line: int, column: int) -> str | None:
    before = lines[line][:column]
    if ": " in before:
        key = before.partition(":")[0].strip().removeprefix("- ")
        return f"the value of {key} contains ': ', so it must be in quotes"
    above = _line_above(lines, line)
    if above is None:
        return None
    if _KEY.match(lines[above]) and _indentation(lines[line]) > _indentation(lines[above]):
        return _too_deep(lines, line, above)
    return _incomplete_key(lines, above)


def _incomplete_key(lines: list[str], number: int) -> str | None:
    """Return the cause if a line contains a key without a colon, or without a space after it."""
    without_space = _KEY_WITHOUT_SPACE.match(lines[number])
    if without_space is not None:
        key, value = without_space["key"], without_space["value"]
        return f"a space is missing after the colon in line {number + 1}; write {key}: {value}"
    content = lines[number].strip()
    if ":" in content or content.startswith("-"):
        return None
    return f"a colon is missing in line {number + 1}"


def _wrong_indentation(lines: list[str], line: int) -> str | None:
    """Return the cause if a line's indentation differs from that of the keys around it."""
    above = _line_above(lines, line)
    if above is None:
        return None
    incomplete_key = _incomplete_key(lines, above)
    if incomplete_key is not None:
        return incomplete_key
    if lines[line].lstrip().startswith("- "):
        return f"line {line + 1} is an element of a list, but the lines above it are keys"
    own, other = _indentation(lines[line]), _indentation(lines[above])
    if own > other:
        return _too_deep(lines, line, above)
    levels = sorted({_indentation(text) for text in lines[:line] if text.strip()})
    if own in levels:
        return None
    return (
        f"line {line + 1} is indented by {_spaces(own)}, but the lines above it by "
        f"{' or '.join(str(level) for level in levels if level)}"
    )


def _too_deep(lines: list[str], line: int, above: int) -> str | None:
    match = _KEY.match(lines[above])
    if match is None or match["value"] is None:
        return None
    own, other = _indentation(lines[line]), _indentation(lines[above])
    return (
        f"line {line + 1} is indented by {_spaces(own)}, more than line {above + 1}, whose key "
        f"has a value already; indent it by {_spaces(other)}"
    )


def _line_above(lines: list[str], line: int) -> int | None:
    """Return the number of the nearest line above that is neither empty nor a comment."""
    for number in range(line - 1, -1, -1):
        content = lines[number].strip()
        if content and not content.startswith("#"):
            return number
    return None


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _spaces(count: int) -> str:
    return "1 space" if count == 1 else f"{count} spaces"
