"""Writing tar archives that depend only on the names, modes and contents of the files.

Python's tarfile needs several times as long for each file. The format is that of GNU tar, which
BusyBox reads too. Names are bytes of any encoding.
"""

from __future__ import annotations

BLOCK_BYTES = 512
FILE, LINK, DIRECTORY = b"0", b"2", b"5"
# The end of an archive: two empty blocks.
END = bytes(2 * BLOCK_BYTES)
_LONG_NAME, _LONG_LINK = b"L", b"K"
_MAX_NAME_BYTES = 100
# All files have the same time. Some programs do not accept a time before 1980.
_TIME = 1_000_000_000
_SPECIAL_NAME = b"././@LongLink"


def member(name: bytes, kind: bytes, mode: int, content: bytes = b"", link: bytes = b"") -> bytes:
    """Return a member of an archive: its header and its content, which fills whole blocks."""
    parts = []
    for special, value in ((_LONG_LINK, link), (_LONG_NAME, name)):
        if len(value) > _MAX_NAME_BYTES:
            text = value + b"\0"
            parts += [_header(_SPECIAL_NAME, special, 0, len(text)), text, _padding(len(text))]
    size = len(content)
    parts += [_header(name, kind, mode, size, link), content, _padding(size)]
    return b"".join(parts)


def _header(name: bytes, kind: bytes, mode: int, size: int, link: bytes = b"") -> bytes:
    start = b"%-100b%07o\0%07o\0%07o\0%011o\0%011o\0" % (
        name[:_MAX_NAME_BYTES].ljust(_MAX_NAME_BYTES, b"\0"),
        mode,
        0,
        0,
        size,
        _TIME,
    )
    end = kind + link[:_MAX_NAME_BYTES].ljust(_MAX_NAME_BYTES, b"\0") + b"ustar  \0"
    end = end.ljust(BLOCK_BYTES - len(start) - 8, b"\0")
    checksum = sum(start) + sum(end) + 8 * ord(" ")
    return b"%b%06o\0 %b" % (start, checksum, end)


def _padding(size: int) -> bytes:
    return bytes(-size % BLOCK_BYTES)
