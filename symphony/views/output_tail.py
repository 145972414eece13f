"""The last lines of the output of some processes."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple

from symphony.events import ExperimentEvent
from symphony.log_blocks import LogBlock

MAX_LINES = 20_000
MAX_CHARACTERS = 16 * 1024 * 1024
# A longer line is cut, because a view draws whole lines.
MAX_LINE_CHARACTERS = 16 * 1024
_CUT_MARK = "…"


class OutputLine(NamedTuple):
    """A line of output without its newline, or the text of an event.

    ``text`` is unchanged and can contain any characters. ``process`` is None for an event of the
    whole experiment. ``at`` is in seconds since the epoch, or None if it is unknown.
    """

    process: str | None
    text: str
    at: float | None = None
    is_event: bool = False


class OutputTail:
    """The last lines of the output of some processes, in the order in which they were added.

    The lines are numbered from 0. The tail contains the lines with the numbers `first` to
    ``end - 1``. The number of lines and of characters is limited: the oldest lines are removed.
    `incomplete` contains the lines whose ends have not been written yet, such as progress bars.
    """

    def __init__(self, *, max_lines: int = MAX_LINES, max_characters: int = MAX_CHARACTERS) -> None:
        self._lines: deque[OutputLine] = deque()
        # The beginning of the last line of each process, until its end is written.
        self._begun: dict[str, LogBlock] = {}
        self._max_lines = max_lines
        self._max_characters = max_characters
        self._characters = 0
        self._first = 0

    @property
    def first(self) -> int:
        """The number of the oldest line that the tail contains."""
        return self._first

    @property
    def end(self) -> int:
        """The number of the next line."""
        return self._first + len(self._lines)

    def add(self, item: LogBlock | ExperimentEvent) -> None:
        """Add the lines that a block completes, or an event."""
        if isinstance(item, ExperimentEvent):
            self._append(OutputLine(item.process, item.text, item.at, is_event=True))
        else:
            self._add_block(item)
        self._remove_oldest()

    def _add_block(self, block: LogBlock) -> None:
        before = self._begun.pop(block.process, None)
        text = block.text if before is None else before.text + block.text
        end = text.rfind("\n") + 1
        if end:
            self._add_lines(LogBlock(block.process, text[:end], block.at))
        if end < len(text):
            rest = _shortened(text[end:])
            self._begun[block.process] = LogBlock(block.process, rest, block.at)

    def add_rest(self) -> None:
        """Add the lines whose ends are missing, because no more output follows."""
        for block in self._begun.values():
            self._add_lines(LogBlock(block.process, f"{block.text}\n", block.at))
        self._begun.clear()
        self._remove_oldest()

    @property
    def incomplete(self) -> list[OutputLine]:
        """The lines whose ends have not been written yet, at most one of each process."""
        return [OutputLine(block.process, block.text, block.at) for block in self._begun.values()]

    def lines(self, start: int, stop: int) -> list[OutputLine]:
        """Return the lines with the numbers ``start`` to ``stop - 1`` that the tail contains."""
        begin = max(0, start - self._first)
        end = max(begin, stop - self._first)
        return list(islice(self._lines, begin, end))

    def _add_lines(self, block: LogBlock) -> None:
        texts = block.text[:-1].split("\n")
        # Most of a very large block would be removed again.
        skipped = max(0, len(texts) - self._max_lines)
        if skipped:
            self._first += skipped + len(self._lines)
            self._lines.clear()
            self._characters = 0
        for text in texts[skipped:]:
            self._append(OutputLine(block.process, text, block.at))

    def _append(self, line: OutputLine) -> None:
        if len(line.text) > MAX_LINE_CHARACTERS:
            line = line._replace(text=_shortened(line.text))
        self._lines.append(line)
        self._characters += len(line.text)

    def _remove_oldest(self) -> None:
        while len(self._lines) > self._max_lines or self._characters > self._max_characters:
            removed = self._lines.popleft()
            self._characters -= len(removed.text)
            self._first += 1


def _shortened(text: str) -> str:
    """Return a line with at most about `MAX_LINE_CHARACTERS` characters.

    A progress bar is a line with many versions, which end with carriage returns. Its last version
    remains.
    """
    if len(text) <= MAX_LINE_CHARACTERS:
        return text
    versions = text.rstrip("\r")
    last = versions.rpartition("\r")[2]
    if len(last) > MAX_LINE_CHARACTERS:
        last = last[:MAX_LINE_CHARACTERS] + _CUT_MARK
    return last + text[len(versions) :]
