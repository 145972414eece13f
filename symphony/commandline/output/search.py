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
        text = log_text.to_bytes(block.text)
        found = b"".join(self._matching_lines(text))
        if found:
            yield LogBlock(block.process, log_text.decode(found), block.at)

    def _matching_lines(self, text: bytes) -> Iterator[bytes]:
        """Yield the lines of ``text`` that match, with their newlines."""
        while text:
            is_found, searched_bytes, is_abandoned = self._searcher(self._pattern, text)
            if is_abandoned:
                self.problem = (
                    "--grep: some lines are not shown, because it takes too long to search them "
                    f"for {self._pattern.pattern!r}; simplify the regular expression"
                )
            if is_found:
                # A long line is searched in parts.
                start = text.rfind(b"\n", 0, searched_bytes - 1) + 1
                end = text.find(b"\n", searched_bytes - 1) + 1
                yield text[start:end]
                searched_bytes = end
            text = text[searched_bytes:]
