"""Snapshots of code: their digests and their archives.

The archive is a tar archive that gzip has compressed. The digest is that of the tar archive, so it
depends only on the names, modes and contents of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

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

# Called with what was done, such as ``packed``, with the number of bytes, and with their total.
CodeProgress = Callable[[str, int, int], None]


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
