"""The snapshots of the code in a run's record: their descriptions and their archives.

The manifest describes the snapshot of each process. The directory ``code`` contains the archives,
which are named by their short digests, and the unpacked code if processes run from a copy of it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from symphony.archive.run_record import MANIFEST_FILE, read_json
from symphony.code.snapshot import ARCHIVE_SUFFIX, CodeArchive, CodeArchives, CodeSnapshot

CODE_DIRECTORY = "code"
# The key of a manifest with the descriptions of the snapshots by the names of the processes.
SNAPSHOTS_KEY = "snapshots"


def write_archives(record: Path, archives: CodeArchives, *, unpacks: bool = False) -> None:
    """Write the archives into a record. With ``unpacks``, also unpack them. Raises OSError.

    Archives that the record already contains are not written again.
    """
    if not archives:
        return
    directory = record / CODE_DIRECTORY
    directory.mkdir(mode=0o700, exist_ok=True)
    by_digest = {archive.snapshot.short_digest: archive for archive in archives.values()}
    for digest, archive in by_digest.items():
        path = directory / f"{digest}{ARCHIVE_SUFFIX}"
        if not path.exists():
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_bytes(archive.data)
            temporary.rename(path)
        if unpacks:
            from symphony.code.pack import unpack

            unpack(archive, directory / digest)


def read_snapshots(record: Path) -> dict[str, CodeSnapshot]:
    """Return the snapshots of a run by the names of its processes."""
    manifest = read_json(record / MANIFEST_FILE) or {}
    try:
        found = manifest.get(SNAPSHOTS_KEY, {}).items()
        return {name: CodeSnapshot.from_dict(data) for name, data in found}
    except (AttributeError, TypeError):
        return {}


def read_archives(record: Path) -> dict[str, CodeArchive]:
    """Return the code of a run by the names of its processes.

    Processes whose archives cannot be read are omitted.
    """
    archives = {}
    for name, snapshot in read_snapshots(record).items():
        with contextlib.suppress(OSError):
            archives[name] = CodeArchive(snapshot, archive_path(record, snapshot).read_bytes())
    return archives


def archive_path(record: Path, snapshot: CodeSnapshot) -> Path:
    """Return the path of the archive of a snapshot."""
    return record / CODE_DIRECTORY / f"{snapshot.short_digest}{ARCHIVE_SUFFIX}"
