r"""Env files: variables in the dotenv format that docker compose reads.

Each line is ``NAME=value`` or ``export NAME=value``. Empty lines and lines that begin with ``#``
are ignored.

* A value without quotes ends at the end of the line, or before a space that is followed by ``#``.
  Spaces around it are ignored.
* A value in single quotes is used without changes, except that ``\'`` stands for a quote.
* In a value in double quotes, ``\n``, ``\r``, ``\t``, ``\"``, ``\\`` and ``\$`` stand for single
  characters.
* A value in quotes can have several lines.
* Except in single quotes, ``$NAME`` and ``${NAME}`` stand for the value of a variable of this
  program's environment or of a previous line, and ``$$`` stands for a dollar sign. The value of
  ``${NAME:-default}`` is the default if the variable is unset or empty, and that of
  ``${NAME-default}`` if it is unset. Commands are never run.

No error message contains a value, because values are often secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from symphony.errors import SpecError, shown_name
from symphony.model.experiment.address_references import is_content
from symphony.model.settings.validators import ENV_NAME_PATTERN

MAX_BYTES = 1 << 20

_START = re.compile(
    r"[ \t]*(?:export[ \t]+)?(?P<name>[^=\n]*?)[ \t]*(?:(?P<equals>=)[ \t]*|$)", re.MULTILINE
)
_IGNORED = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_UNQUOTED = re.compile(r"[^\n]*")
_COMMENT = re.compile(r"(?:^|[ \t])#.*")
_SINGLE_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$$"}
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = re.compile(
    rf"\$(?:(?P<dollar>\$)|(?P<name>{_NAME})"
    rf"|\{{(?P<braced>{_NAME})(?:(?P<operator>:?-)(?P<default>[^${{}}]*))?\}}"
    r"|\{(?P<address>[^${}]*)\}|(?P<other>))"
)


def read(path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in an env file. ``environ`` contains the variables to which it can
    refer.

    Raises `NotFound` or `SpecError` with the name of the file and, if known, the line.
    """
    from symphony.model.document.documents import decode, read_bytes

    return parse(decode(path, read_bytes(path, MAX_BYTES)), shown_name(str(path)), environ)


def parse(text: str, source: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in the contents of an env file.

    ``source`` is the name of the file for error messages. Raises `SpecError` with the line.
    """
    return _Parser(text.removeprefix("\ufeff"), source, environ).parse()


class _Parser:
    def __init__(self, text: str, source: str, environ: Mapping[str, str]) -> None:
        self._text = text
        self._source = source
        self._environ = environ
        self._position = 0
        self._variables: dict[str, str] = {}

    def parse(self) -> dict[str, str]:
        while self._position < len(self._text):
            ignored = _IGNORED.match(self._text, self._position)
            if ignored is not None:
                self._position = ignored.end()
                continue
            name = self._parse_name()
            self._variables[name] = self._parse_value(name)
        return self._variables

    def _parse_name(self) -> str:
        start = _START.match(self._text, self._position)
        name = "" if start is None else start["name"]
        if start is None or start["equals"] is None:
            raise self._error("the line has no '='; write NAME=value")
        if not ENV_NAME_PATTERN.fullmatch(name):
            raise self._error(
                "the text before '=' is not the name of a variable; use letters, digits, '_', '-' "
                "and '.', and do not begin with a digit"
            )
        if "\0" in self._text[start.end() :].partition("\n")[0]:
            raise self._error("the line contains a NUL character; remove it")
        self._position = start.end()
        return name

    def _parse_value(self, name: str) -> str:
        quote = self._text[self._position : self._position + 1]
        if quote not in ("'", '"') or not quote:
            match = _UNQUOTED.match(self._text, self._position)
            raw = "" if match is None else _COMMENT.sub("", match[0], count=1).strip()
            value = self._interpolated(name, raw)
            self._position += 0 if match is None else len(match[0])
            return value
        pattern = _SINGLE_QUOTED if quote == "'" else _DOUBLE_QUOTED
        match = pattern.match(self._text, self._position)
        if match is None:
            raise self._error(f"the value of {name} has no closing {quote}; add it")
        if "\0" in match[0]:
            raise self._error(f"the value of {name} contains a NUL character; remove it")
        if quote == "'":
            value = match[1].replace("\\'", "'")
        else:
            value = self._interpolated(name, _ESCAPE.sub(_unescaped, match[1]))
        rest = _IGNORED.match(self._text, match.end())
        if rest is None:
            raise self._error(
                f"there is text after the closing {quote} of {name}; put the whole value in quotes"
            )
        self._position = rest.end()
        return value

    def _interpolated(self, variable: str, raw: str) -> str:
        return _REFERENCE.sub(lambda match: self._referenced(variable, match), raw)

    def _referenced(self, variable: str, match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        name = match["name"] or match["braced"]
        if name is None and is_content(match["address"] or ""):
            raise self._error(
                f"the value of {variable} contains the address of a service, which an env file "
                "cannot contain; set the variable in env of the experiment file, or put the value "
                "in single quotes for the text"
            )
        if name is None:
            raise self._error(
                f"a '$' in the value of {variable} is not followed by the name of a variable; put "
                "the value in single quotes, or write $$ for the character"
            )
        value = self._environ.get(name, self._variables.get(name))
        operator = match["operator"]
        if operator is not None and (value is None or (operator == ":-" and not value)):
            return str(match["default"])
        if value is None:
            # The name can be a part of a secret that contains a dollar sign.
            raise self._error(
                f"the value of {variable} refers to a variable that is not set; put the value in "
                "single quotes if '$' is a part of it, or set the other variable before this line"
            )
        return value

    def _error(self, problem: str) -> SpecError:
        line = self._text.count("\n", 0, self._position) + 1
        return SpecError(f"{self._source}:{line}: {problem}")


def _unescaped(match: re.Match[str]) -> str:
    r"""Return the character for an escape sequence. An unknown sequence is unchanged.

    The result for ``\$`` is ``$$``, which the interpolation replaces by a dollar sign.
    """
    return _ESCAPED.get(match[1], match[0])
