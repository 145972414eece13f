"""Tools for building, pushing and removing the images that experiments use.

Each public name is imported when it is first used. Importing this package does not require a
container engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symphony.addons.docker.builder import DockerBuilder
    from symphony.addons.docker.clean import clean_images
    from symphony.addons.docker.images import build_images

_HOME = {"DockerBuilder": "builder", "build_images": "images", "clean_images": "clean"}

__all__ = ["DockerBuilder", "build_images", "clean_images"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'symphony.addons' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"symphony.addons.docker.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
