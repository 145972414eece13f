"""The types of the values in an experiment: their validators and their JSON Schemas.

The schemas refer to `DEFINITIONS`. Schemas for text also accept numbers and booleans, because the
loader reads any YAML scalar as text where text is expected. Every scalar value can also be a
parameter reference (``${name}``).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from symphony.errors import SpecError, shown
from symphony.model.error_collector import ErrorCollector
from symphony.model.settings import validators
from symphony.model.settings.durations import (
    DURATION_PATTERN,
    MAX_TIME_LIMIT_SECONDS,
    parse_exact_seconds,
    parse_positive_duration,
)
from symphony.model.settings.quantities import (
    QUANTITY_PATTERN,
    log_size_text,
    memory_text,
    quantity_text,
)
from symphony.support import names
from symphony.support.signal_names import STOP_SIGNALS

Schema = dict[str, Any]
# A function that reads a value with parts; see `ValueType`.
PartsReader = Callable[[Any, str, ErrorCollector], Any]

NULL_SCHEMA: Schema = {"type": "null"}
PARAMETER_REFERENCE = r"\$\{"
MAX_REPLICAS = 10_000
_STOP_SIGNAL_NAMES = "|".join(STOP_SIGNALS)
# The longest delay before a restart. It is that of Kubernetes.
MAX_BACKOFF_SECONDS = 300
# The number of restarts in a policy such as on-failure:5 has at most this many digits.
_MAX_LIMIT_DIGITS = 9


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of a value.

    ``parse`` takes a value and its name for error messages. It returns the value in its normalized
    form, or raises `SpecError`. ``read``, if it is not None, does the same for a value with parts,
    but adds the errors in the parts to a collector, so that all of them are reported. It returns
    the valid parts: in a list, None takes the place of each invalid element, and a mapping with
    fixed keys of which one is invalid is None.
    """

    schema: Schema
    parse: Callable[[Any, str], Any]
    read: PartsReader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A key of a mapping in an experiment file, and the type of its value.

    ``subject`` is the value's name in error messages, if it differs from the field's name. The
    value None means that the field is not set, unless the field is required or not ``nullable``.
    """

    name: str
    type: ValueType
    description: str
    subject: str = ""
    required: bool = False
    nullable: bool = True

    def parse(self, value: object) -> Any:
        """Return the value in its normalized form, or raise `SpecError`."""
        # This is the same as `error_path`, but faster. A launch calls it for each option.
        try:
            return self.type.parse(value, self.subject or self.name)
        except SpecError as exc:
            exc.path = (self.name, *exc.path)
            raise

    def schema(self) -> Schema:
        """Return the schema of the value."""
        return described(self.description, self.type.schema)


def field_table(*fields: Field) -> dict[str, Field]:
    """Return a mapping from field names to fields."""
    return {field.name: field for field in fields}


def parse_fields(fields: Mapping[str, Field], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are set, in their normalized form, or raise `SpecError`."""
    result: dict[str, Any] = {}
    for name, value in given.items():
        is_unset = value is None and fields[name].nullable
        if not is_unset:
            result[name] = fields[name].parse(value)
    return result


def parse_record(fields: Mapping[str, Field], value: object, subject: str) -> dict[str, Any]:
    """Return the values that are set in a mapping with fixed keys, in their normalized form.

    Raises `SpecError` if a key is unknown, a required key is missing or a value is invalid.
    """
    given = validators.mapping(value, subject)
    validators.refuse_unknown(given, fields, subject)
    for name, field in fields.items():
        if field.required and given.get(name) is None:
            raise SpecError(f"{subject} needs {name}", path=(name,))
    return parse_fields(fields, given)


# --- building schemas ---


def whole_match(pattern: re.Pattern[str]) -> str:
    """Return a regular expression that matches only strings that ``pattern`` matches as a whole."""
    return f"^({pattern.pattern})$"


def or_reference(pattern: str = "") -> str:
    """Return a regular expression for strings that match ``pattern`` or contain a reference."""
    return rf"{pattern}|{PARAMETER_REFERENCE}" if pattern else PARAMETER_REFERENCE


def definition(name: str) -> Schema:
    """Return a reference to one of the schema's definitions."""
    return {"$ref": f"#/$defs/{name}"}


def any_of(*schemas: Schema) -> Schema:
    """Return a schema that accepts every value that at least one of the schemas accepts."""
    return {"anyOf": list(schemas)}


def mapping_of(keys: Schema, items: Schema) -> Schema:
    """Return the schema of a mapping whose keys match ``keys`` and whose values match ``items``."""
    return {"type": "object", "propertyNames": keys, "additionalProperties": items}


def list_of(items: Schema) -> Schema:
    """Return the schema of a list whose items match ``items``."""
    return {"type": "array", "items": items}


def described(description: str, schema: Schema) -> Schema:
    """Return a copy of ``schema`` with a description."""
    return {"description": description, **schema}


def or_null(schema: Schema) -> Schema:
    """Return a schema that accepts null and every value that ``schema`` accepts.

    The schema has the simplest possible form, because editors display it.
    """
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "type" in schema and "oneOf" not in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {**schema, "type": [*types, "null"]}
    description = {key: item for key, item in schema.items() if key == "description"}
    rest = {key: item for key, item in schema.items() if key != "description"}
    choices = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
    return {**description, "anyOf": [*choices, NULL_SCHEMA]}


def object_schema(fields: Mapping[str, Field]) -> Schema:
    """Return the schema of a mapping that can have the given fields and no others."""
    properties: dict[str, Schema] = {}
    for name, field in fields.items():
        is_nullable = field.nullable and not field.required
        properties[name] = or_null(field.schema()) if is_nullable else field.schema()
    result: Schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    required = [name for name, field in fields.items() if field.required]
    return {**result, "required": required} if required else result


def has_key(key: str) -> Schema:
    """Return the schema of a mapping in which ``key`` is present and not null."""
    return {"type": "object", "required": [key], "properties": {key: {"not": NULL_SCHEMA}}}


def not_both(first: str, *others: str) -> Schema:
    """Return a schema that rejects mappings with the key ``first`` and any key in ``others``."""
    return {"not": {"allOf": [has_key(first), any_of(*(has_key(other) for other in others))]}}


def _duration_schema(maximum: int) -> Schema:
    """Return the schema of a duration above 0."""
    return {
        "description": "a number of seconds, or a duration: '90s', '5m', '1h30m'",
        "type": ["number", "string"],
        "exclusiveMinimum": 0,
        "maximum": maximum,
        "pattern": or_reference(whole_match(DURATION_PATTERN)),
    }


_SCALAR_TYPES = ["string", "number", "boolean"]

DEFINITIONS: dict[str, Schema] = {
    "name": {
        "type": "string",
        "description": "a-z, 0-9 and '-'; the first character is a letter, the last is not '-'",
        "pattern": or_reference(whole_match(names._LABEL)),
        "maxLength": names.MAX_LENGTH,
    },
    "text": {"type": _SCALAR_TYPES},
    "filled": {"type": _SCALAR_TYPES, "minLength": 1},
    "strings": {"type": [*_SCALAR_TYPES, "array"], "items": definition("text")},
    "line": {"type": _SCALAR_TYPES, "pattern": r"\S"},
    "lines": {
        "type": [*_SCALAR_TYPES, "array"],
        "pattern": r"\S",
        "items": definition("line"),
    },
    "absolute": {"type": "string", "pattern": or_reference("^/")},
    "port": {
        "type": ["integer", "string"],
        "minimum": validators.MIN_PORT,
        "maximum": validators.MAX_PORT,
        "pattern": or_reference(),
    },
    "count": {
        "type": ["integer", "string"],
        "minimum": 0,
        "maximum": validators.MAX_WHOLE_NUMBER,
        "pattern": or_reference(),
    },
    "copies": {
        "type": ["integer", "string"],
        "minimum": 0,
        "maximum": MAX_REPLICAS,
        "pattern": or_reference(),
    },
    "duration": _duration_schema(MAX_TIME_LIMIT_SECONDS),
    "backoff": _duration_schema(MAX_BACKOFF_SECONDS),
    "seconds": {
        "description": "a whole number of seconds, or a duration: '90s', '5m', '1h30m'",
        "type": ["integer", "string"],
        "minimum": 0,
        "maximum": MAX_TIME_LIMIT_SECONDS,
        "pattern": or_reference(whole_match(DURATION_PATTERN)),
    },
    "quantity": {
        "description": "an amount: 2, 0.5, '500m', '4Gi'",
        "type": ["number", "string"],
        "minimum": 0,
        "pattern": or_reference(whole_match(QUANTITY_PATTERN)),
    },
    "env": {
        **mapping_of(
            {"pattern": or_reference(whole_match(validators.ENV_NAME_PATTERN))}, definition("text")
        ),
        "description": "Variables by name. Values are read as text.",
    },
    "labels": mapping_of(
        {"pattern": or_reference(whole_match(validators.LABEL_KEY_PATTERN))},
        {
            "type": _SCALAR_TYPES,
            "pattern": or_reference(whole_match(validators.LABEL_VALUE_PATTERN)),
        },
    ),
    "services": any_of(
        definition("name"),
        list_of(definition("name")),
        mapping_of(definition("name"), any_of(definition("port"), NULL_SCHEMA)),
    ),
    "files": any_of(
        definition("filled"),
        list_of(definition("filled")),
        mapping_of(
            {
                "pattern": or_reference(whole_match(validators.FILE_NAME_PATTERN)),
                "not": {"enum": [".", ".."]},
            },
            definition("filled"),
        ),
    ),
}


# --- checks ---


def with_parts(schema: Schema, read: PartsReader) -> ValueType:
    """Return the type of a value with parts. For ``read``, see `ValueType`."""

    def parse(value: object, subject: str) -> Any:
        errors = ErrorCollector()
        result = read(value, subject, errors)
        for error in errors.errors:
            raise error
        return result

    return ValueType(schema, parse, read)


def pairs(schema: Schema, parse_pair: Callable[[object, object], tuple[str, str]]) -> ValueType:
    """Return the type of a mapping whose keys and values ``parse_pair`` validates."""

    def read(value: object, subject: str, errors: ErrorCollector) -> dict[str, str]:
        return read_pairs(parse_pair, value, subject, errors)

    return with_parts(schema, read)


def read_pairs(
    parse_pair: Callable[[object, object], tuple[str, str]],
    value: object,
    subject: str,
    errors: ErrorCollector,
) -> dict[str, str]:
    """Return the valid keys and values of a mapping, and add an error for each of the others."""
    result: dict[str, str] = {}
    for key, content in validators.mapping_of_pairs(value, subject).items():
        with errors.at(key):
            name, text = parse_pair(key, content)
            result[name] = text
    return result


def read_record(
    fields: Mapping[str, Field], value: object, subject: str, errors: ErrorCollector
) -> dict[str, Any] | None:
    """Return the values that are set in a mapping with fixed keys, in their normalized form.

    Adds an error for each key that is unknown or missing, and for each value that is invalid. In
    this case, the result is None.
    """
    if not isinstance(value, (dict, Mapping)):
        keys = ", ".join(fields)
        raise SpecError(f"{subject} must be a mapping with the keys {keys}, not {shown(value)}")
    given = validators.mapping(value, subject)
    is_valid = True
    for key in given:
        if key not in fields:
            errors.add(validators.unknown_key(key, fields, subject))
            is_valid = False
    result: dict[str, Any] = {}
    for name, field in fields.items():
        item = given.get(name)
        if field.required and item is None:
            errors.add(SpecError(f"{subject} needs {name}", path=()))
            is_valid = False
        elif item is not None or (name in given and not field.nullable):
            try:
                result[name] = field.parse(item)
            except SpecError as exc:
                errors.add(exc)
                is_valid = False
    return result if is_valid else None


def list_of_records(item_schema: Schema, read_item: PartsReader) -> ValueType:
    """Return the type of a list whose elements ``read_item`` reads."""

    def read(value: object, subject: str, errors: ErrorCollector) -> list[dict[str, Any] | None]:
        if not isinstance(value, (list, tuple)):
            raise SpecError(f"{subject} must be a list, not {shown(value)}")
        items: list[dict[str, Any] | None] = []
        for index, item in enumerate(value):
            found: dict[str, Any] | None = None
            with errors.at(index):
                found = read_item(item, subject, errors)
            items.append(found)
        return items

    return with_parts(list_of(item_schema), read)


def _http_test(value: object, _: str) -> list[str]:
    if isinstance(value, str) and "://" not in value:
        service, _slash, page = value.partition("/")
        value = [service, f"/{page}"]
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise SpecError(
            "http must be a service and a path, such as web/health or ['web', '/health'], not "
            f"{shown(value)}"
        )
    service, path = value
    return [
        names.check_name(service, "service"),
        validators.absolute_path(path, "the path of http"),
    ]


def _program_or_line(value: object, subject: str) -> list[str] | str:
    if not isinstance(value, (list, tuple)):
        return validators.shell_line(value, subject)[0]
    words = validators.strings(value, subject)
    if not words or not words[0]:
        raise SpecError(f"{subject} is empty; give a program with its arguments, or a shell line")
    return words


def _stop_signal(value: object, subject: str) -> str:
    """Return the name of a signal in upper case and without SIG."""
    word = validators.text(value, subject)
    name = (word.upper() if word.islower() else word).removeprefix("SIG")
    if name == "KILL":
        raise SpecError(
            f"{subject} cannot be KILL, because no program can react to it; "
            "to kill the process at once, set termination_grace_period: 0"
        )
    return validators.one_of(name, STOP_SIGNALS, subject)


def _regular_expression(value: object, subject: str) -> str:
    pattern = validators.text(value, subject)
    try:
        validators.compiled(pattern)
    except re.error as exc:
        raise SpecError(f"{subject} is not a regular expression: {shown(pattern)}: {exc}") from exc
    return pattern


def _services_without_ports(value: validators.ServiceSpec, subject: str) -> list[str]:
    services = validators.services(value, subject)
    for name, port in services.items():
        if port is not None:
            raise SpecError(
                f"{subject} takes no port ({name!r}: {port}); "
                "set the port where the service is bound"
            )
    return list(services)


def _backoff(value: Any, subject: str) -> float:
    return parse_positive_duration(value, subject, maximum=MAX_BACKOFF_SECONDS)


def _names(value: validators.Strings, subject: str) -> list[str]:
    found = [names.check_name(name, subject) for name in validators.strings(value, subject)]
    return list(dict.fromkeys(found))


def _port_range(value: object, _: str) -> tuple[int, int]:
    return validators.port_range(value)


# --- the types ---

NAME = ValueType(definition("name"), names.check_name)
TEXT = ValueType(definition("text"), validators.text)
NONEMPTY_TEXT = ValueType(definition("filled"), validators.nonempty_text)
STRINGS = ValueType(definition("strings"), validators.strings)
SHELL_LINE = ValueType(definition("line"), validators.shell_line)
SHELL_LINES = ValueType(definition("lines"), validators.shell_lines)
ABSOLUTE_PATH = ValueType(definition("absolute"), validators.absolute_path)
WHOLE_NUMBER = ValueType(definition("count"), validators.whole_number)
POSITIVE_NUMBER = ValueType(
    {**definition("count"), "minimum": 1}, functools.partial(validators.whole_number, least=1)
)
_MAX_EXIT_CODE = 255


def _exit_codes(value: object, subject: str) -> list[int]:
    """Return exit codes, which are given as a number or a list, in ascending order."""
    given = value if isinstance(value, (list, tuple)) else [value]
    codes = {validators.whole_number(code, subject) for code in given}
    if codes and max(codes) > _MAX_EXIT_CODE:
        raise SpecError(f"{subject} must be at most {_MAX_EXIT_CODE}, not {max(codes)}")
    return sorted(codes)


_EXIT_CODE = {"type": "integer", "minimum": 0, "maximum": _MAX_EXIT_CODE}
EXIT_CODES = ValueType(any_of(_EXIT_CODE, list_of(_EXIT_CODE)), _exit_codes)
RESOURCE_NAME = ValueType(
    {"type": "string", "pattern": f"^{validators.RESOURCE_NAME_PATTERN.pattern}$"},
    validators.resource_name,
)
QUANTITY = ValueType(definition("quantity"), quantity_text)
MEMORY = ValueType(definition("quantity"), memory_text)
LOG_SIZE = ValueType(definition("quantity"), log_size_text)
ENV = pairs(definition("env"), validators.env_pair)
ENV_FILES = ValueType(
    any_of(definition("filled"), list_of(definition("filled"))), validators.env_files
)
LABELS = pairs(definition("labels"), validators.label_pair)
FILES = ValueType(definition("files"), validators.files)
SERVICES = ValueType(definition("services"), validators.services)
SERVICE_NAMES = ValueType(
    any_of(NAME.schema, list_of(NAME.schema), mapping_of(NAME.schema, NULL_SCHEMA)),
    _services_without_ports,
)
PORT_RANGE = ValueType(
    {"type": "array", "items": definition("port"), "minItems": 2, "maxItems": 2}, _port_range
)
DURATION = ValueType(definition("duration"), parse_positive_duration)
BACKOFF = ValueType(definition("backoff"), _backoff)
NAMES = ValueType(any_of(NAME.schema, list_of(NAME.schema)), _names)
FLAG = ValueType({"type": ["boolean", "string"], "pattern": or_reference()}, validators.flag)
REGULAR_EXPRESSION = ValueType(definition("text"), _regular_expression)
HTTP_TEST = ValueType(
    any_of(
        {"type": "string", "pattern": or_reference(f"^{names._LABEL.pattern}(/|$)")},
        {
            "type": "array",
            "prefixItems": [NAME.schema, ABSOLUTE_PATH.schema],
            "items": False,
            "minItems": 2,
        },
    ),
    _http_test,
)
PROGRAM_OR_LINE = ValueType(
    any_of(
        definition("line"),
        {**list_of(TEXT.schema), "minItems": 1, "prefixItems": [{"minLength": 1}]},
    ),
    _program_or_line,
)
STOP_SIGNAL = ValueType(
    {
        "type": "string",
        "pattern": or_reference(
            f"^(SIG)?({_STOP_SIGNAL_NAMES})$|^(sig)?({_STOP_SIGNAL_NAMES.lower()})$"
        ),
    },
    _stop_signal,
)
TIMEOUT = ValueType({**DURATION.schema, "default": 60}, parse_positive_duration)
WHOLE_SECONDS = ValueType(definition("seconds"), parse_exact_seconds)


def whole_seconds(*, least: int) -> ValueType:
    """Return the type of durations in whole seconds that are at least ``least`` seconds long."""

    def parse(value: Any, subject: str) -> int:
        seconds = parse_exact_seconds(value, subject)
        if seconds < least:
            raise SpecError(f"{subject} must be at least {least} s, not {shown(value)}")
        return seconds

    return ValueType({**WHOLE_SECONDS.schema, "minimum": least}, parse)


def choice(words: Iterable[str]) -> ValueType:
    """Return the type of values that must be one of the given words."""
    choices = tuple(words)

    def parse(value: object, subject: str) -> str:
        return validators.one_of(value, choices, subject)

    schema = any_of({"enum": list(choices)}, {"type": "string", "pattern": or_reference()})
    return ValueType(schema, parse)


def text_matching(pattern: str, words: str) -> ValueType:
    """Return the type of text that must match a regular expression as a whole.

    ``words`` describes such text in error messages. The schema also accepts numbers, because an
    editor can read text such as 027 as a number.
    """
    expression = re.compile(pattern)

    def parse(value: object, subject: str) -> str:
        if isinstance(value, str) and expression.fullmatch(value):
            return value
        raise SpecError(f"{subject} must be {words}, not {shown(value)}")

    schema = {"type": ["string", "integer"], "pattern": or_reference(whole_match(expression))}
    return ValueType(schema, parse)


# --- policies ---


def _file_form(word: str) -> str:
    """Return a policy in the form of other programs, such as ``on-failure`` for ``OnFailure``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", word).lower()


def policy_word(words: Iterable[str], hints: Mapping[str, str] = MappingProxyType({})) -> ValueType:
    """Return the type of values that must be one of ``words``, also in lower case with hyphens.

    ``hints`` maps the words of other programs to the fix for the error message.
    """
    choices = tuple(words)
    by_form = {_file_form(word): word for word in choices}

    def parse(value: object, subject: str) -> str:
        if isinstance(value, str) and value in by_form:
            return by_form[value]
        # YAML reads the word no as false.
        word = "false" if value is False else value
        hint = hints.get(word.lower()) if isinstance(word, str) else None
        if hint is not None:
            raise SpecError(f"{subject} cannot be {shown(value)}: {hint}")
        return validators.one_of(value, choices, subject)

    forms = dict.fromkeys([*choices, *by_form])
    schema = any_of({"enum": list(forms)}, {"type": "string", "pattern": or_reference()})
    return ValueType(schema, parse)


# --- policies that can restart processes ---


def policy_fields(
    policies: Iterable[str],
    description: str,
    hints: Mapping[str, str] = MappingProxyType({}),
    *others: Field,
) -> dict[str, Field]:
    """Return the fields of a policy with the given words, of the restarts that it causes, and
    ``others``.

    For ``hints``, see `policy_word`.
    """
    word = policy_word(policies, hints)
    return field_table(
        Field(name="policy", type=word, description=description, required=True),
        Field(
            name="max_restarts",
            type=WHOLE_NUMBER,
            description="the maximum number of restarts; the default is no limit",
        ),
        Field(
            name="backoff",
            type=BACKOFF,
            description="the delay before the second restart; the first restart is immediate, and "
            "the delay doubles with each further restart, up to 5 minutes; the default is 10 s",
        ),
        *others,
    )


def policy_schema(fields: Mapping[str, Field], restarting: Iterable[str]) -> Schema:
    """Return the schema of a policy: one of its words, or a mapping with `policy_fields`.

    A word in ``restarting`` can have a limit, such as ``on-failure:5``.
    """
    forms = dict.fromkeys(form for word in restarting for form in (word, _file_form(word)))
    limited = {"type": "string", "pattern": f"^({'|'.join(forms)}):[0-9]+$"}
    return any_of(fields["policy"].type.schema, limited, object_schema(fields))


def read_policy(
    value: Any, fields: Mapping[str, Field], subject: str, *, restarting: Iterable[str]
) -> dict[str, Any]:
    """Return a policy that is given as text as the fields of `policy_fields`.

    A policy that restarts can have a limit: ``on-failure:5`` permits 5 restarts. Raises `SpecError`
    if the policy is not valid, or the limit is not a number.
    """
    type_of_word = fields["policy"].type
    if not isinstance(value, str) or ":" not in value:
        return {"policy": type_of_word.parse(value, subject)}
    word, _, limit = value.partition(":")
    if not (limit.isascii() and limit.isdigit()) or len(limit) > _MAX_LIMIT_DIGITS:
        forms = [f"{_file_form(each)}:5" for each in restarting]
        raise SpecError(
            f"{subject} must have a number of restarts after ':', as in {names.join_names(forms)}, "
            f"not {shown(value)}"
        )
    return {"policy": type_of_word.parse(word, subject), "max_restarts": int(limit)}


def policy_type(
    fields: Mapping[str, Field], words: Iterable[str], *, restarting: Iterable[str]
) -> ValueType:
    """Return the type of a policy: one of ``words``, or a mapping with `policy_fields`.

    ``restarting`` contains the words that restart processes.
    """
    known, limited = tuple(words), tuple(restarting)

    def parse(value: Any, subject: str) -> str | dict[str, Any]:
        if not isinstance(value, Mapping):
            given = read_policy(value, fields, subject, restarting=limited)
            return parse_policy(fields, given, subject, restarting=limited)
        given = validators.mapping(value, subject)
        validators.refuse_unknown(given, fields, subject)
        if given.get("policy") is None:
            raise SpecError(f"{subject} needs policy: {names.join_names(known)}")
        return parse_policy(fields, given, subject, restarting=limited)

    return ValueType(policy_schema(fields, limited), parse)


def parse_policy(
    fields: Mapping[str, Field],
    given: Mapping[str, Any],
    subject: str,
    *,
    restarting: Iterable[str],
) -> str | dict[str, Any]:
    """Return a policy in its normalized form: a word, or a mapping with `policy_fields`.

    ``restarting`` contains the words that restart processes. Raises `SpecError` if a value is not
    valid, or if the restarts of another policy are limited.
    """
    parsed = parse_fields(fields, given)
    policy: str = parsed["policy"]
    if len(parsed) == 1:
        return policy
    words = tuple(restarting)
    if policy not in words:
        limit = next(name for name in parsed if name != "policy")
        raise SpecError(
            f"{subject} has {limit}, but {policy} restarts nothing; "
            f"use {' or '.join(words)}, or remove {limit}",
            path=(limit,),
        )
    return parsed


def read_policy_parts(fields: Mapping[str, Field], restarting: Iterable[str]) -> PartsReader:
    """Return a function that reads a policy: a word, or a mapping with `policy_fields`."""
    limited = tuple(restarting)

    def read(value: Any, subject: str, errors: ErrorCollector) -> str | dict[str, Any] | None:
        if isinstance(value, Mapping):
            given = read_record(fields, value, subject, errors)
        else:
            given = read_policy(value, fields, subject, restarting=limited)
        if given is None:
            return None
        return parse_policy(fields, given, subject, restarting=limited)

    return read
