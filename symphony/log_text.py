"""Text of logs that keeps bytes which are not valid UTF-8.

A byte that is not part of a UTF-8 sequence becomes a surrogate escape when a log is decoded; see
`os.fsdecode`. `to_bytes` restores the byte, and `printable` replaces it. Text that leaves symphony
is either encoded with `to_bytes` or printable, because surrogate escapes cannot be printed.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import TypeVar

from symphony.log_blocks import LogBlock
from symphony.status import LogLine

_ENCODING, _ERRORS = "utf-8", "surrogateescape"

Item = TypeVar("Item")


def decode(data: bytes | bytearray) -> str:
    """Return the text of a part of a log. Parts that are decoded separately can be joined."""
    return data.decode(_ENCODING, _ERRORS)


def decoder() -> codecs.IncrementalDecoder:
    """Return a decoder for a log that is read in blocks, which can end within a character."""
    return codecs.getincrementaldecoder(_ENCODING)(_ERRORS)


def to_bytes(text: str) -> bytes:
    """Return the bytes of which ``text`` was decoded."""
    return text.encode(_ENCODING, _ERRORS)


def printable(text: str) -> str:
    r"""Return the text with U+FFFD in place of bytes that are not valid UTF-8.

    >>> printable("caf\udce9") == "caf\ufffd"
    True
    """
    if text.isascii():
        return text
    try:
        text.encode(_ENCODING)
    except UnicodeEncodeError:
        return to_bytes(text).decode(_ENCODING, "replace")
    return text


def printable_items(items: Iterable[Item]) -> Iterator[Item]:
    """Yield blocks, lines and events with printable texts."""
    for item in items:
        if isinstance(item, LogBlock | LogLine) and not item.text.isascii():
            yield item._replace(text=printable(item.text))  # type: ignore[misc]  # the same type
        else:
            yield item
