"""Messages of a client of a terminal; see `symphony.supervised.supervisor.terminal_server`."""

from __future__ import annotations

import struct

# The kind of a message, and the length of its content.
HEADER = struct.Struct("!cI")
INPUT, SIZE = b"i", b"s"
# The content of a message of the kind `SIZE`: the rows and columns.
SIZE_FORMAT = struct.Struct("!HH")
MAX_MESSAGE_BYTES = 1 << 16


def encode_message(kind: bytes, content: bytes) -> bytes:
    """Return a message."""
    return HEADER.pack(kind, len(content)) + content
