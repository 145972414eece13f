"""Copying files to and from the file system of a node that the login node does not share.

The relay copies between the node and a temporary directory in the run directory, which is shared.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from symphony.errors import NotFound, SpecError, SymphonyError
from symphony.supervised.access.copy import CopyPath, copy
from symphony.supervised.record.directory import RunDirectory

# A function that runs the relay on the node with arguments, and returns its result.
Relay = Callable[..., Mapping[str, Any]]


def identity(path: str) -> list[Any]:
    """Return what identifies a file, or the directory of a file that does not exist.

    The result is the same on two machines only if they share the file.
    """
    for found in (path, posixpath.dirname(path.rstrip("/")) or "/"):
        try:
            status = os.stat(found)  # noqa: PTH116
        except OSError:
            continue
        return [found, status.st_ino, status.st_ctime_ns]
    return []


def copy_on_node(source: Mapping[str, str], target: Mapping[str, str]) -> dict[str, str]:
    """Copy files on this node. Return the error message, and whether something was not found."""
    try:
        copy(CopyPath(**source), CopyPath(**target))
    except SymphonyError as exc:
        return {"missing" if isinstance(exc, NotFound) else "error": str(exc)}
    return {}


def copy_from_node(
    run: RunDirectory, source: CopyPath, target: CopyPath, relay: Relay, *, dry_run: bool
) -> None:
    """Copy a file or a directory from a node; see `symphony.supervised.access.copy.copy`."""
    if _is_shared(source, relay):
        copy(source, target, dry_run=dry_run)
        return
    with _staging_directory(run) as staging:
        _copy_with(relay, source, CopyPath(text=target.text, path=staging))
        copy(_staged(source, staging), target, dry_run=dry_run)


def copy_to_node(
    run: RunDirectory, source: CopyPath, target: CopyPath, relay: Relay, *, dry_run: bool
) -> None:
    """Copy a file or a directory to a node; see `symphony.supervised.access.copy.copy`.

    With ``dry_run``, the target is not checked unless this machine and the node share it.
    """
    if _is_shared(target, relay):
        copy(source, target, dry_run=dry_run)
        return
    with _staging_directory(run) as staging:
        copy(source, CopyPath(text=target.text, path=staging), dry_run=dry_run)
        if not dry_run:
            _copy_with(relay, _staged(source, staging), target)


def _is_shared(path: CopyPath, relay: Relay) -> bool:
    here = identity(path.path)
    return bool(here) and relay("identify", path.path)["identity"] == here


@contextlib.contextmanager
def _staging_directory(run: RunDirectory) -> Iterator[str]:
    """Yield the path of a new directory that the node shares, and remove it at the end."""
    staging = tempfile.mkdtemp(prefix="copy-", dir=run.path.resolve())
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _staged(source: CopyPath, staging: str) -> CopyPath:
    """Return the path of a copy of ``source`` that was made in the directory ``staging``."""
    return CopyPath(text=source.text, path=posixpath.join(staging, source.name or "."))


def _copy_with(relay: Relay, source: CopyPath, target: CopyPath) -> None:
    result = relay("copy", json.dumps({"source": asdict(source), "target": asdict(target)}))
    if "missing" in result:
        raise NotFound(result["missing"])
    if "error" in result:
        raise SpecError(result["error"])
