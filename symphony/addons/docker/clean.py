"""Removing images whose names match a pattern."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from symphony.addons.docker.detect_engine import find
from symphony.errors import BackendError, SpecError
from symphony.model.settings import validators


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanResult:
    """The result of a clean-up: the names of the removed images, and for each image that could not
    be removed, the reason.
    """

    removed: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


def clean_images(
    patterns: validators.Strings,
    force: bool = False,
    *,
    confirm: Callable[[Sequence[str]], bool] | None = None,
    engine: str | None = None,
) -> CleanResult:
    """Remove the images whose ``name:tag`` matches one of the shell patterns, such as
    ``registry.example/rl:*``.

    ``confirm`` is called with the names of the matching images, and nothing is removed unless it
    returns true. If ``force`` is true, ``confirm`` is not called, and images that stopped
    containers use are also removed. If an image cannot be removed, the other images are still
    removed, and the result contains the reason for the failure. If an image has several names, only
    the matching names are removed. The image itself is deleted when its last name is removed.
    ``engine`` has the same meaning as in `DockerBuilder`. Raises `SpecError` if an argument is
    invalid or neither ``confirm`` nor ``force`` is given, and `BackendError` if no engine responds.
    """
    checked = validators.strings(patterns, "the patterns of images")
    if any(not pattern.strip() for pattern in checked):
        raise SpecError("a pattern of images is empty; give a pattern for names, such as 'rl:*'")
    validators.flag(force, "force")
    validators.optional_function(confirm, "confirm")
    if not force and confirm is None:
        raise SpecError(
            "clean_images needs a confirmation: give confirm=, or force=True to remove without one"
        )
    found = find(engine)
    names = [name for name in found.images() if _matches(name, checked)]
    if not names or not (force or (confirm is not None and confirm(names))):
        return CleanResult()
    failed: dict[str, str] = {}
    for name in names:
        try:
            found.remove(name, force=force)
        except BackendError as exc:
            failed[name] = str(exc)
    return CleanResult(removed=tuple(name for name in names if name not in failed), failed=failed)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
