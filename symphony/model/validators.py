"""Reading single values: each function returns the value in its one form or raises `SpecError`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from symphony.errors import SpecError, error_path
from symphony.names import check_name, did_you_mean, join_names

DEFAULT_PORTS = (7000, 8999)

Strings = str | Sequence[Any]
ServiceSpec = str | Iterable[str] | Mapping[str, "int | None"]

# Kubernetes, staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go: <number><suffix>
_QUANTITY = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|k|[MGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?")
# Kubernetes, apimachinery/pkg/util/validation: IsEnvVarName, IsQualifiedName, IsValidLabelValue
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
# The OCI distribution's reference grammar: [domain[:port]/]path/to/repository
_DOMAIN = (
    r"[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]+)?"
)
_PATH_PART = r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"({_DOMAIN}/)?{_PATH_PART}(/{_PATH_PART})*")


def text(value: object, what: str) -> str:
    """Any scalar as text that an argument or a variable can hold on every backend."""
    if value is None or isinstance(value, (Mapping, list, tuple, set, bytes)):
        raise SpecError(f"{what} is text, not {value!r}")
    result = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    if "\0" in result:
        raise SpecError(f"{what} holds a NUL character, which no argument or variable can carry")
    try:
        result.encode()
    except UnicodeEncodeError as exc:
        raise SpecError(
            f"{what} is not valid Unicode: {result!r}; Kubernetes can carry no other bytes"
        ) from exc
    return result


def strings(value: Strings, what: str) -> list[str]:
    """One string is one element and never split; a list or tuple is taken element by element."""
    if isinstance(value, (list, tuple)):
        return [text(element, f"element {index} of {what}") for index, element in enumerate(value)]
    if isinstance(value, Mapping):
        raise SpecError(f"{what} is a string or a list of strings, not {value!r}")
    return [text(value, what)]


def lines(value: Strings, what: str) -> list[str]:
    """Shell lines; an empty one is refused, since ``a &&`` is no command."""
    found = strings(value, what)
    for line in found:
        if not line.strip():
            raise SpecError(f"{what} has an empty line")
    return found


def path(value: object, what: str) -> str:
    """A path, as text, not empty."""
    result = text(value, what)
    if not result:
        raise SpecError(f"{what} is empty")
    return result


def absolute(value: object, what: str) -> str:
    """A path inside a container, which Kubernetes wants absolute."""
    result = path(value, what)
    if not result.startswith("/"):
        raise SpecError(
            f"{what} is an absolute path, not {result!r}; for example {'/' + result.lstrip('./')!r}"
        )
    return result


def whole(value: object, what: str, *, least: int = 0) -> int:
    """A whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecError(f"{what} is a whole number, not {value!r}")
    if value < least:
        raise SpecError(f"{what} is at least {least}, not {value}")
    return value


def port(value: object, what: str) -> int:
    """A port number; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecError(f"{what} is a number from 1 to 65535, not {value!r}")
    if not 1 <= value <= 65535:
        raise SpecError(f"{what} is {value}; ports go from 1 to 65535")
    return value


def one_of(value: object, choices: Sequence[str], what: str) -> str:
    """One of the words that are allowed there."""
    if value not in choices:
        hint = did_you_mean(str(value), choices)
        allowed = ", ".join(choice or "''" for choice in choices)
        raise SpecError(f"{what} is {allowed}, not {value!r}{hint}")
    return str(value)


def quantity(value: object, what: str) -> str:
    """An amount as Kubernetes writes it: ``2``, ``"500m"``, ``"4Gi"``."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise SpecError(f"{what} is an amount such as 2, '500m' or '4Gi', not {value!r}")
    written = f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    if not _QUANTITY.fullmatch(written):
        raise SpecError(f"{what} is an amount such as 2, '500m' or '4Gi', not {value!r}")
    return written


def services(value: ServiceSpec, what: str) -> dict[str, int | None]:
    """A name, several names, or ``{name: port or None}``, as the last of these."""
    if isinstance(value, str):
        return {check_name(value, "service"): None}
    if isinstance(value, Mapping):
        return {
            check_name(name, "service"): None
            if number is None
            else port(number, f"the port of {name!r}")
            for name, number in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        names = sorted(value) if isinstance(value, (set, frozenset)) else value
        return dict.fromkeys((check_name(name, "service") for name in names), None)
    raise SpecError(f"{what} takes a name, a list of names or {{name: port}}, not {value!r}")


def env_pair(key: object, value: object) -> tuple[str, str]:
    """An environment variable that every backend can set."""
    name = text(key, "the name of a variable")
    if not _ENV_NAME.fullmatch(name):
        raise SpecError(
            f"variable name {name!r} is not valid: use letters, digits, '_', '-' and '.', no digit first"
        )
    if isinstance(value, bool):
        raise SpecError(
            f"variable {name!r} is text, not {value!r}; write '1', 'true' or what its reader expects"
        )
    return name, text(value, f"variable {name!r}")


def label_pair(key: object, value: object) -> tuple[str, str]:
    """A Kubernetes label."""
    name, content = text(key, "a label's key"), text(value, f"label {key!r}")
    if not _LABEL_KEY.fullmatch(name):
        raise SpecError(
            f"label key {name!r} is not valid: [prefix/]name, name of letters, digits, '-', '_' and '.'"
        )
    if not _LABEL_VALUE.fullmatch(content):
        raise SpecError(
            f"label {name!r} has a value that is not valid: {content!r}; at most 63 letters, digits, '-', '_', '.'"
        )
    return name, content


def repository(value: object) -> str:
    """The name of an image without tag and digest: ``registry.example:5000/team/rl``."""
    name = path(value, "the repository of an image")
    if _REPOSITORY.fullmatch(name):
        return name
    bare = name.partition("@")[0]
    head, colon, tag = bare.rpartition(":")
    if colon and "/" not in tag:
        bare = head
    if _REPOSITORY.fullmatch(bare):
        raise SpecError(
            f"repository {name!r} has a tag or digest, which is said apart from it; write {bare!r}"
        )
    mended = f"; for example {name.lower()!r}" if _REPOSITORY.fullmatch(name.lower()) else ""
    raise SpecError(
        f"repository {name!r} is not valid: [registry[:port]/]name of a-z, 0-9 and single '.', '_', '-', '/'{mended}"
    )


def mapping(value: object, what: str) -> dict[str, Any]:
    """A mapping with text keys."""
    if not isinstance(value, Mapping):
        raise SpecError(f"{what} is a mapping, not {value!r}")
    for key in value:
        if not isinstance(key, str):
            raise SpecError(f"{what} has a key that is not text: {key!r}; quote it")
    return dict(value)


def files(value: object, what: str) -> dict[str, str]:
    """Files as ``{name: path}``, from a path, several paths (named as they are) or that mapping."""
    if isinstance(value, Mapping):
        pairs = [(text(name, "a file name"), path(source, what)) for name, source in value.items()]
    else:
        several = value if isinstance(value, (list, tuple)) else [value]
        sources = [path(source, what) for source in several]
        pairs = [(os.path.basename(source.rstrip("/")), source) for source in sources]
    result: dict[str, str] = {}
    for name, source in pairs:
        with error_path(name):
            if not re.fullmatch(r"[-._a-zA-Z0-9]+", name) or name in {".", ".."}:
                raise SpecError(
                    f"{what}: {name!r} is no plain file name; name it, as in {{'token': {source!r}}}"
                )
            if name in result:
                raise SpecError(
                    f"{what}: two files are named {name!r}: {result[name]} and {source}"
                )
            result[name] = source
    return result


def port_range(value: object) -> tuple[int, int]:
    """The first and the last port of a pool, both in it: ``(7000, 8999)`` or ``range(7000, 9000)``."""
    if isinstance(value, range) and value.step == 1 and len(value):
        value = (value.start, value.stop - 1)
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise SpecError(
            f"port_range is its first and last port, such as (7000, 8999), not {value!r}"
        )
    first, last = (port(end, "an end of port_range") for end in value)
    if first > last:
        raise SpecError(f"port_range begins at {first} and ends before it, at {last}")
    return first, last


def refuse_unknown(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise `SpecError` with the near miss for the first keyword that nobody knows."""
    known = list(dict.fromkeys(known))
    for key in given:
        if key not in known:
            with error_path(key):
                hint = did_you_mean(key, known) or f"; it knows {join_names(known, limit=20)}"
                raise SpecError(f"{what} knows no {key!r}{hint}")
