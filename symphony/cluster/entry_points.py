"""Reading the entry points of backends.

`importlib.metadata` gives the same answer, but importing and calling it takes about 15 ms, which is
a sixth of the time of ``symphony ls``. This module reads the metadata in directories itself, and
leaves everything else, such as zip files, to `importlib.metadata`.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import Any, NamedTuple


class EntryPoint(NamedTuple):
    """An entry point of an installed distribution.

    ``value`` is ``module`` or ``module:attribute``, and ``distribution`` is the distribution's
    normalized name.
    """

    name: str
    value: str
    distribution: str

    def load(self) -> Any:
        """Import the module and return it, or the attribute if ``value`` names one. Raises what
        the import raises, and `AttributeError` if the attribute does not exist.
        """
        return load_attribute(self.value.partition("[")[0].strip())


def load_attribute(name: str) -> Any:
    """Return the object with the name ``module`` or ``module:attribute``.

    Raises what the import raises, and `AttributeError` if the attribute does not exist.
    """
    module_name, _, attributes = name.partition(":")
    loaded: Any = importlib.import_module(module_name.strip())
    for attribute in attributes.split(".") if attributes else []:
        loaded = getattr(loaded, attribute.strip())
    return loaded


def read_entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of ``group`` of all installed distributions.

    If a distribution is installed several times, only the one that comes first on `sys.path`
    counts, because its modules are the ones that Python imports.
    """
    found: dict[str, list[EntryPoint]] = {}
    for distribution, points in _all_distributions(group):
        found.setdefault(distribution, points)
    return [point for points in found.values() for point in points]


def _all_distributions(group: str) -> Iterator[tuple[str, list[EntryPoint]]]:
    """Yield the normalized name and the entry points of each installed distribution."""
    if _other_finders_exist():
        yield from _from_library(group, sys.path)
        return
    for directory in dict.fromkeys(sys.path):
        try:
            info = os.stat(directory or ".")  # noqa: PTH116  (a Path takes longer)
        except OSError:
            continue
        if directory.endswith(".egg") or not stat.S_ISDIR(info.st_mode):
            yield from _from_library(group, [directory])
            continue
        stamp = (info.st_dev, info.st_ino, info.st_mtime_ns)
        yield from _read_directory(group, directory, stamp)


@functools.cache
def _read_directory(
    group: str, directory: str, stamp: tuple[int, int, int]
) -> list[tuple[str, list[EntryPoint]]]:
    """Return the same as `_all_distributions` for one directory.

    The result is cached, because a command needs the entry points several times. ``stamp`` changes
    when a distribution is added to the directory or removed from it.
    """
    del stamp
    found = []
    try:
        names = os.listdir(directory or ".")
    except OSError:
        return []
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            name_and_version = name.rpartition(".")[0]
            distribution = _normalized(name_and_version.partition("-")[0])
            text = _read_text(f"{directory or '.'}/{name}/entry_points.txt")
            found.append((distribution, list(_parse(text, group, distribution))))
    return found


def _other_finders_exist() -> bool:
    """Return whether anything but Python's search of `sys.path` provides metadata."""
    return any(
        finder is not PathFinder and hasattr(finder, "find_distributions")
        for finder in sys.meta_path
    )


def _from_library(group: str, path: list[str]) -> Iterator[tuple[str, list[EntryPoint]]]:
    """Yield the same as `_all_distributions` for ``path``, read with `importlib.metadata`."""
    from importlib import metadata

    for found in metadata.distributions(path=path):
        distribution = _normalized(found.name)
        yield (
            distribution,
            [
                EntryPoint(point.name, point.value, distribution)
                for point in found.entry_points
                if point.group == group
            ],
        )


def _read_text(path: str) -> str:
    """Return the text of a file, or an empty text if it cannot be read."""
    try:
        # A Path takes longer.
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def _parse(text: str, group: str, distribution: str) -> Iterator[EntryPoint]:
    """Yield the entry points of ``group`` in the text of an ``entry_points.txt``."""
    section = ""
    for line in map(str.strip, text.splitlines() if group in text else []):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            continue
        name, equals, value = line.partition("=")
        if section == group and equals and not line.startswith("#"):
            yield EntryPoint(name.strip(), value.strip(), distribution)


def _normalized(distribution: str) -> str:
    """Return a distribution's name in the form that PyPI uses to compare names."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
