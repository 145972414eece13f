"""A short-lived cache of the names that completion offers.

The cache avoids repeated requests to clusters that respond slowly. It stores one file per key in
the directory ``symphony/names`` in the user's cache directory (XDG_CACHE_HOME). A file's
modification time is the time at which the cluster responded.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from symphony.errors import SpecError
from symphony.support.directories.home import home_directory
from symphony.support.directories.private import check, create
from symphony.support.replace_file import replace_file

MAX_AGE_SECONDS = 60.0


def cached_names(key: Sequence[object], fetch: Callable[[], Iterable[str]]) -> list[str]:
    """Return the names that are cached for ``key``.

    If no names are cached, call ``fetch``, and cache and return its result. Keys with the same JSON
    representation share an entry. Errors raised by ``fetch`` propagate to the caller. If another
    user can change the cache directory, nothing is cached.
    """
    import hashlib

    if not _is_private(_cache_directory()):
        return list(fetch())

    digest = hashlib.sha256(json.dumps(key, default=str).encode()).hexdigest()
    file = _cache_directory() / f"{digest[:32]}.json"
    known = _read_names(file)
    if known is not None:
        return known
    names = list(fetch())
    _write_names(file, names)
    return names


def clear_cached_names() -> None:
    """Delete all cached names. Call this function after a launch or a deletion."""
    # Another user could replace the directory with a link to a directory of this user.
    if _is_private(_cache_directory()):
        for file in _cache_files():
            _remove_file(file)


def _is_private(directory: Path) -> bool:
    try:
        check(directory, "cache directory", "")
    except SpecError:
        return False
    return True


def _cache_directory() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or home_directory() / ".cache"
    return Path(cache).absolute() / "symphony" / "names"


def _cache_files() -> list[Path]:
    try:
        return list(_cache_directory().iterdir())
    except OSError:
        return []


def _read_names(file: Path) -> list[str] | None:
    """Return the names in a file, or None if the file is missing, too old or damaged."""
    try:
        if not _is_recent(file):
            return None
        names = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(names, list):
        return None
    return [str(name) for name in names]


def _is_recent(file: Path) -> bool:
    return 0 <= time.time() - file.stat().st_mtime <= MAX_AGE_SECONDS


def _write_names(file: Path, names: Sequence[str]) -> None:
    """Store ``names`` in ``file``, and delete the cache files that are too old.

    If the directory is not writable, nothing is cached.
    """
    with contextlib.suppress(OSError):
        create(file.parent)
        for other in _cache_files():
            if not _is_recent(other):
                _remove_file(other)
        replace_file(file, [json.dumps(names).encode()])


def _remove_file(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink(missing_ok=True)
