"""The hook of `symphony.hookspecs` as pluggy needs it, which is imported only if it is used."""

from __future__ import annotations

import pluggy

from symphony.backend_info import PROJECT, BackendInfo

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def symphony_backend() -> BackendInfo:  # type: ignore[empty-body]  # pluggy never calls it
    """Return the description of the backend that this plug-in provides."""
