"""Modules that import each of their public names when it is first used."""

from __future__ import annotations

import sys

# The modules are not imported at run time; see `symphony.__init__`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def import_when_used(
    module: str, sources: Mapping[str, str | Callable[[], Any]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a module.

    ``sources`` maps each public name to the module that defines it, or to a function that returns
    the value of the name.
    """

    def get_attribute(name: str) -> Any:
        source = sources.get(name)
        if source is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if callable(source):
            value = source()
        else:
            import importlib

            value = getattr(importlib.import_module(source), name)
        # From now on, Python finds the name without this function.
        setattr(sys.modules[module], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *sources})

    return get_attribute, list_names
