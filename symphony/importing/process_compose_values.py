"""The values in process-compose files, which contain variables and templates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from symphony.importing import go_templates
from symphony.importing.interpolation import Interpolation
from symphony.importing.result import Imported
from symphony.model.document.other_formats.values import mapping

REPLICA_NUMBER, PROCESS_NAME = "PC_REPLICA_NUM", "PC_PROC_NAME"
_NUMBER_VARIABLE = re.compile(rf"\$\{{{REPLICA_NUMBER}\}}|\${REPLICA_NUMBER}\b")
# The template that has the same meaning as the variable.
_NUMBER_TEMPLATE = f"{{{{.{REPLICA_NUMBER}}}}}"


@dataclass(frozen=True, kw_only=True)
class Values:
    """The values at one place of a file.

    ``where`` is the place. ``environ`` contains the variables in the file ``.env``. If ``expands``
    is false, the file contains no variables. ``file_variables`` are the template variables of the
    file, which become parameters, and ``variables`` those of the process.
    """

    where: str
    imported: Imported
    interpolation: Interpolation
    environ: Mapping[str, str]
    expands: bool
    file_variables: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)

    def at(self, where: str, variables: Mapping[str, str] | None = None) -> Values:
        """Return the values at another place, which can have other template variables."""
        return replace(self, where=where, variables=variables or self.variables)

    def below(self, key: str) -> Values:
        """Return the values below a key."""
        return replace(self, where=f"{self.where}.{key}" if self.where else key)

    def omit(self, problem: str, fix: str = "nothing to do") -> None:
        """Report that the place is left out or changed."""
        self.imported.omit(self.where, problem, fix)

    def text(self, value: Any) -> str:
        """Return a text in which parameters replace the variables and templates."""
        text = str(value)
        if self.expands and "$" in text:
            text = _NUMBER_VARIABLE.sub(_NUMBER_TEMPLATE, text)
            text = self.interpolation.replaced(text, self.environ)
        return self._rendered(text)

    def shell_line(self, value: Any) -> str:
        """Return a shell line. The shell replaces the variables when it runs the line."""
        text = str(value)
        return self._rendered(self.interpolation.shell_line(text) if self.expands else text)

    def environment(self, value: Any) -> dict[str, str]:
        """Return the variables in a mapping or a list of ``key=value``."""
        try:
            pairs = mapping(value or {})
        except TypeError:
            self.omit("the value has an unexpected form", "write a list of NAME=VALUE")
            return {}
        result = {}
        for key, item in pairs.items():
            result[key] = "" if item is None else self.text(item)
        return result

    def _rendered(self, text: str) -> str:
        if "{{" not in text:
            return text
        result, unknown = go_templates.rendered(text, self._template_variable)
        for template in unknown:
            self.omit(f"the template {template} is not replaced", "write its value")
        return result

    def _template_variable(self, name: str) -> str | None:
        if name in self.variables:
            return self.variables[name]
        if name not in self.file_variables:
            return None
        self.interpolation.parameters[name] = self.file_variables[name]
        return f"${{{name}}}"


def texts(value: Any) -> dict[str, str]:
    """Return a mapping whose values are texts, or an empty one if the value is no mapping."""
    items = value.items() if isinstance(value, Mapping) else ()
    return {str(key): _text(item) for key, item in items}


def _text(value: Any) -> str:
    return "" if value is None else str(value)
