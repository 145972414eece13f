"""From what every source says to what holds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from symphony.config.fields import GROUPS, PROFILES, Place
from symphony.errors import SpecError
from symphony.names import did_you_mean, join_names

PROFILE: Place = ("profile",)


class Given(NamedTuple):
    """A value, and where it was said: ``.symphony.yml:3:1``, ``SYMPHONY_BACKEND``."""

    value: Any
    source: str


class Layer(NamedTuple):
    """One source: its values, and those of its profiles. ``file`` is whether it is a file that was found.

    ``where`` tells where in it a place of its own is, such as ``("profiles", "gke", "options", "kube")``.
    """

    values: Mapping[Place, Given]
    profiles: Mapping[str, Mapping[Place, Given]] = MappingProxyType({})
    file: bool = False
    where: Callable[[Place], str] | None = None

    def way_to(self, place: Place, given: Given) -> Place | None:
        """Where it says this very value at a place: ``()`` by itself, ``("profiles", "gke")`` in a profile."""
        if self.values.get(place) is given:
            return ()
        return next(
            ((PROFILES, name) for name, said in self.profiles.items() if said.get(place) is given),
            None,
        )


def merged(layers: Sequence[Layer]) -> dict[Place, Given]:
    """What holds, with the first of ``layers`` over the others.

    The values of the profile stand right below what chose it, and over every file. Raises `SpecError` where nothing
    has a profile of that name.
    """
    found: dict[Place, Given] = {}
    closed: set[Place] = set()  # groups of which lower layers say nothing any more
    for values in _ordered(layers):
        for place, given in values.items():
            if place not in found and place[:1] not in closed:
                found[place] = given
        closed |= {
            place for place, given in values.items() if given.value is None and place[0] in GROUPS
        }
    return {place: given for place, given in found.items() if given.value is not None}


def _ordered(layers: Sequence[Layer]) -> list[Mapping[Place, Given]]:
    values = [layer.values for layer in layers]
    chosen = next((index for index, layer in enumerate(layers) if PROFILE in layer.values), None)
    if chosen is None or values[chosen][PROFILE].value is None:
        return values
    files = next((index for index, layer in enumerate(layers) if layer.file), len(layers))
    place = min(chosen + 1, files)
    return [*values[:place], *_profile(layers, values[chosen][PROFILE]), *values[place:]]


def _profile(layers: Sequence[Layer], asked: Given) -> list[Mapping[Place, Given]]:
    """What each source that has the profile says of it."""
    name = asked.value
    parts = [layer.profiles[name] for layer in layers if name in layer.profiles]
    if not parts:
        known = dict.fromkeys(known for layer in layers for known in layer.profiles)
        hint = did_you_mean(name, known) or f"; there are {join_names(known)}"
        raise SpecError(f"{asked.source}: no profile {name!r}{hint}")
    return parts
