"""Snapshots of code: their digests and their archives.

The archive is a tar archive that gzip has compressed. The digest is that of the tar archive, so it
depends only on the names, modes and contents of the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.model.code import CodeSource, code_source

if TYPE_CHECKING:
    from symphony.model import Experiment

SHORT_DIGEST_LENGTH = 12
ARCHIVE_SUFFIX = ".tar.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSnapshot:
    """The description of a snapshot.

    ``source`` is the absolute path of the directory, or of the archive of an earlier snapshot.
    ``digest`` identifies the contents. ``files`` is the number of files, and ``size`` and
    ``packed_size`` are in bytes.
    """

    source: str
    digest: str
    files: int
    size: int
    packed_size: int

    @property
    def short_digest(self) -> str:
        """The first characters of the digest."""
        return self.digest[:SHORT_DIGEST_LENGTH]

    def __str__(self) -> str:
        count = f"{self.files} file" if self.files == 1 else f"{self.files} files"
        sizes = f"{size_text(self.size)}, {size_text(self.packed_size)} compressed"
        return f"{self.short_digest} ({count}, {sizes})"

    def to_dict(self) -> dict[str, Any]:
        """Return the description as a dictionary of JSON-serializable values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CodeSnapshot:
        """Create a description from the output of `to_dict`."""
        return cls(**data)


@dataclass(frozen=True, slots=True)
class CodeArchive:
    """A snapshot and its compressed archive."""

    snapshot: CodeSnapshot
    data: bytes


# Maps the names of processes to the archives of their code.
CodeArchives = Mapping[str, CodeArchive]


def take_snapshots(experiment: Experiment) -> dict[str, CodeArchive]:
    """Return the archives of the code of all processes that have code, by their names.

    The code is that of `Experiment.recorded_code`, or else the present one. Raises `SpecError` if a
    directory does not exist or contains too much, and `BackendError` if a file cannot be read.
    """
    base = experiment.base_dir or Path.cwd()
    packed: dict[CodeSource, CodeArchive] = {}
    result = {}
    for process in experiment.list_all_processes():
        source = code_source(process)
        if source is None:
            continue
        if process.name in experiment.recorded_code:
            result[process.name] = experiment.recorded_code[process.name]
            continue
        if source not in packed:
            # Most experiments have no code.
            from symphony.code.pack import pack

            packed[source] = pack(base / source.path, source)
        result[process.name] = packed[source]
    return result


def size_text(size: int) -> str:
    """Return a number of bytes as text.

    >>> size_text(500), size_text(300_000), size_text(5_000_000)
    ('500 B', '293.0 KiB', '4.8 MiB')
    """
    if size < 2**10:
        return f"{size} B"
    if size < 2**20:
        return f"{size / 2**10:.1f} KiB"
    return f"{size / 2**20:.1f} MiB"
