"""Check rendered containers by the rules of the API server that need no server. Pure.

Without these checks, the API server would refuse an object in the middle of a launch, or accept a
container that the kubelet can never start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from symphony.errors import SpecError, shown
from symphony.model.settings.quantities import parse_quantity
from symphony.model.settings.validators import REPOSITORY_PATTERN
from symphony_kube.render.text import Object

# The grammar of image names: https://pkg.go.dev/github.com/distribution/reference
_TAG_PATTERN = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}")
_MAX_IMAGE_LENGTH = 255


def check_container(container: Object, process: str) -> None:
    """Raise `SpecError` if the API server or the kubelet would refuse a container.

    ``process`` is the path of the process that the container runs.
    """
    image = container.get("image")
    if isinstance(image, str):
        _check_image(image, process)
    resources = container.get("resources")
    if isinstance(resources, Mapping):
        _check_resources(resources, process)


def _check_image(image: str, process: str) -> None:
    """Raise `SpecError` if ``image`` is not the name of an image."""
    if _is_image_name(image):
        return
    head, colon, last = image.rpartition(":")
    hint = "write [REGISTRY/]NAME[:TAG]"
    if _is_image_name(image.lower()):
        hint = f"did you mean {image.lower()!r}?"
    elif colon and not last and _is_image_name(head):
        hint = f"the tag is missing; write {head!r} or '{head}:TAG'"
    elif _is_image_name("".join(image.split())):
        hint = "remove the spaces"
    elif _is_image_name(re.sub("^[a-z]+://", "", image)):
        hint = f"write it without {image.partition('://')[0]}://"
    raise SpecError(
        f"process {process!r} has the image {shown(image)}, which is not the name of an image; "
        f"{hint}"
    )


def _is_image_name(image: str) -> bool:
    name, at, digest = image.partition("@")
    if at and not _DIGEST_PATTERN.fullmatch(digest):
        return False
    repository = name
    head, colon, tag = name.rpartition(":")
    # A colon before the last slash introduces the registry's port, not a tag.
    if colon and "/" not in tag:
        if not _TAG_PATTERN.fullmatch(tag):
            return False
        repository = head
    if len(repository) > _MAX_IMAGE_LENGTH:
        return False
    return REPOSITORY_PATTERN.fullmatch(repository) is not None


def _check_resources(resources: Mapping[str, Any], process: str) -> None:
    """Raise `SpecError` if a container requests more of a resource than its limit."""
    requests, limits = resources.get("requests"), resources.get("limits")
    if not isinstance(requests, Mapping) or not isinstance(limits, Mapping):
        return
    problems = []
    for name, requested in requests.items():
        limit = limits.get(name)
        if limit is not None and parse_quantity(requested, name) > parse_quantity(limit, name):
            problems.append(f"the request of {requested} {name} is above the limit of {limit}")
    if problems:
        raise SpecError(
            f"process {process!r}: {' and '.join(problems)}; raise the limit or lower the request"
        )
