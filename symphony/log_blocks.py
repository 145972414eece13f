"""Blocks of consecutive log lines, and their conversion to single lines and back.

Large logs are read, merged and printed in blocks, because a Python object for each line costs much
more than reading the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from symphony.status import LogLine


class LogBlock(NamedTuple):
    r"""Consecutive lines of one process, each of which ends with ``\n``.

    The last line has no ``\n`` if the process has not written its end yet. The next block of the
    process then continues the line. While output is followed, a progress bar arrives in this way.
    ``at`` is the time at which the lines were written, in seconds since the epoch, or None if it is
    unknown. If the lines were written at different times, it is the time of the last one.
    """

    process: str
    text: str
    at: float | None = None


class LineAssembler:
    r"""A buffer that keeps the beginning of each process's last line until its ``\n`` arrives."""

    def __init__(self) -> None:
        self._begun: dict[str, LogBlock] = {}

    def add(self, block: LogBlock) -> LogBlock | None:
        """Return a block with the lines that this block completes, or None if there are none."""
        before = self._begun.pop(block.process, None)
        if before is None and block.text.endswith("\n"):
            return block
        text = block.text if before is None else before.text + block.text
        end = text.rfind("\n") + 1
        if text[end:]:
            self._begun[block.process] = LogBlock(block.process, text[end:], block.at)
        return LogBlock(block.process, text[:end], block.at) if end else None

    def rest(self) -> Iterator[LogBlock]:
        r"""Yield the lines whose ends are missing, with a ``\n``."""
        for block in self._begun.values():
            yield LogBlock(block.process, f"{block.text}\n", block.at)
        self._begun.clear()


def to_blocks(lines: Iterable[LogLine]) -> Iterator[LogBlock]:
    """Convert each line to a block."""
    for line in lines:
        yield LogBlock(line.process, f"{line.text}\n", line.at)


def to_lines(blocks: Iterable[LogBlock]) -> Iterator[LogLine]:
    """Split blocks into lines. A line is yielded when its end has been written.

    The lines whose ends are missing come last.
    """
    assembler = LineAssembler()
    for block in blocks:
        complete = assembler.add(block)
        if complete is not None:
            yield from split_block(complete)
    for block in assembler.rest():
        yield from split_block(block)


def split_block(block: LogBlock) -> Iterator[LogLine]:
    """Yield the lines of a block that contains only complete lines."""
    process, at = block.process, block.at
    for text in block.text[:-1].split("\n"):
        yield LogLine(process=process, text=text, at=at)
