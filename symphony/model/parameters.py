"""Parameters of a file: what it declares, what it is given, and how ``${name}`` becomes a value. Pure.

Only a file that declares parameters has any, and there ``${name}`` is one wherever it stands but in shell lines
(``cmd``, ``cmds``, ``preamble_cmds``), in which what is not declared belongs to the shell. ``$${`` is ``${`` itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from symphony.errors import SpecError, error_path
from symphony.model import validators
from symphony.model.document_path import Place, is_member, is_shell, is_text
from symphony.names import did_you_mean, join_names

KEY = "parameters"
INDEX, GROUP_INDEX = "index", "group_index"
OF_COUNTS = (INDEX, GROUP_INDEX)  # filled in where a count is: see `symphony.model.replicas`
_RESERVED = re.compile(r"SYMPH_|SYMPHONY_")  # what processes get from symphony

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"(\$+)\{([^}]*)(\}?)")
_BODY = re.compile(rf"({_NAME.pattern})(?::-(.*))?", re.DOTALL)
_PLAIN = re.compile(r"true|false|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def filled_in(
    data: Mapping[str, Any], given: Mapping[str, object], environ: Mapping[str, str]
) -> dict[str, Any]:
    """What a file says, with the values of its parameters, and without their declaration.

    A parameter has its value from ``given``, else from ``environ``, else from its declaration. Raises `SpecError`.
    """
    rest = {key: value for key, value in data.items() if key != KEY}
    if data.get(KEY) is None:
        if given:
            names = ", ".join(given)
            raise SpecError(
                f"it declares no parameters, and {names} cannot be set; declare it: parameters: {{...}}"
            )
        return rest
    with error_path(KEY):
        filling = _Filling(_declared(data[KEY]), _given(given), environ)
        filling.refuse_unknown()
    return {
        key: filling.fill(value, (key,), text=is_text((), key, False))
        for key, value in rest.items()
    }


def _declared(declared: Any) -> dict[str, str | None]:
    """The default of each parameter as text, None where it has none."""
    result: dict[str, str | None] = {}
    for name, default in validators.mapping(declared, KEY).items():
        with error_path(name):
            if not _NAME.fullmatch(name):
                mended = re.sub(r"\W", "_", name)
                hint = f"; for example {mended!r}" if _NAME.fullmatch(mended) else ""
                raise SpecError(
                    f"parameter name {name!r} is not valid: letters, digits and '_', no digit first{hint}"
                )
            if name in OF_COUNTS or _RESERVED.match(name):
                raise SpecError(
                    f"{name!r} cannot be a parameter: symphony gives it a value; choose another name"
                )
            result[name] = None if default is None else as_text(default, f"parameter {name!r}")
    return result


def _given(given: Mapping[str, object]) -> dict[str, str]:
    return {name: as_text(value, f"parameter {name!r}") for name, value in given.items()}


def as_text(value: object, what: str) -> str:
    """A value as it would be written in a file."""
    return str(value).lower() if isinstance(value, bool) else validators.text(value, what)


def as_value(text: str) -> Any:
    """What a text means where not only text is: a number, true or false, or else itself.

    >>> as_value("8"), as_value("0.5"), as_value("true"), as_value("4Gi")
    (8, 0.5, True, '4Gi')
    """
    import json

    return json.loads(text) if _PLAIN.fullmatch(text) else text


class _Filling:
    """Fills the values of some parameters into what a file says."""

    def __init__(
        self,
        declared: Mapping[str, str | None],
        given: Mapping[str, str],
        environ: Mapping[str, str],
    ) -> None:
        self._declared = declared
        self._given = given
        self._environ = environ

    def refuse_unknown(self) -> None:
        for name in self._given:
            if name not in self._declared:
                raise SpecError(f"there is no parameter {name!r}{self._hint(name)}")

    def _hint(self, name: str) -> str:
        return did_you_mean(name, self._declared) or f"; there are {join_names(self._declared)}"

    def fill(self, value: Any, place: Place, *, text: bool, counted: bool = False) -> Any:
        """``value``, which stands at ``place``, with everything in it filled in.

        ``text`` is whether it is taken as it is written, ``counted`` whether it is below something with a count.
        """
        if isinstance(value, Mapping):
            counts = is_member(place) and value.get("count") is not None
            return self._mapping(value, place, text, counted or counts)
        if isinstance(value, list):
            return [
                self.fill(item, (*place, at), text=text, counted=counted)
                for at, item in enumerate(value)
            ]
        if not isinstance(value, str) or "${" not in value:
            return value
        try:
            return self._scalar(value, text, counted, is_shell(place))
        except SpecError as exc:
            exc.path = place
            raise

    def _mapping(
        self, value: Mapping[str, Any], place: Place, text: bool, counted: bool
    ) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, item in value.items():
            below = (*place, key)
            name = (
                self.fill(key, below, text=True, counted=counted) if isinstance(key, str) else key
            )
            if name in result:
                raise SpecError(f"the key {name!r} stands twice, once it is filled in", path=below)
            result[name] = self.fill(item, below, text=is_text(place, key, text), counted=counted)
        return result

    def _scalar(self, written: str, text: bool, counted: bool, shell: bool) -> Any:
        found = _REFERENCE.sub(lambda match: self._replacement(match, counted, shell), written)
        whole = _REFERENCE.fullmatch(written)
        return (
            as_value(found)
            if whole and whole[1] == "$" and found != written and not text
            else found
        )

    def _replacement(self, match: re.Match[str], counted: bool, shell: bool) -> str:
        dollars, inner, end = match.groups()
        body = _BODY.fullmatch(inner) if end else None
        name = body[1] if body else ""
        if _RESERVED.match(name) or (counted and inner in OF_COUNTS):
            return match[0]
        if shell and name not in self._declared:
            return match[0]
        kept = "$" * (len(dollars) // 2)
        if len(dollars) % 2 == 0:
            return f"{kept}{{{inner}{end}"
        if body is None or "${" in inner:
            raise SpecError(
                f"{match[0]!r} is no parameter: ${{name}} or ${{name:-default}}; $${{ is ${{ itself"
            )
        return kept + self._value(name, body[2])

    def _value(self, name: str, default: str | None) -> str:
        if name not in self._declared:
            if name in OF_COUNTS:
                raise SpecError(
                    f"${{{name}}} stands only below a count; write $${{{name}}} for the text itself"
                )
            hint = self._hint(name)
            raise SpecError(
                f"there is no parameter {name!r}{hint} (declare it under {KEY}, or write $${{{name}}} for the text)"
            )
        if name in self._given:
            found: str | None = self._given[name]
        else:
            found = self._environ.get(name, self._declared[name])
        if default is not None and not found:  # as a shell has it: unset or empty
            return default
        if found is None:
            raise SpecError(
                f"parameter {name!r} has no value: give --set {name}=..., or set the variable {name}"
            )
        return found
