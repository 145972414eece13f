"""What users write in Kubernetes' own words, and what of that a server does not know. Pure.

Servers before 1.25 drop a field that they do not know without a word: it is then missing in what they answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from symphony.names import did_you_mean

# By what the things of a list are told apart, where that is not their name.
NAMED_BY = {"volumeMounts": "mountPath", "volumeDevices": "devicePath"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What was ``written`` by the user for an object, which is that of a ``unit``.

    ``where`` says so in words (``pod_yml of process 'db'``), ``place`` leads to what it was laid over: keys, and the
    names of the things in lists.
    """

    unit: str
    where: str
    place: tuple[str, ...]
    written: Mapping[str, Any]


def unknown(hatch: Override, answered: Mapping[str, Any]) -> list[str]:
    """The fields that were written and are not in the object that a server answered, with what they may stand for."""
    made: Any = answered
    for key in hatch.place:
        made = _named(made, key, "name") if isinstance(made, list) else made.get(key)
        if made is None:  # another kind of server's answer
            return []
    return list(_missing(hatch.written, made, "", ""))


def _missing(written: Any, made: Any, key: str, path: str) -> Iterator[str]:
    """What of ``written``, which stands under ``key``, is not in ``made``."""
    if isinstance(written, Mapping) and isinstance(made, Mapping):
        for name, value in written.items():
            below = f"{path}.{name}" if path else name
            if name in made:
                yield from _missing(value, made[name], name, below)
            elif _says_something(value):
                hint = did_you_mean(name, made).removeprefix("; ")
                yield f"{below}{f' ({hint})' if hint else ''}"
    elif isinstance(written, list) and isinstance(made, list):
        for number, item in enumerate(written):
            yield from _missing_in_list(item, made, key, f"{path}[{number}]")


def _missing_in_list(item: Any, made: list[Any], key: str, path: str) -> list[str]:
    """What of an item is not in its like, by its name; without one, in the item that is most like it."""
    name = NAMED_BY.get(key, "name")
    if isinstance(item, Mapping) and name in item:
        like = _named(made, item[name], name)
        made = [] if like is None else [like]
    return min((list(_missing(item, other, key, path)) for other in made), key=len, default=[])


def _named(items: list[Any], value: Any, name: str) -> Any:
    return next(
        (item for item in items if isinstance(item, Mapping) and item.get(name) == value), None
    )


def _says_something(value: Any) -> bool:
    """Whether a server that knows a field keeps the value: one that says nothing may be left out."""
    if isinstance(value, Mapping):
        return any(map(_says_something, value.values()))
    if isinstance(value, list):
        return any(map(_says_something, value))
    return bool(value)
