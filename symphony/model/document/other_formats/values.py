"""The values in the files of other programs, such as compose files.

Every function raises `ValueError`, `TypeError`, `AttributeError` or `KeyError` if a value has an
unexpected form.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symphony.errors import SpecError
from symphony.support.names import suggested_name


def is_reference(value: Any) -> bool:
    """Return whether a value contains a reference to a parameter."""
    return isinstance(value, str) and "${" in value


def mapping(value: Any) -> dict[str, Any]:
    """Return a mapping that is written as a mapping or as a list of ``key=value``."""
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, list):
        raise TypeError(value)
    result: dict[str, Any] = {}
    for item in value:
        key, equals, text = str(item).partition("=")
        result[key] = text if equals else None
    return result


def names(value: Any) -> list[str]:
    """Return the elements of a list as texts."""
    if not isinstance(value, (list, tuple)) or None in value:
        raise TypeError(value)
    return [str(item) for item in value]


def words(value: Any) -> list[str]:
    """Return a command as compose reads it: a string is split into words without a shell.

    Raises `ValueError` or `TypeError` if the value is not a command.
    """
    if isinstance(value, str):
        return shlex.split(value)
    return names(value)


def seconds(value: Any) -> float:
    """Return the number of seconds of a duration, such as 1m30s."""
    from symphony.model.settings.durations import parse_duration

    try:
        return parse_duration(str(value), "a time")
    except SpecError as exc:
        raise ValueError(value) from exc


_COMPOSE_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])b?|b)?", re.IGNORECASE)


def size(value: Any) -> Any:
    """Return an amount of memory in a compose file, such as 512M, as an amount of symphony."""
    if is_reference(value):
        return value
    match = _COMPOSE_SIZE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(value)
    number, unit = match.groups()
    return f"{number}{unit.upper()}i" if unit else int(float(number))


def flag(value: Any) -> bool:
    """Return whether a value that may be written as text is true."""
    return str(value).lower() in ("true", "yes", "on")


def number(value: Any) -> Any:
    """Return a number that may be written as text. A reference to a parameter is unchanged."""
    if is_reference(value):
        return value
    amount = float(value)
    return int(amount) if amount.is_integer() else amount


def signal_name(value: Any) -> str:
    """Return the name of a signal that is written as a name or a number.

    Raises `ValueError` if there is no signal with the number.
    """
    import signal

    text = str(value).upper()
    name = signal.Signals(int(text)).name if text.isdecimal() else text
    return name.removeprefix("SIG")


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a container, and the port at which it is published, or None.

    A port that is a reference to a parameter is a string.
    """

    target: Any
    published: Any = None
    protocol: str = "tcp"


def container_ports(value: Any) -> list[Port]:
    """Return the ports of a list ``ports`` or ``expose``. A range is several ports."""
    if not isinstance(value, list):
        raise TypeError(value)
    return [port for item in value for port in _ports_of_item(item)]


# A colon outside of references to parameters.
COLON = re.compile(r":(?![^{}]*\})")
_MAX_PORTS = 100


def _ports_of_item(item: Any) -> list[Port]:
    if isinstance(item, Mapping):
        published = _port_range(item["published"]) if item.get("published") else []
        targets, protocol = _port_range(item["target"]), str(item.get("protocol", "tcp"))
    else:
        text, _, protocol = str(item).rpartition("/") if "/" in str(item) else (str(item), "", "")
        *before, last = COLON.split(text)
        published = _port_range(before[-1]) if before and before[-1] else []
        targets = _port_range(last)
    if len(published) != len(targets):
        # One of several ports is published.
        published = published if len(targets) == 1 and len(published) == 1 else []
    pairs = zip(targets, published or [None] * len(targets), strict=True)
    return [Port(target, at, protocol.lower() or "tcp") for target, at in pairs]


def _port_range(value: Any) -> list[Any]:
    text = str(value)
    if is_reference(text):
        return [text]
    first, dash, last = text.partition("-")
    numbers = range(int(first), int(last if dash else first) + 1)
    if not 0 < len(numbers) <= _MAX_PORTS:
        raise ValueError(value)
    return list(numbers)


def translate_volume(item: Any) -> dict[str, Any]:
    """Return a volume of a compose file as a volume of symphony. Relative paths are unchanged.

    Raises `ValueError`, `TypeError`, `AttributeError` or `KeyError` if the volume has an unexpected
    form.
    """
    if isinstance(item, Mapping):
        source, target = item.get("source"), str(item["target"])
        options = "ro" if flag(item.get("read_only")) else ""
        kind = str(item["type"])
        if kind == "tmpfs":
            given = (item.get("tmpfs") or {}).get("size")
            limit = {} if given is None else {"size": size(given)}
            return {"empty_dir": {"mount_path": target, "memory": True, **limit}}
    else:
        parts = COLON.split(str(item))
        if len(parts) == 1:
            source, target, options = None, parts[0], ""
        else:
            source, target = parts[0], parts[1]
            options = parts[2] if len(parts) > 2 else ""
        kind = "bind" if source and source.startswith((".", "/", "~")) else "volume"
    if not target.startswith("/"):
        raise ValueError(item)
    if not source:
        return {"empty_dir": {"mount_path": target}}
    if kind == "bind":
        details = {"path": str(source), "mount_path": target}
    else:
        details = {"claim": suggested_name(str(source)), "mount_path": target}
    if "ro" in options.split(","):
        return {"host_path" if kind == "bind" else "pvc": {**details, "read_only": True}}
    return {"host_path" if kind == "bind" else "pvc": details}


def process_name(name: object) -> str:
    """Return the name of the process for a service of a compose file.

    The names of services in compose files can contain characters that symphony does not allow.
    """
    suggested = suggested_name(str(name))
    if not suggested:
        raise ValueError(name)
    return suggested
