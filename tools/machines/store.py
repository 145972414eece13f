"""A cache whose entries are directories. A missing or damaged entry is created again.

An entry is created in a temporary directory and renamed when it is complete, so an incomplete entry
never has its final name. An entry's manifest lists the size and checksum of every file.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

MANIFEST = "manifest.json"
_INCOMPLETE = ".part"


def ensure(entry: Path, make: Callable[[Path], None], *, report: Callable[[str], None]) -> bool:
    """Create `entry` with `make(directory)` unless it exists and is undamaged.

    Return whether the entry was created.

    If an entry has to be created again, `report` is called with the reason.
    """
    problem = damage(entry)
    if problem is None:
        return False
    incomplete = entry.with_name(entry.name + _INCOMPLETE)
    if entry.exists():
        report(f"  {entry} is damaged ({problem}): creating it again")
        shutil.rmtree(entry)
    if incomplete.exists():
        report(f"  {incomplete} is incomplete: creating it again")
        shutil.rmtree(incomplete)
    incomplete.mkdir(parents=True)
    make(incomplete)
    seal(incomplete)
    incomplete.rename(entry)
    return True


def seal(directory: Path) -> None:
    """Write a manifest that lists all files in `directory`."""
    content = {str(path.relative_to(directory)): _fingerprint(path) for path in _files(directory)}
    (directory / MANIFEST).write_text(json.dumps(content, indent=1, sort_keys=True))


def damage(entry: Path) -> str | None:
    """Return a description of the damage to an entry, or None if every listed file is unchanged."""
    try:
        expected: dict[str, str] = json.loads((entry / MANIFEST).read_text())
    except (OSError, ValueError):
        return "no manifest"
    for name, fingerprint in expected.items():
        path = entry / name
        if not os.path.lexists(path):
            return f"{name} is missing"
        if _fingerprint(path) != fingerprint:
            return f"{name} has changed since it was created"
    return None


def digest(path: Path) -> str:
    """Return a file's SHA-256 digest in hexadecimal."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


def key(*parts: object) -> str:
    """Return a short name that changes if any of `parts` changes."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def keep_only(directory: Path, names: Collection[str]) -> None:
    """Remove all entries in `directory` except those with the given names.

    Incomplete entries with these names are kept, too. A directory that does not exist has no
    entries.
    """
    if not directory.exists():
        return
    for path in directory.iterdir():
        if path.name.removesuffix(_INCOMPLETE) not in names:
            shutil.rmtree(path)


def _files(directory: Path) -> Iterator[Path]:
    for root, directories, names in os.walk(directory):
        links = [name for name in directories if Path(root, name).is_symlink()]
        for name in names + links:
            path = Path(root, name)
            if path != directory / MANIFEST:
                yield path


def _fingerprint(path: Path) -> str:
    if path.is_symlink():
        return f"link {path.readlink()}"
    return f"{path.stat().st_size} {digest(path)}" if path.is_file() else "other"
