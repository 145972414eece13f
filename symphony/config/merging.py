"""Merging configuration sources into the effective configuration, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from symphony.config.fields import GROUPS, PROFILES, KeyPath
from symphony.errors import SpecError
from symphony.support.names import did_you_mean, join_names

PROFILE_KEY: KeyPath = ("profile",)
TRUST_COMMAND = "symphony config trust"
_MAX_NAMES_IN_MESSAGE = 10


class SourcedValue(NamedTuple):
    """A value and its source, such as ``.symphony.yml:3:1`` or ``SYMPHONY_BACKEND``."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrustedFile:
    """A configuration file that is ignored, completely or in part.

    ``owner`` is the user to whom the file belongs, or None if it belongs to this user or to root.
    ``settings`` are the settings that are ignored, and ``profiles`` the names of the profiles that
    are ignored; both are empty if the whole file is ignored. ``fix`` is what the user can do.
    """

    path: Path
    owner: str | None = None
    settings: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    fix: str = f"read the file, and run '{TRUST_COMMAND}' if you trust it"

    def __str__(self) -> str:
        if self.owner is not None:
            return f"{self.path}: ignored, because the file belongs to {self.owner}; {self.fix}"
        ignored = [*self.settings, *(f"profiles.{name}" for name in self.profiles)]
        return (
            f"{self.path}: ignored {join_names(ignored, limit=_MAX_NAMES_IN_MESSAGE)}, because the "
            f"file is not trusted; {self.fix}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSource:
    """One source of configuration: its values, and the values of its profiles.

    ``is_found_file`` is true for a file that symphony found, by searching or through
    SYMPHONY_CONFIG, and false for all other sources. ``position`` returns the position of a key,
    such as ``("profiles", "gke", "options", "kube")``, as text. ``position`` is None if the source
    is not a file. ``untrusted`` is set if the source is a file that is ignored, at least in part.
    """

    values: Mapping[KeyPath, SourcedValue]
    profiles: Mapping[str, Mapping[KeyPath, SourcedValue]] = field(default_factory=dict)
    is_found_file: bool = False
    position: Callable[[KeyPath], str] | None = None
    untrusted: UntrustedFile | None = None

    def parent_of(self, key: KeyPath, value: SourcedValue) -> KeyPath | None:
        """Return the parent key under which this source sets ``value`` for ``key``.

        The result is ``()`` for a value set directly by this source, ``("profiles", "gke")`` for a
        value set in a profile, and None if another source sets the value.
        """
        if self.values.get(key) is value:
            return ()
        for name, values in self.profiles.items():
            if values.get(key) is value:
                return (PROFILES, name)
        return None


def merge_sources(sources: Sequence[ConfigSource]) -> dict[KeyPath, SourcedValue]:
    """Return the effective configuration. ``sources`` are sorted from highest to lowest priority.

    The selected profile ranks directly below the source that selects it, but always above the files
    that symphony found. Raises `SpecError` if no source defines this profile.
    """
    merged: dict[KeyPath, SourcedValue] = {}
    # The groups that a source has removed. Sources with a lower priority cannot set these groups
    # again.
    removed_groups: set[KeyPath] = set()
    for values in _by_priority(sources):
        for key, sourced in values.items():
            if key not in merged and key[:1] not in removed_groups:
                merged[key] = sourced
        for key, sourced in values.items():
            if sourced.value is None and key[0] in GROUPS:
                removed_groups.add(key)
    return {key: sourced for key, sourced in merged.items() if sourced.value is not None}


def _by_priority(sources: Sequence[ConfigSource]) -> list[Mapping[KeyPath, SourcedValue]]:
    """Return the values of the sources and of the selected profile, highest priority first."""
    all_values = [source.values for source in sources]
    selecting = [index for index, values in enumerate(all_values) if PROFILE_KEY in values]
    if not selecting:
        return all_values
    selected = all_values[selecting[0]][PROFILE_KEY]
    if selected.value is None:
        return all_values
    found_files = [index for index, source in enumerate(sources) if source.is_found_file]
    insert_at = min([selecting[0] + 1, *found_files])
    profile = _profile_values(sources, selected)
    return [*all_values[:insert_at], *profile, *all_values[insert_at:]]


def _profile_values(
    sources: Sequence[ConfigSource], selected: SourcedValue
) -> list[Mapping[KeyPath, SourcedValue]]:
    """Return the values that each source sets for the selected profile."""
    name = selected.value
    values = [source.profiles[name] for source in sources if name in source.profiles]
    for source in sources:
        if source.untrusted is not None and name in source.untrusted.profiles:
            # Without these values, a command would act on another cluster than the user requested.
            raise SpecError(
                f"{selected.source}: profile {name!r} cannot be used: {source.untrusted}"
            )
    if not values:
        known = dict.fromkeys(profile for source in sources for profile in source.profiles)
        hint = did_you_mean(name, known) or f"; the profiles are {join_names(known)}"
        raise SpecError(f"{selected.source}: no profile {name!r}{hint}")
    return values
