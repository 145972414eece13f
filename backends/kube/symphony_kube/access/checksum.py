"""The checksum that the POSIX program ``cksum`` prints, which every container with a shell has.

It detects lost and damaged data at a small fraction of the cost of a cryptographic digest. It does
not detect deliberate changes, which TLS prevents.
"""

from __future__ import annotations

import zlib

# The algorithm of POSIX processes the bits of a byte in the opposite order to that of zlib.
_REVERSED_BITS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
# zlib begins and ends with an inversion. With this value, its inner state begins with zero.
_START = 0xFFFFFFFF


class Checksum:
    """A checksum of data that arrives in pieces.

    >>> checksum = Checksum()
    >>> checksum.update(b"symphony")
    >>> checksum.text()
    '3796426564 8'
    """

    def __init__(self) -> None:
        self._state = _START
        self._length = 0

    def update(self, data: bytes | bytearray) -> None:
        """Add a piece of the data."""
        self._state = zlib.crc32(data.translate(_REVERSED_BITS), self._state)
        self._length += len(data)

    def text(self) -> str:
        """Return the checksum and the length of the data, as cksum prints them."""
        length = self._length.to_bytes((self._length.bit_length() + 7) // 8, "little")
        state = zlib.crc32(length.translate(_REVERSED_BITS), self._state)
        return f"{int(f'{state:032b}'[::-1], 2)} {self._length}"
