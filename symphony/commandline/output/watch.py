"""A table that is shown again and again: in place on a terminal, and in a pipe whenever it has changed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from symphony.commandline.exit_codes import INTERRUPTED
from symphony.commandline.output.terminal import is_terminal, terminal_height

INTERVAL_SECONDS = 2.0
_UP_AND_CLEAR = "\x1b[{}F\x1b[J"


def watch_lines(look: Callable[[], Sequence[str]], every: float = INTERVAL_SECONDS) -> int:
    """Show the lines that ``look`` gives until Ctrl-C, looking again after ``every`` seconds; the exit code."""
    in_place = is_terminal(sys.stdout)
    shown: list[str] = []
    try:
        while True:
            lines = _fitting(look(), terminal_height(sys.stdout))
            if lines != shown:
                if shown:
                    print(_UP_AND_CLEAR.format(len(shown)) if in_place else "\n", end="")
                print("\n".join(lines), flush=True)
                shown = lines
            time.sleep(every)
    except KeyboardInterrupt:  # the usual way to end this
        return INTERRUPTED


def _fitting(lines: Sequence[str], room: int | None) -> list[str]:
    """What can be shown in place: no more lines than the terminal has."""
    if room is None or len(lines) < room:
        return list(lines)
    kept = max(1, room - 2)
    return [*lines[:kept], f"and {len(lines) - kept} more"]
