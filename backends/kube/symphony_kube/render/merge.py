"""The escape hatch: what a user writes in Kubernetes' own words, over what was rendered. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symphony.errors import SpecError
from symphony_kube.render.overrides import NAMED_BY

# Things that are one of several kinds: another kind takes the place of the first.
_ONE_OF = frozenset({"env", "volumes"})


def merged(below: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid over ``below``, of which nothing is changed.

    Mappings merge, key by key, and null takes a key away. Lists of named things merge by ``name`` (mounts by their
    path), what is new coming last; any other list takes the place of the one below.
    """
    result = dict(below)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _over(result.get(key), value, key)
    return result


def _over(below: Any, value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return merged(below if isinstance(below, Mapping) else {}, value)
    name = NAMED_BY.get(key, "name")
    if (
        isinstance(value, list)
        and _named(value, name)
        and isinstance(below, list)
        and _named(below, name)
    ):
        return _lists(below, value, key, name)
    return value


def _named(items: list[Any], name: str) -> bool:
    return all(isinstance(item, Mapping) and isinstance(item.get(name), str) for item in items)


def _lists(below: list[Any], over: list[Any], key: str, name: str) -> list[Any]:
    result = list(below)
    places = {item[name]: place for place, item in reversed(list(enumerate(below)))}
    for item in over:
        place = places.get(item[name])
        if place is None:
            result.append(merged({}, item))
            continue
        old = result[place]
        kept = {part: old[part] for part in old if part in item} if key in _ONE_OF else old
        result[place] = merged(kept, item)
    return result


def plain(value: Any, where: str) -> Any:
    """A user's data as JSON knows it; `SpecError` for what it does not know."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float) and value - value == 0:
        return value
    if isinstance(value, Mapping):
        return {_key(key, where): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{number}]") for number, item in enumerate(value)]
    raise SpecError(f"{where} is text, a number, true, false, a list or a mapping, not {value!r}")


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise SpecError(f"{where} has a key that is not text: {key!r}; quote it")
    return key
