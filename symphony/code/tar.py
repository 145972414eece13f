"""Writing tar archives that depend only on the names, modes and contents of the files.

Python's tarfile needs several times as long for each file. The format is that of GNU tar, which
BusyBox reads too. Names are bytes of any encoding.
"""

from __future__ import annotations

import functools

BLOCK_BYTES = 512
FILE, LINK, DIRECTORY = b"0", b"2", b"5"
# The end of an archive: two empty blocks.
END = bytes(2 * BLOCK_BYTES)
_LONG_NAME, _LONG_LINK = b"L", b"K"
_MAX_NAME_BYTES = 100
# A header consists of 148 bytes, the checksum, and the rest.
_CHECKSUM_BYTES = 8
_END_BYTES = BLOCK_BYTES - 148 - _CHECKSUM_BYTES
# All files of a snapshot have the same time. Some programs do not accept a time before 1980.
TIME = 1_000_000_000
_SPECIAL_NAME = b"././@LongLink"


def member(
    name: bytes,
    kind: bytes,
    mode: int,
    content: bytes = b"",
    link: bytes = b"",
    time: int = TIME,
) -> bytes:
    """Return a member of an archive: its header and its content, which fills whole blocks."""
    size = len(content)
    parts = [_header(name, kind, mode, size, link, time), content, bytes(-size % BLOCK_BYTES)]
    for special, value in ((_LONG_NAME, name), (_LONG_LINK, link)):
        if len(value) > _MAX_NAME_BYTES:
            parts.insert(0, member(_SPECIAL_NAME, special, 0, value + b"\0"))
    return b"".join(parts)


def _header(name: bytes, kind: bytes, mode: int, size: int, link: bytes, time: int) -> bytes:
    start = b"%b%07o\0%07o\0%07o\0%011o\0%011o\0" % (
        name[:_MAX_NAME_BYTES].ljust(_MAX_NAME_BYTES, b"\0"),
        mode,
        0,
        0,
        size,
        time,
    )
    end, end_sum = _header_end(kind, link)
    return b"%b%06o\0 %b" % (start, sum(start) + end_sum, end)


@functools.lru_cache(maxsize=16)
def _header_end(kind: bytes, link: bytes) -> tuple[bytes, int]:
    """Return the part of a header after its checksum, and what it adds to the checksum.

    The checksum itself counts as spaces.
    """
    end = kind + link[:_MAX_NAME_BYTES].ljust(_MAX_NAME_BYTES, b"\0") + b"ustar  \0"
    end = end.ljust(_END_BYTES, b"\0")
    return end, sum(end) + _CHECKSUM_BYTES * ord(" ")
