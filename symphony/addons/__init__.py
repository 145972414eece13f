"""Tools for building, pushing and removing the images that experiments use.

Each public name is imported when it is first used. Importing this package does not require a
container engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.support.lazy_imports import import_when_used

if TYPE_CHECKING:
    from symphony.addons.docker.builder import DockerBuilder
    from symphony.addons.docker.clean import clean_images
    from symphony.addons.docker.images import build_images

_MODULES = {
    "DockerBuilder": "symphony.addons.docker.builder",
    "build_images": "symphony.addons.docker.images",
    "clean_images": "symphony.addons.docker.clean",
}

__all__ = ["DockerBuilder", "build_images", "clean_images"]

__getattr__, __dir__ = import_when_used(__name__, _MODULES)
