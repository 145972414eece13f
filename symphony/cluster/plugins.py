"""Finding and opening backends: entry points tell the names, pluggy checks the plug-ins.

Looking a name up reads metadata and imports nothing; opening a backend imports its plug-in alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from symphony.errors import PluginError
from symphony.hookspecs import GROUP, PROJECT, BackendInfo
from symphony.names import did_you_mean, join_names

if TYPE_CHECKING:
    from types import ModuleType

    from symphony.cluster import Cluster

DISTRIBUTION = "symphony-launcher"
HOOK = "symphony_backend"


def backend_names() -> list[str]:
    """Every name and alias under which a backend is installed."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def open_backend(name: str) -> type[Cluster]:
    """The `Cluster` class of a backend, by its name or an alias of it in any case.

    Raises `PluginError` for a name that nobody has or two distributions claim, a plug-in that fails to import
    or has no valid hook, and a missing extra (with the command that installs it).
    """
    info = find_backend(name)
    module_name, _, attribute = info.load.partition(":")
    try:
        loaded = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as exc:
        raise PluginError(_missing(info, module_name, exc)) from exc
    except Exception as exc:
        raise PluginError(
            f"backend {info.name!r} cannot be loaded from {info.load!r}: {_said(exc)}"
        ) from exc
    from symphony.cluster import Cluster

    if not (isinstance(loaded, type) and issubclass(loaded, Cluster)):
        raise PluginError(f"backend {info.name!r}: {info.load!r} is no symphony.Cluster class")
    return loaded


def find_backend(name: str) -> BackendInfo:
    """The record of one backend, importing its plug-in alone."""
    wanted = name.lower()
    points = list(entry_points(group=GROUP))
    matching = [point for point in points if point.name.lower() == wanted]
    if not matching:
        known = sorted({point.name for point in points})
        raise PluginError(
            f"no backend {name!r}{did_you_mean(wanted, known)}; installed are {join_names(known, limit=20)}"
        )
    return _record(_only(matching))


def installed_backends() -> list[BackendInfo]:
    """The record of every backend that is installed, once each, by name.

    One whose plug-in is broken, or whose name two distributions claim, has a record that says so in its
    ``summary`` and an empty ``load``: it must not hide the others.
    """
    targets: dict[str, set[str]] = {}
    for point in entry_points(group=GROUP):
        targets.setdefault(point.name.lower(), set()).add(point.value)
    same: dict[frozenset[str], list[str]] = {}
    for name in sorted(targets):
        same.setdefault(frozenset(targets[name]), []).append(name)
    found: dict[str, BackendInfo] = {}
    for together in same.values():
        record = _listed(together)
        if record.name not in found or not record.load:
            found[record.name] = record
    return sorted(found.values(), key=lambda record: record.name)


def _listed(together: list[str]) -> BackendInfo:
    """The record behind names that lead to the same place, or one that says why there is none."""
    try:
        return find_backend(together[0])
    except PluginError as exc:
        return BackendInfo(
            name=together[0], aliases=tuple(together[1:]), summary=f"cannot be used: {exc}", load=""
        )


def _only(points: Iterable[EntryPoint]) -> EntryPoint:
    """The one entry point, or an error that names the distributions that claim its name."""
    points = list(points)
    if len(points) == 1:
        return points[0]
    by_target = {(point.value, _distribution(point)): point for point in points}
    if len(by_target) > 1:
        claims = " and ".join(sorted(f"{dist} ({value})" for value, dist in by_target))
        name = next(iter(by_target.values())).name.lower()
        raise PluginError(
            f"two distributions claim the backend {name!r}: {claims}; uninstall one of them"
        )
    return next(iter(by_target.values()))


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unnamed distribution"


def _record(point: EntryPoint) -> BackendInfo:
    try:
        module = point.load()
    except Exception as exc:
        raise PluginError(
            f"the plug-in {point.value!r} of {_distribution(point)} (backend {point.name!r}) fails to import: "
            f"{_said(exc)}"
        ) from exc
    return _ask(module, point)


def _ask(module: ModuleType, point: EntryPoint) -> BackendInfo:
    import pluggy

    from symphony import hookspecs

    where = f"the plug-in {point.value!r} of {_distribution(point)}"
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module)
    except pluggy.PluginValidationError as exc:
        raise PluginError(f"{where} has a hook {HOOK} that takes arguments; it takes none") from exc
    _refuse_unknown_hooks(module, where)
    try:
        answers = manager.hook.symphony_backend()
    except Exception as exc:
        raise PluginError(f"{where} fails in its hook {HOOK}: {_said(exc)}") from exc
    if len(answers) != 1 or not isinstance(answers[0], BackendInfo):
        given = "nothing" if not answers else repr(answers[0])
        raise PluginError(
            f"{where} must have one hook {HOOK} that returns a BackendInfo, not {given}"
        )
    return _of_that_name(answers[0], point, where)


def _refuse_unknown_hooks(module: ModuleType, where: str) -> None:
    for name in dir(module):
        if name != HOOK and hasattr(getattr(module, name), f"{PROJECT}_impl"):
            raise PluginError(
                f"{where} has a hook {name!r} that symphony does not know{did_you_mean(name, [HOOK])}"
            )


def _of_that_name(info: BackendInfo, point: EntryPoint, where: str) -> BackendInfo:
    """Refuse a record that does not know the name by which it was found: the two would drift apart."""
    known = (info.name, *info.aliases)
    if point.name.lower() not in {name.lower() for name in known}:
        raise PluginError(
            f"{where} is installed as {point.name!r}, but its record says {join_names(known)}; "
            "make the names of its entry points and of its record the same"
        )
    return info


def _missing(info: BackendInfo, module: str, exc: ModuleNotFoundError) -> str:
    absent = exc.name or ""
    own = f"{module}.".startswith(
        f"{absent}."
    )  # the very module that the record names, or a package of it
    if info.extra and not own:
        return (
            f"backend {info.name!r} needs the package {absent!r}; "
            f"install it with: pip install '{DISTRIBUTION}[{info.extra}]'"
        )
    return f"backend {info.name!r} cannot be loaded from {info.load!r}: no module {absent!r} is installed"


def _said(exc: Exception) -> str:
    first = (str(exc).strip().splitlines() or [""])[0]
    return f"{type(exc).__name__}: {first}"
