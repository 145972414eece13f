"""Output that is updated repeatedly.

On a terminal, it is replaced in place. In a pipe, it is printed again after each change.
"""

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
    """Show the lines from ``get_lines`` until the user presses Ctrl-C, and return the exit code.

    ``get_lines`` is called again every ``interval`` seconds.
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
    """Return as many lines as fit on the terminal, so that they can be replaced in place.

    If lines are omitted, the last line states how many.
    """
    if height is None or len(lines) < height:
        return list(lines)
    kept = max(1, height - 2)
    return [*lines[:kept], f"and {len(lines) - kept} more"]
