"""The helper process of `symphony.line_search`: ``python -I -S helper.py``.

Its standard input is a socket that receives requests and sends an answer to each of them. The
process exits when the other end of the socket is closed. The program is started by path and without
``site``, so that it starts quickly.
"""

from __future__ import annotations

import os
import re
import signal
import struct

# The lengths in bytes of the regular expression and of the text, which follow the header.
REQUEST_HEADER = struct.Struct("!II")
# Whether a line matches, the number of bytes that were searched, and whether the search of a line
# was abandoned.
ANSWER = struct.Struct("!?I?")

# A longer line is searched in parts. Even with a common regular expression such as ".*ready.*", the
# time can grow with the square of the length of a line.
LONGEST_LINE_BYTES = 8192
# The limit of one request. It is CPU time, so that the result does not depend on how busy the
# machine is.
CPU_LIMIT_SECONDS = 0.25


class _LimitReachedError(Exception):
    """The search has used `CPU_LIMIT_SECONDS`."""


class LineSearcher:
    """A function that searches the lines of a text, with a time limit.

    The signal of a timer interrupts ``re`` during a search. Create only one instance, in the main
    thread.
    """

    def __init__(self) -> None:
        self._is_searching = False
        signal.signal(signal.SIGVTALRM, self._on_limit)

    def select(
        self, pattern: re.Pattern[str], lines: list[str], searched: list[str]
    ) -> list[str] | None:
        """Return the lines whose text at the same position in ``searched`` matches.

        Lines are not searched in parts. Return None if the time limit is reached.
        """
        search = pattern.search
        try:
            self._is_searching = True
            signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_SECONDS)
            found = [line for line, text in zip(lines, searched, strict=True) if search(text)]
            self._is_searching = False
        except _LimitReachedError:
            self._is_searching = False
            return None
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return found

    def __call__(
        self, pattern: re.Pattern[str], text: bytes, first: int = 0
    ) -> tuple[bool, int, bool]:
        """Return the values of an `ANSWER` for ``text`` from the position ``first``.

        The second value is the position up to which ``text`` was searched.

        If the first line alone reaches the time limit, its search is abandoned. Any other line at
        which the time limit is reached does not count as searched, so the next request begins with
        it.
        """
        search, size = pattern.search, len(text)
        is_found = is_abandoned = False
        start = next_start = first
        try:
            self._is_searching = True
            signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_SECONDS)
            while start < size and not is_found:
                longest = start + LONGEST_LINE_BYTES
                end = text.find(b"\n", start, longest)
                next_start = end + 1
                if end < 0:
                    end = next_start = min(longest, size)
                is_found = search(text[start:end].decode(errors="replace")) is not None
                start = next_start
            self._is_searching = False
        except _LimitReachedError:
            self._is_searching = False
            if start == first:
                is_abandoned = True
                start = next_start
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return is_found, start, is_abandoned

    def _on_limit(self, *_: object) -> None:
        # The signal can also arrive after the search.
        if self._is_searching:
            raise _LimitReachedError


def main() -> None:
    """Answer requests until the other end of the socket is closed."""
    search = LineSearcher()
    with os.fdopen(0, "rb", closefd=False) as requests:
        while True:
            header = requests.read(REQUEST_HEADER.size)
            if len(header) < REQUEST_HEADER.size:
                return
            pattern_bytes, text_bytes = REQUEST_HEADER.unpack(header)
            pattern = requests.read(pattern_bytes).decode(errors="surrogatepass")
            text = requests.read(text_bytes)
            if len(text) < text_bytes:
                return
            answer = ANSWER.pack(*search(re.compile(pattern), text))
            os.write(0, answer)


if __name__ == "__main__":
    main()
