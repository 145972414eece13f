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

    The last line has no ``\n`` if its end has not been read yet. The next block of the process then
    continues the line. A very long line arrives in this way, and a progress bar while output is
    followed.
    ``at`` is the time at which the lines were written, in seconds since the epoch, or None if it is
    unknown. If the lines were written at different times, it is the time of the last one.
    """

    process: str
    text: str
    at: float | None = None


class LineAssembler:
    r"""A buffer that keeps the beginning of each process's last line until its ``\n`` arrives.

    A beginning that is longer than `MAX_LINE_CHARACTERS` becomes a line.
    """

    # A progress bar is one line, to which a program can write for days.
    MAX_LINE_CHARACTERS = 1 << 24

    def __init__(self) -> None:
        self._begun: dict[str, _BegunLine] = {}

    def add(self, block: LogBlock) -> LogBlock | None:
        """Return a block with the lines that this block completes, or None if there are none."""
        begun = self._begun.pop(block.process, None)
        if begun is None and block.text.endswith("\n"):
            return block
        end = block.text.rfind("\n") + 1
        complete = None
        if end:
            beginning = "" if begun is None else begun.text()
            complete = block._replace(text=beginning + block.text[:end])
            begun = None
        begun = begun or _BegunLine()
        begun.add(block.text[end:], block.at)
        if begun.size > self.MAX_LINE_CHARACTERS and complete is None:
            complete = block._replace(text=f"{begun.text()}\n")
            begun = _BegunLine()
        if begun.size:
            self._begun[block.process] = begun
        return complete

    def rest(self) -> Iterator[LogBlock]:
        r"""Yield the lines whose ends are missing, with a ``\n``."""
        for process, begun in self._begun.items():
            yield LogBlock(process, f"{begun.text()}\n", begun.at)
        self._begun.clear()


class _BegunLine:
    """The beginning of a line. Its parts are joined once, because there can be many small ones."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.size = 0
        self.at: float | None = None

    def add(self, part: str, at: float | None) -> None:
        self._parts.append(part)
        self.size += len(part)
        self.at = at

    def text(self) -> str:
        return "".join(self._parts)


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
