"""Whether what a command printed is what a page shows of it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence


def fits(expected: Sequence[str], printed: str) -> bool:
    """Whether ``printed`` is these lines; ``...`` is any text in a line, and any lines, or none, on a line of its own.

    Blanks at the ends of lines and empty lines at the end do not count.
    """
    return (
        re.fullmatch(
            "".join(map(_pattern, expected)), "".join(f"{line}\n" for line in lines(printed))
        )
        is not None
    )


def lines(printed: str) -> list[str]:
    """The lines of an output as they are compared."""
    return [line.rstrip() for line in printed.rstrip().splitlines()]


def difference(expected: Sequence[str], printed: str) -> str:
    """Both, as a unified diff without its head: ``-`` is what the page shows, ``+`` what came."""
    got = lines(printed)
    # A line that fits is written as it came, so that only what differs is marked.
    shown = [
        next((line for line in got if fits([want], line)), want) if want != "..." else want
        for want in expected
    ]
    diff = difflib.unified_diff(shown, got, "the page", "what came", lineterm="")
    return "\n".join(list(diff)[3:])


def _pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:[^\n]*\n)*?"
    return r"[^\n]*".join(map(re.escape, line.split("..."))) + r"\n"
