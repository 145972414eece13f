"""Go templates in process-compose files, as far as they only contain variables and text."""

from __future__ import annotations

import re
from collections.abc import Callable

_ACTION = re.compile(r'\{\{-?\s*("(?:[^"\\]|\\.)*"|`[^`]*`|.*?)\s*-?\}\}', re.DOTALL)
_FIELD = re.compile(r"\.([A-Za-z_]\w*)")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"|`([^`]*)`')


def rendered(text: str, value: Callable[[str], str | None]) -> tuple[str, list[str]]:
    """Return a text in which values replace the templates, and the templates that are unchanged.

    ``value`` returns the value of a variable, or None if it is not known.
    """
    unknown: list[str] = []

    def replacement(match: re.Match[str]) -> str:
        text = _TEXT.fullmatch(match[1])
        if text is not None:
            return text[2] if text[1] is None else re.sub(r"\\(.)", r"\1", text[1])
        field = _FIELD.fullmatch(match[1])
        found = None if field is None else value(field[1])
        if found is None:
            unknown.append(match[0])
            return match[0]
        return found

    return _ACTION.sub(replacement, text), unknown
