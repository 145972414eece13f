"""Names that a far cluster told of, so that a press of the tabulator need not wait for it again.

What was heard within `LASTING` is offered at once. Where it was not heard just now (`FRESH`), a process of its own asks
again behind it, so that the next press has what is true by then. A backend whose answers take long says so by the
``place`` of its `BackendInfo`; all others are asked each time. Files are below the XDG cache folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symphony.commandline.parsing.dispatch import CommandLine

# In seconds.
MAX_AGE_SECONDS, FRESH = 600.0, 2.0
# Set for the process that asks behind: it takes no answer from here.
ANEW = "SYMPHONY_ASK_ANEW"


def cached_names(
    line: CommandLine, what: Sequence[str], ask: Callable[[], Iterable[str]]
) -> list[str]:
    """The names of a kind, ``what``: as ``ask`` tells them, or as it told them before."""
    file = _file(line, what)
    if file is None:
        return list(ask())
    if ANEW not in os.environ:
        known = _read(file)
        if known is not None:
            _ask_behind(file)
            return known
    try:
        found = list(ask())
    except BaseException:
        _remove(file)
        raise
    _write(file, found)
    return found


def clear_cached_names() -> None:
    """Know nothing any more: something was launched or deleted."""
    for file in _files():
        _remove(file)


def _file(line: CommandLine, what: Sequence[str]) -> Path | None:
    """Where names of a kind are kept; None for clusters that answer quickly, or of which nothing is known."""
    place = _place(line)
    if place is None:
        return None
    import hashlib

    key = json.dumps([place, *what], default=str)
    return _folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _place(line: CommandLine) -> Any:
    info = line.backend_info
    if info is None or info.place is None or line.has_custom_cluster:
        return None
    from pkgutil import resolve_name

    from symphony.config import SymphonyConfig

    configured = SymphonyConfig().options_for(
        info.name, [option.name for option in info.options if option.where]
    )
    return [info.name, resolve_name(info.place)({**configured, **line.backend_options})]


def _folder() -> Path:
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
        / "symphony"
        / "names"
    )


def _files() -> list[Path]:
    try:
        return list(_folder().iterdir())
    except OSError:
        return []


def _read(file: Path) -> list[str] | None:
    try:
        found = json.loads(file.read_text())
        heard, known = float(found["heard"]), found["names"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return list(map(str, known)) if 0 <= time.time() - heard <= MAX_AGE_SECONDS else None


def _write(file: Path, found: Sequence[str]) -> None:
    """Keep what was heard, and no longer what was heard long ago. A cache that cannot be written is none."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for other in _files():
            if time.time() - other.stat().st_mtime > MAX_AGE_SECONDS:
                _remove(other)
        aside = file.with_name(f"{file.name}.{os.getpid()}")
        aside.write_text(json.dumps({"heard": time.time(), "names": found}))
        aside.replace(file)


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink(missing_ok=True)


def _ask_behind(file: Path) -> None:
    """Run this same command line once more, apart from the shell, for what it writes; the file's time says when."""
    import subprocess

    with contextlib.suppress(OSError):
        if time.time() - file.stat().st_mtime < FRESH:
            return
        os.utime(file)
        subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]],
            env={**os.environ, ANEW: "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
