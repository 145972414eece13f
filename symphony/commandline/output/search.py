"""Searching output for a regular expression: ``logs --grep``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from symphony import log_text
from symphony.commandline.exit_codes import UsageError
from symphony.events import ExperimentEvent
from symphony.line_search.helper import LineSearcher
from symphony.log_blocks import LineAssembler, LogBlock
from symphony.model.settings.validators import compiled


class OutputSearch:
    """A search of output for the lines that contain a match for a regular expression.

    Some regular expressions need exponential time on some lines. The search of a line that takes
    too long is abandoned, and `problem` then contains a message. Create only one instance, in the
    main thread. Raises `UsageError` if ``pattern`` is not a regular expression.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._pattern = compiled(pattern)
        except re.error as exc:
            raise UsageError(f"--grep: {pattern!r} is not a regular expression: {exc}") from exc
        self._searcher = LineSearcher()
        self._assembler = LineAssembler()
        self.problem = ""

    def matching(
        self, items: Iterable[LogBlock | ExperimentEvent]
    ) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield the events, and blocks that contain only the lines that match."""
        for item in items:
            if isinstance(item, ExperimentEvent):
                yield item
                continue
            block = self._assembler.add(item)
            if block is not None:
                yield from self._matching_block(block)
        for block in self._assembler.rest():
            yield from self._matching_block(block)

    def _matching_block(self, block: LogBlock) -> Iterator[LogBlock]:
        lines = block.text[:-1].split("\n")
        printable = log_text.printable(block.text)
        searched = lines if printable is block.text else printable[:-1].split("\n")
        found = self._searcher.select(self._pattern, lines, searched)
        if found is None:
            slowly_found = b"".join(self._matching_lines(log_text.to_bytes(block.text)))
            found = log_text.decode(slowly_found).split("\n")[:-1]
        if found:
            yield LogBlock(block.process, "\n".join([*found, ""]), block.at)

    def _matching_lines(self, text: bytes) -> Iterator[bytes]:
        """Yield the lines of ``text`` that match, with their newlines.

        A line that takes too long does not prevent the search of the others.
        """
        position = 0
        while position < len(text):
            is_found, position, is_abandoned = self._searcher(self._pattern, text, position)
            if is_abandoned:
                self.problem = (
                    "--grep: some lines are not shown, because it takes too long to search them "
                    f"for {self._pattern.pattern!r}; simplify the regular expression"
                )
            if is_found:
                # A long line is searched in parts.
                start = text.rfind(b"\n", 0, position - 1) + 1
                end = text.find(b"\n", position - 1) + 1
                yield text[start:end]
                position = end
