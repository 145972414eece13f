"""The difference between two snapshots: an archive that turns the files of one into the other."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator, Mapping

from symphony.code import tar
from symphony.code.pack import compressed, decompress
from symphony.code.snapshot import CodeArchive

# The members of the archive: the directory with the files, and the list of removed paths.
CODE, REMOVED = "code", "removed"
_COMPRESSION_LEVEL = 6
_TIMES = 10**8


def difference(old: CodeArchive, new: CodeArchive) -> bytes | None:
    """Return the compressed archive, or None if it cannot contain a path.

    The paths in the list are removed before the files are extracted, so that a file can replace a
    directory and the other way round. The archive has the same effect if the files are those of
    ``new`` already. A path in the list cannot contain a line break.
    """
    before, after = _Files(old), _Files(new)
    removed = [name for name, kind in before.kinds.items() if after.kinds.get(name) != kind]
    if any(b"\n" in name for name in removed):
        return None
    # Python uses a compiled module if the time and the size of the source are the same, so the
    # time depends on the code.
    time = tar.TIME + int(new.snapshot.digest[:8], 16) % _TIMES
    listed = b"".join(name + b"\n" for name in removed)
    parts = [tar.member(REMOVED.encode(), tar.FILE, 0o600, listed)]
    parts += after.members_unlike(before, time)
    return compressed(b"".join([*parts, tar.END]), _COMPRESSION_LEVEL)


class _Files:
    """The members of the archive of a snapshot.

    ``kinds`` maps the names to words for a directory, a file or a link.
    """

    def __init__(self, archive: CodeArchive) -> None:
        self._content = decompress(archive.data)
        with tarfile.open(fileobj=io.BytesIO(self._content)) as opened:
            members = {os.fsencode(member.name): member for member in opened.getmembers()}
        self._members: Mapping[bytes, tarfile.TarInfo] = members
        self.kinds = {name: member.type for name, member in members.items()}

    def members_unlike(self, other: _Files, time: int) -> Iterator[bytes]:
        """Yield the members that another snapshot does not contain, with another name."""
        prefix = f"{CODE}/".encode()
        for name in self._members:
            values = self._values(name)
            if name in other._members and other._values(name) == values:
                continue
            kind, mode, content, link = values
            suffix = b"/" if kind == tar.DIRECTORY else b""
            yield tar.member(prefix + name + suffix, kind, mode, content, link, time)

    def _values(self, name: bytes) -> tuple[bytes, int, bytes, bytes]:
        """Return the kind, the mode, the content and the target of a member."""
        member = self._members[name]
        content = b""
        if member.isreg():
            start = member.offset_data
            content = self._content[start : start + member.size]
        return member.type, member.mode, content, os.fsencode(member.linkname)
