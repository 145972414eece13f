"""The directory in which a change of an experiment is prepared, and the steps that put it in place.

    <root>/<experiment>/change-<digits>/
        manifest.json           the new manifest
        record.json             the new description of the launch
        secrets/                the secrets that are new or have changed

The change happens in one step: the new manifest replaces the previous one. The manifest names the
directory, so that the other files can be put in place later, even after the supervisor was killed.
Each step can be repeated.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from symphony.supervised.record.directory import RunDirectory

_PREFIX = "change-"
_LOCK = "change.lock"
MANIFEST, RECORD, SECRETS = "manifest.json", "record.json", "secrets"


def is_change_directory(name: str) -> bool:
    """Return whether ``name`` is the name of such a directory."""
    return name.startswith(_PREFIX) and name.removeprefix(_PREFIX).isalnum()


@contextlib.contextmanager
def change_lock(run: RunDirectory) -> Iterator[None]:
    """Hold the lock that a program needs to change an experiment. Wait if another one holds it."""
    import fcntl

    descriptor = os.open(run.file(_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def create(run: RunDirectory, manifest: Mapping[str, Any]) -> Path:
    """Create a directory for a change. Remove those that killed programs have left.

    The caller holds the lock. ``manifest`` is that of the running experiment. If no supervisor has
    put the files of its change in place, its directory remains.
    """
    current = manifest.get("change", {}).get("directory")
    for name in os.listdir(run.file(".")):
        if is_change_directory(name) and name != current:
            shutil.rmtree(run.file(name), ignore_errors=True)
    path = run.file(f"{_PREFIX}{os.urandom(8).hex()}")
    path.mkdir(mode=0o700)
    (path / SECRETS).mkdir(mode=0o700)
    return path


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only this user can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def load_manifest(run: RunDirectory, directory: str) -> dict[str, Any]:
    """Return the new manifest. Raises OSError or ValueError if it cannot be read."""
    data: dict[str, Any] = json.loads((run.file(directory) / MANIFEST).read_bytes())
    return data


def secret_file(run: RunDirectory, manifest: Mapping[str, Any], name: str) -> Path:
    """Return the file of a secret. It can be one that is not in place yet; see `finish`."""
    directory = manifest.get("change", {}).get("directory", "")
    new = run.file(directory) / SECRETS / name
    return new if directory and new.exists() else run.secrets / name


def commit(run: RunDirectory, directory: str) -> None:
    """Replace the manifest. From now on, the change is complete or will be completed."""
    (run.file(directory) / MANIFEST).rename(run.manifest)


def finish(run: RunDirectory, manifest: Mapping[str, Any]) -> None:
    """Put the other files of the change that ``manifest`` names in place.

    Only the supervisor calls this function. If this was done before, do nothing.
    """
    change = manifest.get("change")
    if change is None or not is_change_directory(change["directory"]):
        return
    directory = run.file(change["directory"])
    if not directory.exists():
        return
    with contextlib.suppress(FileNotFoundError):
        (directory / RECORD).rename(run.file(RECORD))
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(directory / SECRETS)
    if names:
        run.secrets.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        (directory / SECRETS / name).rename(run.secrets / name)
    shutil.rmtree(directory, ignore_errors=True)
