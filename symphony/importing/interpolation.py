"""Variables in compose files, which become parameters of the experiment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from symphony.model.address_references import escape

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE = re.compile(
    rf"\$(?:(?P<dollar>\$)|(?P<name>{_NAME})"
    rf"|\{{(?P<braced>{_NAME})(?:(?P<operator>:?[-?+])(?P<argument>[^{{}}]*))?\}})"
)
# Stands for a dollar sign before a brace until it is known whether the file has parameters.
_LITERAL = "\0"


class Interpolation:
    """The replacement of variables by references to parameters.

    ``parameters`` maps the names of the variables to their defaults, which are None for variables
    that must be set. ``unsupported`` contains the references that have no equivalent. ``values``
    contains the variables of the file ``.env``.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.parameters: dict[str, str | None] = {}
        self.unsupported: list[str] = []

    def document(self, value: Any) -> Any:
        """Return a document in which all variables are replaced."""
        replaced = self._replaced(value)
        if self.parameters:
            return _with_literals(replaced, lambda text: text.replace(_LITERAL, "$$"))
        return _with_literals(replaced, lambda text: escape(text.replace(_LITERAL, "$")))

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._replaced(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._replaced(item) for item in value]
        if not isinstance(value, str) or "$" not in value:
            return value
        text = value.replace("$${", f"{_LITERAL}{{")
        return _VARIABLE.sub(self._reference, text)

    def _reference(self, match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        name = match["name"] or match["braced"]
        operator, argument = match["operator"] or "", match["argument"] or ""
        if operator.endswith("+"):
            self.unsupported.append(match[0])
            return ""
        default: str | None = argument
        if operator.endswith("?"):
            default = None
        if name in self._values:
            default = self._values[name]
        declared = self.parameters.setdefault(name, default)
        if declared != default and operator.endswith("-"):
            return f"${{{name}:-{argument}}}"
        return f"${{{name}}}"


def _with_literals(value: Any, literal: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_literals(item, literal) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_literals(item, literal) for item in value]
    return literal(value) if isinstance(value, str) else value
