"""Variables in compose files, which become parameters of the experiment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from symphony.importing.merge_compose_files import mapped
from symphony.importing.result import Imported
from symphony.model.document.parameters import INDEX_REFERENCES
from symphony.model.experiment.address_references import escape

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_PLAIN = re.compile(_NAME)
_BRACED = re.compile(rf"({_NAME})(?:(:?[-?+])(.*))?", re.DOTALL)
# Parameters with these names are not allowed, because symphony sets their values.
_RESERVED = re.compile(rf"SYMPH(?:ONY)?_.*|{'|'.join(INDEX_REFERENCES)}")
# The reason why a value that decides what a key means is not a parameter.
DEFAULT_IS_FIXED = "the value is the default of a variable, which no parameter changes"
# A reference to a parameter in the result.
_PARAMETER = re.compile(r"(?<!\$)\$\{(\w+)(?::-([^}]*))?\}")
# Stands for a dollar sign before a brace until it is known whether the file has parameters.
_LITERAL = "\0"
# Stands for the reference with a number until the defaults of all references are known.
_TOKEN = re.compile("\1(\\d+)\2")


@dataclass(frozen=True, slots=True)
class _Reference:
    """A reference to a variable. ``default`` is None if the variable must be set."""

    name: str
    default: str | None


class Interpolation:
    """The replacement of variables by references to parameters.

    `replaced` is called for each file. Then, `finished` returns the document. ``parameters`` maps
    the names of the variables to their defaults, which are None for variables that must be set.
    """

    def __init__(self, imported: Imported) -> None:
        self._imported = imported
        self._references: list[_Reference] = []
        self.parameters: dict[str, str | None] = {}

    def replaced(self, value: Any, values: Mapping[str, str]) -> Any:
        """Return the contents of a file in which tokens replace the variables.

        ``values`` contains the variables that the files ``.env`` set.
        """

        def reference(text: str) -> str:
            return self._reference(text, values)

        return mapped(value, lambda text: _scanned(text, reference))

    def resolved(self, value: Any) -> Any:
        """Return a value of a file in which the defaults of the variables replace the tokens."""

        def default(match: re.Match[str]) -> str:
            return self._references[int(match[1])].default or ""

        return mapped(value, lambda text: _TOKEN.sub(default, text).replace(_LITERAL, "$"))

    @staticmethod
    def shell_line(text: str) -> str:
        """Return a shell line in which ``$$`` is a dollar sign, and variables are unchanged."""
        return text.replace("$${", f"{_LITERAL}{{").replace("$$", "$")

    def finished(self, document: Any) -> Any:
        """Return a document in which references to parameters replace the tokens."""
        used: set[int] = set()

        def note(text: str) -> str:
            used.update(int(match[1]) for match in _TOKEN.finditer(text))
            return text

        mapped(document, note)
        texts = self._declare(sorted(used))

        def with_references(text: str) -> str:
            text = _with_literals(text, has_parameters=bool(self.parameters))
            return _TOKEN.sub(lambda match: texts[int(match[1])], text)

        return mapped(document, with_references)

    def _declare(self, used: list[int]) -> dict[int, str]:
        """Declare the parameters, and return the text for each reference."""
        by_name: dict[str, list[int]] = {}
        for number in used:
            by_name.setdefault(self._references[number].name, []).append(number)
        texts: dict[int, str] = {}
        for name, numbers in by_name.items():
            given = {self._references[number].default for number in numbers}
            common = next(iter(given)) if len(given) == 1 else ""
            self.parameters[name] = None if None in given else common
            for number in numbers:
                default = self._references[number].default
                if default is None or default == self.parameters[name]:
                    texts[number] = f"${{{name}}}"
                elif "}" in default or "${" in default:
                    texts[number] = default
                    self._omit(f"${{{name}}}", f"one of its defaults is {default!r}")
                else:
                    texts[number] = f"${{{name}:-{default}}}"
        return texts

    def _omit(self, where: str, problem: str, fix: str = "set the value in the result") -> None:
        self._imported.omit(where, problem, fix)

    def _reference(self, text: str, values: Mapping[str, str]) -> str:
        """Return a token for a reference, or the text that replaces it.

        ``text`` is the name of a variable, or the text between braces.
        """
        match = _BRACED.fullmatch(text)
        if match is None:
            self._omit(f"${{{text}}}", "this is not a reference to a variable", "write $${...}")
            return f"{_LITERAL}{{{text}}}"
        name, operator, argument = match[1], match[2] or "", match[3] or ""
        default = _value(text, values)
        if _RESERVED.fullmatch(name):
            self._omit(f"${{{name}}}", "symphony sets this variable itself", "rename the variable")
            return default or ""
        if operator.endswith("+"):
            self._omit(f"${{{text}}}", f"the value is {default!r}, whether or not {name} is set")
            return default or ""
        if "$" in argument.replace("$$", "") and not operator.endswith("?"):
            self._omit(
                f"${{{text}}}",
                f"the default of parameter {name} is {default!r}, which no other variable changes",
                f"set {name}",
            )
        self._references.append(_Reference(name, default))
        return f"\1{len(self._references) - 1}\2"


def _value(text: str, values: Mapping[str, str]) -> str | None:
    """Return the value of a reference if the environment sets no variables.

    The result is None if the variable must be set and is not.
    """
    match = _BRACED.fullmatch(text)
    if match is None:
        return f"${{{text}}}"
    name, operator, argument = match[1], match[2] or "", match[3] or ""
    value = values.get(name)
    is_set = bool(value) if operator.startswith(":") else value is not None
    kind = operator[-1:]
    if kind == "+":
        return _with_values(argument, values) if is_set else ""
    if is_set:
        return value
    if kind == "?":
        return None
    return _with_values(argument, values) if kind == "-" else ""


def _with_values(text: str, values: Mapping[str, str]) -> str:
    replaced = _scanned(text, lambda reference: _value(reference, values) or "")
    return replaced.replace(_LITERAL, "$")


def _scanned(text: str, replace: Callable[[str], str]) -> str:
    """Return a text in which ``replace`` has been applied to each reference.

    ``$$`` stands for a dollar sign. A dollar sign that begins no reference is unchanged.
    """
    parts: list[str] = []
    position = 0
    while True:
        start = text.find("$", position)
        if start < 0:
            return "".join([*parts, text[position:]])
        parts.append(text[position:start])
        following = text[start + 1 : start + 2]
        end = _closing_brace(text, start + 1) if following == "{" else -1
        name = _PLAIN.match(text, start + 1)
        if following == "$":
            is_before_brace = text[start + 2 : start + 3] == "{"
            parts.append(_LITERAL if is_before_brace else "$")
            position = start + 2
        elif end > 0:
            parts.append(replace(text[start + 2 : end]))
            position = end + 1
        elif name is not None:
            parts.append(replace(name[0]))
            position = name.end()
        else:
            parts.append(_LITERAL if following == "{" else "$")
            position = start + 1


def _closing_brace(text: str, opening: int) -> int:
    """Return the position of the brace that closes the one at ``opening``, or -1."""
    depth = 0
    for position in range(opening, len(text)):
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if depth == 0:
                return position
    return -1


def with_defaults(value: Any, parameters: Mapping[str, str | None]) -> Any:
    """Return a value in which the defaults of parameters replace the references to them.

    A reference without a default remains.
    """

    def default(match: re.Match[str]) -> str:
        own, known = match[2], parameters.get(match[1])
        found = known if own is None else own
        return match[0] if found is None else found

    return mapped(value, lambda text: _PARAMETER.sub(default, text))


def escaped(text: str, *, has_parameters: bool) -> str:
    """Return the text in an experiment file that stands for a text without references."""
    return _with_literals(text.replace("${", f"{_LITERAL}{{"), has_parameters=has_parameters)


def _with_literals(text: str, *, has_parameters: bool) -> str:
    """Return a text in which dollar signs replace their placeholders before braces.

    In a file without parameters, only a reference to an address begins with a dollar sign.
    """
    if has_parameters:
        return text.replace(_LITERAL, "$$")
    return escape(text.replace(_LITERAL, "$"))
