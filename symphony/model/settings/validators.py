"""Validation of single values.

Each validator returns the value in its normalized form, or raises `SpecError`. The argument
``subject`` names the value in the error message.
"""

from __future__ import annotations

import functools
import math
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from symphony.errors import SpecError, error_path, shown
from symphony.model.limits import MAX_DEPTH, MAX_DIGITS, TOO_DEEP, TOO_MANY_DIGITS
from symphony.support.argument_checks import is_path
from symphony.support.names import check_name, did_you_mean, join_names

if TYPE_CHECKING:
    from typing import TypeGuard

# The first and the last port of the range from which symphony chooses ports, unless the experiment
# has a port_range.
DEFAULT_PORT_RANGE = (7000, 8999)
MIN_PORT, MAX_PORT = 1, 65535
# Kubernetes stores numbers in 64 bits. JSON libraries refuse much larger ones.
MAX_WHOLE_NUMBER = 2**63 - 1

T = TypeVar("T")

Strings = str | Sequence[Any]
Paths = str | os.PathLike[str] | Sequence["str | os.PathLike[str]"]
Files = Paths | Mapping[str, "str | os.PathLike[str]"]
Code = str | os.PathLike[str] | Mapping[str, Any] | bool
ServiceSpec = str | Iterable[str] | Mapping[str, "int | None"]

# These patterns follow IsEnvVarName, IsQualifiedName and IsValidLabelValue in the Kubernetes
# package apimachinery/pkg/util/validation.
ENV_NAME_PATTERN = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
LABEL_KEY_PATTERN = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
RESOURCE_NAME_PATTERN = re.compile(
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
OBJECT_NAME_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
LABEL_VALUE_PATTERN = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
FILE_NAME_PATTERN = re.compile(r"[-._a-zA-Z0-9]+")
# These patterns follow the OCI distribution reference grammar: [domain[:port]/]path/to/repository
_DOMAIN = (
    r"[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]+)?"
)
_PATH_PART = r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
REPOSITORY_PATTERN = re.compile(rf"({_DOMAIN}/)?{_PATH_PART}(/{_PATH_PART})*")


def _is_plain_text(value: object) -> TypeGuard[str]:
    """Return whether a value is text that needs no further checks, as most values are."""
    return type(value) is str and value.isascii() and "\0" not in value


def text(value: object, subject: str) -> str:
    """Validate a scalar as text that every backend can pass as an argument or variable.

    Return the value as a string.
    """
    if _is_plain_text(value):
        return value
    if not _is_scalar(value):
        raise SpecError(f"{subject} must be text, not {shown(value)}")
    try:
        result = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    except Exception as exc:
        # Python refuses to convert very large integers, and a conversion of a class can fail.
        raise SpecError(f"{subject} must be text, but {shown(value)} is not convertible") from exc
    if not isinstance(result, str):
        raise SpecError(f"{subject} must be text, not {shown(value)}")
    if "\0" in result:
        raise SpecError(
            f"{subject} contains a NUL character, which no argument or variable can contain"
        )
    try:
        result.encode()
    except UnicodeEncodeError as exc:
        raise SpecError(
            f"{subject} is not valid Unicode, as Kubernetes requires: {shown(result)}"
        ) from exc
    return result


def _is_scalar(value: object) -> bool:
    """Return whether ``value`` has a text form of its own, as numbers and paths have."""
    if isinstance(value, (str, int, float, os.PathLike)):
        return True
    if value is None or callable(value) or isinstance(value, Iterable):
        return False
    kind = type(value)
    return kind.__str__ is not object.__str__ or kind.__repr__ is not object.__repr__


def nonempty_text(value: object, subject: str) -> str:
    """Validate a scalar as non-empty text, such as a path, and return it as a string."""
    result = text(value, subject)
    if not result:
        raise SpecError(f"{subject} is empty")
    return result


def path(value: object, subject: str) -> Path:
    """Validate ``value`` as the path of a file or directory on this machine, and return it."""
    if value == "":
        raise SpecError(f"{subject} is empty")
    if not is_path(value):
        raise SpecError(f"{subject} must be a path, not {shown(value)}")
    return Path(value)  # type: ignore[arg-type]


def optional_function(value: object, subject: str) -> None:
    """Validate ``value`` as a function or None."""
    if value is not None and not callable(value):
        raise SpecError(f"{subject} must be a function, not {shown(value)}")


def instance(value: object, kind: type[T], subject: str) -> T:
    """Validate ``value`` as an instance of ``kind``, and return it."""
    if not isinstance(value, kind):
        raise SpecError(f"{subject} must be a {kind.__name__}, not {shown(value)}")
    return value


def instances(value: object, kind: type[T], subject: str) -> list[T]:
    """Validate ``value`` as an iterable of instances of ``kind``, and return them as a list."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping)):
        raise SpecError(f"{subject} must be a list of {kind.__name__}, not {shown(value)}")
    return [
        instance(item, kind, f"element {index} of {subject}") for index, item in enumerate(value)
    ]


def strings(value: Strings, subject: str) -> list[str]:
    """Validate a string or a list of strings, and return a list. A single string is one element and
    is never split.
    """
    if isinstance(value, (list, tuple)):
        if all(map(_is_plain_text, value)):
            return list(value)
        return [
            text(element, f"element {index} of {subject}") for index, element in enumerate(value)
        ]
    if isinstance(value, Mapping):
        raise SpecError(f"{subject} must be a string or a list of strings, not {shown(value)}")
    return [text(value, subject)]


def shell_lines(value: Strings, subject: str) -> list[str]:
    """Validate shell lines, and return them as a list.

    An empty line is refused because it is not a command.
    """
    lines = strings(value, subject)
    for line in lines:
        if not line.strip():
            raise SpecError(f"{subject} has an empty line")
    return lines


def shell_line(value: object, subject: str) -> list[str]:
    """Validate one shell line, and return it as a list with one element."""
    if isinstance(value, list | tuple):
        raise SpecError(
            f"{subject} must be one shell line, not a list; "
            "write command for the arguments of a program, or cmds for several shell lines"
        )
    return shell_lines(text(value, subject), subject)


def absolute_path(value: object, subject: str) -> str:
    """Validate an absolute path, and return it. Kubernetes requires absolute paths in
    containers.
    """
    result = nonempty_text(value, subject)
    if not result.startswith("/"):
        example = "/" + result.lstrip("./")
        raise SpecError(
            f"{subject} must be an absolute path, not {shown(result)}; for example {example!r}"
        )
    return result


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile the regular expression of a user.

    Raises `re.error` if it is not valid, or if Python warns that a later version will interpret it
    in another way: a bracket within brackets, as in ``[[:digit:]]``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        try:
            return re.compile(pattern)
        except FutureWarning as exc:
            raise re.error(
                f"{str(exc).lower()}; write \\[ for a bracket, and [0-9] instead of [[:digit:]]"
            ) from exc


def whole_number(value: object, subject: str, *, least: int = 0) -> int:
    """Validate ``value`` as a whole number of at least ``least``, and return it."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecError(f"{subject} must be a whole number, not {shown(value)}")
    if value < least:
        raise SpecError(f"{subject} must be at least {least}, not {shown(value)}")
    if value > MAX_WHOLE_NUMBER:
        raise SpecError(f"{subject} must be at most {MAX_WHOLE_NUMBER}, not {shown(value)}")
    return value


def flag(value: object, subject: str) -> bool:
    """Validate ``value`` as a boolean, and return it."""
    if not isinstance(value, bool):
        raise SpecError(f"{subject} must be true or false, not {shown(value)}")
    return value


def port(value: object, subject: str) -> int:
    """Validate ``value`` as a port number, and return it. A boolean is not a port number."""
    if isinstance(value, bool) or not isinstance(value, int) or not MIN_PORT <= value <= MAX_PORT:
        raise SpecError(
            f"{subject} must be a number from {MIN_PORT} to {MAX_PORT}, not {shown(value)}"
        )
    return value


def one_of(value: object, choices: Sequence[str], subject: str) -> str:
    """Validate that ``value`` is one of ``choices``, and return it."""
    if value not in choices:
        allowed = ", ".join(choice or "''" for choice in choices)
        hint = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise SpecError(f"{subject} must be one of {allowed}, not {shown(value)}{hint}")
    return str(value)


def services(value: ServiceSpec, subject: str) -> dict[str, int | None]:
    """Validate services that are given as a name, several names or a mapping.

    Return them as ``{name: port or None}``.
    """
    ports: list[tuple[object, object]]
    if isinstance(value, str):
        ports = [(value, None)]
    elif isinstance(value, Mapping):
        ports = list(value.items())
    elif isinstance(value, (list, tuple)):
        ports = [(name, None) for name in value]
    elif isinstance(value, (set, frozenset)):
        # The order of the names determines which ports are assigned, and a set has no order.
        ports = [(name, None) for name in sorted(value, key=str)]
    else:
        is_port = isinstance(value, int) and not isinstance(value, bool)
        hint = f"; write for example {{web: {shown(value)}}}" if is_port else ""
        raise SpecError(
            f"{subject} must be a name, a list of names or {{name: port}}, not {shown(value)}{hint}"
        )
    result: dict[str, int | None] = {}
    for name, number in ports:
        _refuse_service_with_port(name)
        checked_name = check_name(name, "service")
        result[checked_name] = None
        if number is not None:
            result[checked_name] = port(number, f"the port of {shown(name)}")
    return result


def _refuse_service_with_port(name: object) -> None:
    """Raise `SpecError` for a port in the name of a service, such as ``web:80``."""
    service, _, number = name.rpartition(":") if isinstance(name, str) else ("", "", "")
    if service and number.isdecimal():
        raise SpecError(
            f"service name {shown(name)} contains a port; write {{{service}: {number}}}"
        )


def env_files(value: object, subject: str) -> list[str]:
    """Validate the path of an env file or a list of paths, and return a list."""
    sources = list(value) if isinstance(value, (list, tuple)) else [value]
    for source in sources:
        if isinstance(source, Mapping) and isinstance(source.get("path"), str):
            raise SpecError(
                f"{subject} must be a path or a list of paths, not {shown(source)}; "
                f"write {source['path']!r}"
            )
    return [nonempty_text(source, subject) for source in sources]


def env_pair(key: object, value: object) -> tuple[str, str]:
    """Validate an environment variable, and return its name and its value as strings."""
    name = env_name(key)
    if value is None:
        raise SpecError(
            f"variable {shown(name)} has no value; write '' for the empty text, or remove it"
        )
    if isinstance(value, bool):
        raise SpecError(
            f"variable {shown(name)} must be text, not {shown(value)}; "
            "write '1', 'true' or the text that the program expects"
        )
    # The subject is only needed for an error.
    return name, value if _is_plain_text(value) else text(value, f"variable {shown(name)}")


def env_name(key: object) -> str:
    """Validate the name of an environment variable, and return it."""
    name = text(key, "the name of a variable")
    if not _is_env_name(name):
        raise SpecError(
            f"variable name {shown(name)} is not valid: "
            "use letters, digits, '_', '-' and '.', and do not begin with a digit"
        )
    return name


@functools.lru_cache(maxsize=1024)
def _is_env_name(name: str) -> bool:
    # The processes of an experiment usually have the same variables.
    return ENV_NAME_PATTERN.fullmatch(name) is not None


def label_key(value: object, subject: str) -> str:
    """Validate the key of a label of Kubernetes, and return it."""
    name = text(value, subject)
    if not LABEL_KEY_PATTERN.fullmatch(name):
        raise SpecError(
            f"{subject} must be the key of a label, [prefix/]name, such as "
            f"topology.kubernetes.io/zone, not {shown(name)}"
        )
    return name


def resource_name(value: object, subject: str) -> str:
    """Validate the name of an extended resource of Kubernetes, and return it."""
    name = text(value, subject)
    if not RESOURCE_NAME_PATTERN.fullmatch(name):
        raise SpecError(
            f"{subject} must be the name of a resource of the cluster's nodes, such as "
            f"nvidia.com/gpu, not {shown(name)}"
        )
    return name


def object_name(value: object, subject: str) -> str:
    """Validate the name of an object of Kubernetes that symphony does not create, and return it."""
    name = text(value, subject)
    if not OBJECT_NAME_PATTERN.fullmatch(name):
        raise SpecError(
            f"{subject} must be a name that consists of a-z, 0-9, '-' and '.', not {shown(name)}"
        )
    return name


def label_pair(key: object, value: object) -> tuple[str, str]:
    """Validate a Kubernetes label, and return its key and its value."""
    name = text(key, "the key of a label")
    content = text(value, f"label {shown(key)}")
    if not LABEL_KEY_PATTERN.fullmatch(name):
        raise SpecError(
            f"label key {shown(name)} is not valid: use [prefix/]name, "
            "where the name consists of letters, digits, '-', '_' and '.'"
        )
    if not LABEL_VALUE_PATTERN.fullmatch(content):
        raise SpecError(
            f"label {shown(name)} has the value {shown(content)}, which is not valid: "
            "use at most 63 letters, digits, '-', '_' and '.'"
        )
    return name, content


def repository(value: object) -> str:
    """Validate an image name that must not have a tag or a digest, and return it.

    An example is ``registry.example:5000/team/rl``.
    """
    name = nonempty_text(value, "the repository of an image")
    if REPOSITORY_PATTERN.fullmatch(name):
        return name
    without_digest = name.partition("@")[0]
    head, colon, tag = without_digest.rpartition(":")
    # A colon before the last slash introduces the registry's port, not a tag.
    without_tag = head if colon and "/" not in tag else without_digest
    if REPOSITORY_PATTERN.fullmatch(without_tag):
        raise SpecError(
            f"repository {shown(name)} must not have a tag or a digest; write {without_tag!r}"
        )
    lower_case = name.lower()
    hint = f"; for example {lower_case!r}" if REPOSITORY_PATTERN.fullmatch(lower_case) else ""
    raise SpecError(
        f"repository {shown(name)} is not valid: use [registry[:port]/]name, where the name "
        f"consists of a-z, 0-9 and single '.', '_', '-' and '/'{hint}"
    )


def mapping_of_pairs(value: object, subject: str) -> dict[str, Any]:
    """Validate a mapping as `mapping` does. The error for ``KEY=VALUE`` contains the mapping."""
    items = value if isinstance(value, list) else [value]
    first = items[0] if items else None
    if isinstance(first, str) and "=" in first:
        key, _, text = first.partition("=")
        raise SpecError(
            f"{subject} must be a mapping, not {shown(value)}; write {{{key}: {text!r}}}"
        )
    return mapping(value, subject)


def mapping(value: object, subject: str) -> dict[str, Any]:
    """Validate a mapping, whose keys must be strings, and return a copy of it."""
    # The check for the class `dict` is much faster than that for `Mapping`.
    if not isinstance(value, (dict, Mapping)):
        raise SpecError(f"{subject} must be a mapping, not {shown(value)}")
    for key in value:
        if not isinstance(key, str):
            raise SpecError(
                f"{subject} has the key {shown(key)}, which is not text; put it in quotes"
            )
    return dict(value)


def plain_mapping(value: object, subject: str) -> dict[str, Any]:
    """Validate a mapping that a YAML or JSON file can contain, and return a deep copy of it."""
    result: dict[str, Any] = _plain(mapping(value, subject), subject, 0)
    return result


def _key_of(subject: str, key: str) -> str:
    return f"{subject}.{key}" if key.isprintable() else f"{subject}[{shown(key)}]"


def _plain(value: object, subject: str, depth: int) -> Any:
    """Return a copy of a value that consists of mappings, lists, text, numbers, booleans and
    None.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value, subject)
    if isinstance(value, int):
        if abs(value) >= 10**MAX_DIGITS:
            raise SpecError(f"{subject}: {TOO_MANY_DIGITS}")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError(f"{subject} must be a finite number, not {shown(value)}")
        return float(value)
    if depth > MAX_DEPTH:
        raise SpecError(f"{subject[:80]}...: {TOO_DEEP}")
    if isinstance(value, Mapping):
        items = mapping(value, subject).items()
        return {
            text(key, subject): _plain(item, _key_of(subject, key), depth + 1)
            for key, item in items
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{subject}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise SpecError(
        f"{subject} must be text, a number, true, false, null, a list or a mapping, "
        f"not {shown(value)}"
    )


def files(value: object, subject: str) -> dict[str, str]:
    """Validate files that are given as a path, several paths or a mapping.

    Return them as ``{name: path}``.

    For a path that is given without a name, the name is the last part of the path.
    """
    if isinstance(value, Mapping):
        pairs = [
            (text(name, "a file name"), nonempty_text(source, subject))
            for name, source in value.items()
        ]
    else:
        sources = value if isinstance(value, (list, tuple)) else [value]
        paths = [nonempty_text(source, subject) for source in sources]
        pairs = [(PurePosixPath(path).name, path) for path in paths]
    result: dict[str, str] = {}
    for name, source in pairs:
        with error_path(name):
            if not FILE_NAME_PATTERN.fullmatch(name) or name in {".", ".."}:
                raise SpecError(
                    f"{subject}: {shown(name)} is not a plain file name; "
                    f"give it a name, as in {{'token': {shown(source)}}}"
                )
            if name in result:
                raise SpecError(
                    f"{subject}: two files are named {shown(name)}: {result[name]} and {source}"
                )
            result[name] = source
    return result


def port_range(value: object) -> tuple[int, int]:
    """Validate a pair of ports or a ``range``, and return the first and the last port."""
    if isinstance(value, range) and value.step == 1 and len(value):
        value = (value.start, value.stop - 1)
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise SpecError(
            f"port_range must be the first and the last port, such as [7000, 8999], "
            f"not {shown(value)}"
        )
    first = port(value[0], "the first port of port_range")
    last = port(value[1], "the last port of port_range")
    if first > last:
        raise SpecError(f"port_range must not begin at {first}, which is after its end at {last}")
    return first, last


def unknown_key(key: str, known: Iterable[str], subject: str, hint: str = "") -> SpecError:
    """Return the error for an unknown key.

    Its message ends with ``hint``. If ``hint`` is empty, the message suggests similar keys or lists
    known keys.
    """
    known = list(dict.fromkeys(known))
    hint = hint or did_you_mean(key, known) or f"; known keys: {join_names(known, limit=20)}"
    return SpecError(f"{subject} has the unknown key {shown(key)}{hint}", path=(key,))


def refuse_unknown(given: Iterable[str], known: Iterable[str], subject: str) -> None:
    """Raise `SpecError` for the first key in ``given`` that is not in ``known``."""
    known = list(known)
    for key in given:
        if key not in known:
            raise unknown_key(key, known, subject)
