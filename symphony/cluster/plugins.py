"""Finding and loading backends.

The names of backends come from entry points. Listing the names only reads package metadata and
imports no plug-in. Finding or loading a backend by name imports only its own plug-in. pluggy
validates the plug-ins that implement a hook.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from symphony.backend_info import GROUP, PROJECT, BackendInfo
from symphony.cluster.entry_points import EntryPoint, read_entry_points
from symphony.errors import PluginError, shown
from symphony.support.names import check_is_text, did_you_mean, join_names

if TYPE_CHECKING:
    from types import ModuleType

    from symphony.cluster import Cluster

# The name of the description in a plug-in, or of the hook that returns it.
DESCRIPTION = "BACKEND"
HOOK = "symphony_backend"


class _UnknownBackend(PluginError):
    """Raised if no distribution provides a backend with the name."""


def backend_names() -> list[str]:
    """Return the sorted names and aliases of all installed backends."""
    return sorted({point.name for point in read_entry_points(GROUP)})


def open_backend(name: str, base: type[Any]) -> type[Cluster]:
    """Return a backend's subclass of `Cluster`. ``name`` is the backend's name or an alias, and is
    case-insensitive.

    ``base`` is the class `Cluster`, which is a parameter because its module imports this module.
    Without such a backend, ``name`` can be that of a subclass that the program has defined: the
    class ``LabCluster`` has the name ``lab``.

    Raises `PluginError` if the backend does not exist, if two distributions provide it, if its
    plug-in cannot be imported or does not contain a valid hook, or if the backend's class cannot be
    loaded. If an optional package is missing, the message contains the command that installs it.
    """
    try:
        info = find_backend(name)
    except _UnknownBackend:
        defined = _find_subclass(base, name)
        if defined is None:
            raise
        return defined
    module_name, _, class_name = info.load.partition(":")
    try:
        loaded = getattr(importlib.import_module(module_name), class_name)
    except ModuleNotFoundError as exc:
        raise PluginError(_missing_module(info, module_name, exc)) from exc
    except Exception as exc:
        raise PluginError(
            f"backend {info.name!r} cannot be loaded from {info.load!r}: {_first_line(exc)}"
        ) from exc
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise PluginError(
            f"backend {info.name!r}: {info.load!r} is not a subclass of symphony.Cluster"
        )
    return loaded


def _find_subclass(base: type[Any], name: str) -> type[Cluster] | None:
    """Return the subclass of ``base`` whose name without ``Cluster`` is ``name``, or None."""
    subclasses = base.__subclasses__()
    for subclass in subclasses:
        if subclass.__name__.lower() == f"{name}cluster".lower():
            return cast("type[Cluster]", subclass)
        subclasses += subclass.__subclasses__()
    return None


def find_backend(name: str) -> BackendInfo:
    """Return the description of the backend with the name or alias ``name``, importing only this
    backend's plug-in.

    Raises `PluginError` in the same cases as `open_backend`, except for errors in the backend's
    class, which is not loaded.
    """
    wanted = check_is_text(name, "backend").lower()
    points = read_entry_points(GROUP)
    matching = [point for point in points if point.name.lower() == wanted]
    if not matching:
        known = sorted({point.name for point in points})
        hint = did_you_mean(wanted, known)
        raise _UnknownBackend(
            f"no backend {shown(name)}{hint}; installed backends: {join_names(known, limit=20)}"
        )
    return _load_info(_single(matching))


def backend_supports(name: str, capability: str) -> bool:
    """Return whether a backend declares ``capability``, which is a key of
    `symphony.hookspecs.CAPABILITIES`.

    A backend that is not a plug-in is assumed to have every capability.
    """
    try:
        return capability in find_backend(name).capabilities
    except PluginError:
        return True


def installed_backends() -> list[BackendInfo]:
    """Return the descriptions of all installed backends, sorted by name.

    If a plug-in is broken, or two distributions provide the same name, the backend's ``summary``
    contains the error, and its ``load`` is empty. The other backends are still listed.
    """
    targets: dict[str, set[str]] = {}
    for point in read_entry_points(GROUP):
        targets.setdefault(point.name.lower(), set()).add(point.value)
    # If names have the same targets, they are the name and the aliases of one backend.
    names_by_targets: dict[frozenset[str], list[str]] = {}
    for name in sorted(targets):
        names_by_targets.setdefault(frozenset(targets[name]), []).append(name)
    found: dict[str, BackendInfo] = {}
    for names in names_by_targets.values():
        info = _info_or_error(names)
        if info.name not in found or not info.load:
            found[info.name] = info
    return sorted(found.values(), key=lambda info: info.name)


def _info_or_error(names: Sequence[str]) -> BackendInfo:
    """Return the description of the backend with these names. If the backend cannot be used, the
    description contains the error.
    """
    try:
        return find_backend(names[0])
    except PluginError as exc:
        return BackendInfo(
            name=names[0], aliases=tuple(names[1:]), summary=f"cannot be used: {exc}", load=""
        )


def _single(points: Sequence[EntryPoint]) -> EntryPoint:
    """Return the only distinct entry point in ``points``, all of which have the same name. Raise
    `PluginError` if several distributions provide this name.
    """
    # A distribution may provide a name in several spellings, such as Local and local.
    by_target = {(point.value, point.distribution): point for point in points}
    if len(by_target) > 1:
        claims = " and ".join(
            sorted(f"{distribution} ({value})" for value, distribution in by_target)
        )
        raise PluginError(
            f"two distributions provide the backend {points[0].name.lower()!r}: {claims}; "
            "uninstall one of them"
        )
    return points[0]


def _load_info(point: EntryPoint) -> BackendInfo:
    try:
        module = point.load()
    except Exception as exc:
        raise PluginError(
            f"the plug-in {point.value!r} of {point.distribution} (backend {point.name!r}) "
            f"cannot be imported: {_first_line(exc)}"
        ) from exc
    plugin = f"the plug-in {point.value!r} of {point.distribution}"
    info = getattr(module, DESCRIPTION, None)
    if info is None:
        info = _call_hook(module, plugin)
    elif not isinstance(info, BackendInfo):
        raise PluginError(
            f"{plugin} must have a BackendInfo named {DESCRIPTION}, not {shown(info)}"
        )
    _check_name(info, point, plugin)
    return info


def _call_hook(module: ModuleType, plugin: str) -> BackendInfo:
    """Call a plug-in's hook and return the `BackendInfo`. Raise `PluginError` if the hook is
    invalid or fails.
    """
    import pluggy

    from symphony import hook_markers

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hook_markers)
    try:
        manager.register(module)
    except pluggy.PluginValidationError as exc:
        raise PluginError(f"{plugin} has a hook {HOOK} with parameters; it must have none") from exc
    _refuse_unknown_hooks(module, plugin)
    try:
        results = manager.hook.symphony_backend()
    except Exception as exc:
        raise PluginError(
            f"{plugin} raises an error in its hook {HOOK}: {_first_line(exc)}"
        ) from exc
    if len(results) != 1 or not isinstance(results[0], BackendInfo):
        found = repr(results[0]) if results else "nothing"
        raise PluginError(
            f"{plugin} must have a BackendInfo named {DESCRIPTION}, or one hook {HOOK} that "
            f"returns a BackendInfo, not {found}"
        )
    info: BackendInfo = results[0]
    return info


def _refuse_unknown_hooks(module: ModuleType, plugin: str) -> None:
    for name in dir(module):
        if name != HOOK and hasattr(getattr(module, name), f"{PROJECT}_impl"):
            raise PluginError(f"{plugin} has an unknown hook {name!r}{did_you_mean(name, [HOOK])}")


def _check_name(info: BackendInfo, point: EntryPoint, plugin: str) -> None:
    """Raise `PluginError` if the entry point's name is not one of the names in ``info``."""
    known = (info.name, *info.aliases)
    if point.name.lower() not in {name.lower() for name in known}:
        raise PluginError(
            f"{plugin} is installed as {point.name!r}, but its BackendInfo has the names "
            f"{join_names(known)}; use the same names in its entry points and its BackendInfo"
        )


def _missing_module(info: BackendInfo, module: str, exc: ModuleNotFoundError) -> str:
    """Return the error message for a backend that needs a module that is not installed."""
    missing = exc.name or ""
    is_own_module = f"{module}.".startswith(f"{missing}.")
    if info.extra and not is_own_module:
        from symphony.support.install_hints import install_command

        return (
            f"backend {info.name!r} needs the package {missing!r}; "
            f"install it with: {install_command(info.extra)}"
        )
    return (
        f"backend {info.name!r} cannot be loaded from {info.load!r}: "
        f"module {missing!r} is not installed"
    )


def _first_line(exc: Exception) -> str:
    """Return the class name of an exception and the first line of its message."""
    lines = str(exc).strip().splitlines() or [""]
    return f"{type(exc).__name__}: {lines[0]}"
