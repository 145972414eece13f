"""File parameters: their declarations, their values, and the replacement of ``${name}``.

References are replaced only in a file that declares parameters. In such a file, ``${name}`` or
``${name:-default}`` is a reference to a parameter. However, in shell lines (``cmd``, ``cmds``,
``preamble_cmds``), a name that is not declared refers to a shell variable. ``$${`` stands for a
literal ``${``. References to addresses, such as ``${redis.addr}``, are replaced later; see
`symphony.model.experiment.address_references`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from symphony.errors import SpecError
from symphony.model.document.text_values import is_text
from symphony.model.document_path import (
    REPLICA_KEYS,
    DocumentPath,
    can_be_composed_number,
    is_component,
    is_shell_line,
    takes_addresses,
)
from symphony.model.error_collector import ErrorCollector
from symphony.model.experiment.address_references import is_content
from symphony.model.limits import MAX_DIGITS
from symphony.model.settings import validators
from symphony.support.names import did_you_mean, join_names

KEY = "parameters"
# The names of the references that stand for the number of a process's or group's copy.
# `symphony.model.document.replicas` replaces these references.
INDEX, GROUP_INDEX = "index", "group_index"
INDEX_REFERENCES = (INDEX, GROUP_INDEX)
PARAMETER_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# The prefixes of the variables that symphony sets in each process's environment.
_RESERVED_PREFIX = re.compile(r"SYMPH_|SYMPHONY_")
_REFERENCE = re.compile(r"(\$+)\{([^}]*)(\}?)")
# A reference to an address can itself contain references, as in `${pool.${index}.addr}`.
_ADDRESS = re.compile(r"(\$+\{)((?:[-\w.*]|\$\{\w+\})+)\}")
_INNER_REFERENCE = re.compile(r"\$\{\w+\}")
_NAME_WITH_DEFAULT = re.compile(rf"({PARAMETER_NAME_PATTERN.pattern})(?::-(.*))?", re.DOTALL)
_INTEGER = re.compile(r"0|[1-9][0-9]*")
_NUMBER_OR_BOOLEAN = re.compile(r"true|false|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def substitute(
    document: Mapping[str, Any],
    given: Mapping[str, object],
    environ: Mapping[str, str],
    errors: ErrorCollector,
) -> dict[str, Any]:
    """Return a document in which parameter references are replaced by the parameters' values.

    The result does not contain the parameter declarations.

    A parameter's value comes from the first of these that contains it: ``given``, ``environ``, and
    the parameter's declaration. If a reference cannot be replaced, the document's value that
    contains the reference becomes None, and the error is added to ``errors``.
    """
    rest = {key: value for key, value in document.items() if key != KEY}
    if document.get(KEY) is None:
        if given:
            names = ", ".join(given)
            errors.add(
                SpecError(
                    f"the file declares no parameters, so {names} cannot be set; "
                    "declare them: parameters: {...}"
                )
            )
        return rest
    substitution = None
    with errors.at(KEY):
        defaults = _declared_defaults(document[KEY], errors)
        values = {
            name: text_of_value(value, f"parameter {name!r}") for name, value in given.items()
        }
        substitution = _Substitution(defaults, values, environ, errors)
        substitution.check_given_names()
    if substitution is None:
        return rest
    return {
        key: substitution.replace_in(value, (key,), as_text=is_text((), key, False))
        for key, value in rest.items()
    }


def values(
    document: Mapping[str, Any], given: Mapping[str, object], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the values that `substitute` uses for the declared parameters that have a value."""
    declared = document.get(KEY)
    if not isinstance(declared, Mapping):
        return {}
    found: dict[str, str] = {}
    for name, default in declared.items():
        value = given.get(name, environ.get(name, default))
        # `substitute` reports values that are not valid.
        with contextlib.suppress(SpecError):
            if value is not None:
                found[name] = text_of_value(value, f"parameter {name!r}")
    return found


def _declared_defaults(declared: Any, errors: ErrorCollector) -> dict[str, str | None]:
    """Return a mapping from each parameter to its default as a string, or to None if it has no
    default.
    """
    defaults: dict[str, str | None] = {}
    for name, default in validators.mapping(declared, KEY).items():
        # An invalid declaration still declares the name.
        defaults[name] = None
        with errors.at(name):
            _check_name(name)
            if default is not None:
                defaults[name] = text_of_value(default, f"parameter {name!r}")
    return defaults


def _check_name(name: str) -> None:
    if not PARAMETER_NAME_PATTERN.fullmatch(name):
        corrected = re.sub(r"\W", "_", name)
        hint = f"; for example {corrected!r}" if PARAMETER_NAME_PATTERN.fullmatch(corrected) else ""
        raise SpecError(
            f"parameter name {name!r} is not valid: use letters, digits and '_', "
            f"and do not begin with a digit{hint}"
        )
    if name in INDEX_REFERENCES or _RESERVED_PREFIX.match(name):
        raise SpecError(
            f"{name!r} cannot be a parameter, because symphony sets its value; choose another name"
        )


def text_of_value(value: object, subject: str) -> str:
    """Return a scalar as a string in the notation of an experiment file, such as ``true``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return validators.text(value, subject)


def value_of_composed_text(text: str) -> Any:
    """Return the integer that ``text`` represents, or ``text`` if it represents none.

    ``text`` consists of a value and further characters. Its digits must not change.

    >>> value_of_composed_text("8001"), value_of_composed_text("1.10")
    (8001, '1.10')
    """
    is_integer = len(text) <= MAX_DIGITS and _INTEGER.fullmatch(text)
    return int(text) if is_integer else text


def value_of_text(text: str) -> Any:
    """Return the number or boolean that ``text`` represents, or ``text`` if it represents neither.

    A number with too many characters remains text.

    >>> value_of_text("8"), value_of_text("0.5"), value_of_text("true"), value_of_text("4Gi")
    (8, 0.5, True, '4Gi')
    """
    import json

    is_value = len(text) <= MAX_DIGITS and _NUMBER_OR_BOOLEAN.fullmatch(text)
    return json.loads(text) if is_value else text


def _around_addresses(text: str, replaced: Callable[[str], str]) -> str:
    """Return a text in which ``replaced`` has been applied to everything except the notation of
    references to addresses.
    """
    result: list[str] = []
    position = 0
    for match in _ADDRESS.finditer(text):
        opening, content = match.groups()
        if is_content(_INNER_REFERENCE.sub("x", content)):
            result += [replaced(text[position : match.start()]), opening, replaced(content), "}"]
            position = match.end()
    result.append(replaced(text[position:]))
    return "".join(result)


class _Substitution:
    """The replacement of parameter references in a document."""

    def __init__(
        self,
        defaults: Mapping[str, str | None],
        given: Mapping[str, str],
        environ: Mapping[str, str],
        errors: ErrorCollector,
    ) -> None:
        self._defaults = defaults
        self._given = given
        self._environ = environ
        self._errors = errors

    def check_given_names(self) -> None:
        for name in self._given:
            if name not in self._defaults:
                message = f"there is no parameter {name!r}{self._hint(name)}"
                self._errors.add(SpecError(message, path=(name,)))

    def _hint(self, name: str) -> str:
        return did_you_mean(name, self._defaults) or f"; parameters: {join_names(self._defaults)}"

    def replace_in(
        self, value: Any, path: DocumentPath, *, as_text: bool, in_copies: bool = False
    ) -> Any:
        """Return the value at ``path`` with its references replaced.

        ``as_text`` is true if the value is always read as text. ``in_copies`` is true if the value
        is in the description of a process or group that has replicas.
        """
        if isinstance(value, Mapping):
            is_replicated = is_component(path) and any(
                value.get(key) is not None for key in REPLICA_KEYS
            )
            return self._replace_in_mapping(value, path, as_text, in_copies or is_replicated)
        if isinstance(value, list):
            return [
                self.replace_in(item, (*path, index), as_text=as_text, in_copies=in_copies)
                for index, item in enumerate(value)
            ]
        if not isinstance(value, str) or "${" not in value:
            return value
        try:
            return self._replace_in_scalar(value, path, as_text, in_copies)
        except SpecError as exc:
            exc.path = path
            self._errors.add_unusable(exc)
            return None

    def _replace_in_mapping(
        self, mapping: Mapping[str, Any], path: DocumentPath, as_text: bool, in_copies: bool
    ) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, item in mapping.items():
            item_path = (*path, key)
            new_key = key
            if isinstance(key, str):
                new_key = self.replace_in(key, item_path, as_text=True, in_copies=in_copies)
                if new_key is None:
                    continue
            if new_key in result:
                duplicate = SpecError(
                    f"the key {new_key!r} is duplicated after the parameters are replaced"
                )
                duplicate.path = item_path
                self._errors.add(duplicate)
                continue
            result[new_key] = self.replace_in(
                item, item_path, as_text=is_text(path, key, as_text), in_copies=in_copies
            )
        return result

    def _replace_in_scalar(
        self, written: str, path: DocumentPath, as_text: bool, in_copies: bool
    ) -> Any:
        in_shell_line = is_shell_line(path)

        def replaced(text: str) -> str:
            return _REFERENCE.sub(
                lambda match: self._replacement(match, in_copies, in_shell_line), text
            )

        if takes_addresses(path):
            return _around_addresses(written, replaced)
        text = replaced(written)
        if text == written or as_text:
            return text
        whole_value = _REFERENCE.fullmatch(written)
        if whole_value is not None and whole_value[1] == "$":
            return value_of_text(text)
        return value_of_composed_text(text) if can_be_composed_number(path) else text

    def _replacement(self, match: re.Match[str], in_copies: bool, in_shell_line: bool) -> str:
        dollars, content, closing_brace = match.groups()
        name_with_default = _NAME_WITH_DEFAULT.fullmatch(content) if closing_brace else None
        name = name_with_default[1] if name_with_default else ""
        if _RESERVED_PREFIX.match(name) or (in_copies and content in INDEX_REFERENCES):
            return match[0]
        if in_shell_line and name not in self._defaults:
            return match[0]
        # Two dollar signs stand for one literal dollar sign, so an even number of dollar signs
        # never begins a reference.
        escaped_dollars = "$" * (len(dollars) // 2)
        if len(dollars) % 2 == 0:
            return f"{escaped_dollars}{{{content}{closing_brace}"
        if is_content(content):
            raise SpecError(
                f"{match[0]!r} is not replaced here: an address can be used in env, command, args, "
                "cmd, cmds, preamble_cmds, stop_command and ready.command; write $${ for the text "
                "${"
            )
        if name_with_default is None or "${" in content:
            raise SpecError(
                f"{match[0]!r} is not a reference: write ${{name}} or ${{name:-default}}, "
                "or $${ for the text ${"
            )
        return escaped_dollars + self._value(name, name_with_default[2])

    def _value(self, name: str, fallback: str | None) -> str:
        """Return a parameter's value, or ``fallback`` if the value is unset or empty and
        ``fallback`` is not None.
        """
        if name not in self._defaults:
            raise self._unknown_parameter(name)
        if name in self._given:
            value: str | None = self._given[name]
        else:
            value = self._environ.get(name, self._defaults[name])
        if not value and fallback is not None:
            return fallback
        if value is None:
            raise SpecError(
                f"parameter {name!r} has no value; "
                f"give --set {name}=..., or set the variable {name}"
            )
        return value

    def _unknown_parameter(self, name: str) -> SpecError:
        if name in INDEX_REFERENCES:
            return SpecError(
                f"${{{name}}} can be used only in a process or a group with replicas; "
                f"write $${{{name}}} for the text"
            )
        return SpecError(
            f"there is no parameter {name!r}{self._hint(name)} "
            f"(declare it in {KEY}, or write $${{{name}}} for the text)"
        )
