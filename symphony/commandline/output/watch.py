"""Output that is updated repeatedly: in place on a terminal, and after each change in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from symphony.commandline.exit_codes import INTERRUPTED
from symphony.commandline.output.terminal import is_terminal, terminal_height

WATCH_INTERVAL_SECONDS = 2.0
_UP_AND_CLEAR = "\x1b[{}F\x1b[J"


def watch_lines(
    get_lines: Callable[[], Sequence[str]], interval: float = WATCH_INTERVAL_SECONDS
) -> int:
    """Show the lines from ``get_lines`` until Ctrl-C, and return the exit code.

    After each ``interval`` seconds, ``get_lines`` is called again.
    """
    in_place = is_terminal(sys.stdout)
    shown: list[str] = []
    try:
        while True:
            lines = _first_lines(get_lines(), terminal_height(sys.stdout))
            if lines != shown:
                if shown:
                    print(_UP_AND_CLEAR.format(len(shown)) if in_place else "\n", end="")
                print("\n".join(lines), flush=True)
                shown = lines
            time.sleep(interval)
    except KeyboardInterrupt:
        return INTERRUPTED


def _first_lines(lines: Sequence[str], height: int | None) -> list[str]:
    """Return as many lines as fit on the terminal, so that the lines can be replaced in place."""
    if height is None or len(lines) < height:
        return list(lines)
    kept = max(1, height - 2)
    return [*lines[:kept], f"and {len(lines) - kept} more"]
