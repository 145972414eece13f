"""Tables that are updated repeatedly.

On a terminal, it is replaced in place. In a pipe, it is printed again after each change.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from symphony.commandline.exit_codes import INTERRUPTED
from symphony.commandline.output.terminal import (
    is_terminal,
    print_coloured,
    print_note,
    terminal_height,
    terminal_width,
)
from symphony.commandline.output.views import count_words
from symphony.status import STATES_BY_ATTENTION

WATCH_INTERVAL_SECONDS = 2.0
_UP_AND_CLEAR = "\x1b[{}F\x1b[J"
# The title, the column titles, the line that counts the omitted rows, and the line of the cursor.
_LINES_AROUND_ROWS = 4


class WatchedTable(NamedTuple):
    """A table at one point in time.

    ``states`` contains the state of each row. ``title`` is shown above the table if not all rows
    fit on the terminal. ``format_rows`` returns the lines of a table that contains only the rows
    with the given indices; the first line contains the column titles. ``outage`` is a message if
    the table can be out of date.
    """

    title: str
    states: Sequence[str]
    format_rows: Callable[[Iterable[int]], list[str]]
    outage: str = ""


def watch_table(
    get_table: Callable[[], WatchedTable], interval: float = WATCH_INTERVAL_SECONDS
) -> int:
    """Show the table from ``get_table`` until the user presses Ctrl-C, and return the exit code.

    ``get_table`` is called again every ``interval`` seconds. An outage is shown below the table on
    a terminal, and otherwise on standard error.
    """
    in_place = is_terminal(sys.stdout)
    shown: list[str] = []
    outage = ""
    try:
        while True:
            table = get_table()
            lines = fit_table(table, terminal_height(sys.stdout))
            if in_place and table.outage:
                # A longer line would take several lines of the terminal.
                columns = terminal_width(sys.stdout) or len(table.outage)
                lines.append(table.outage[:columns])
            elif table.outage and table.outage != outage:
                print_note(table.outage)
            outage = table.outage
            if lines != shown:
                if shown:
                    sys.stdout.write(_UP_AND_CLEAR.format(len(shown)) if in_place else "\n")
                print_coloured(lines, flush=True)
                shown = lines
            time.sleep(interval)
    except KeyboardInterrupt:
        return INTERRUPTED


def fit_table(table: WatchedTable, height: int | None) -> list[str]:
    """Return the lines of a table that fit on a terminal with ``height`` lines.

    If not all rows fit, the result contains the table's title, the rows that need attention first,
    and a last line that counts the omitted rows by state. All rows fit if ``height`` is None.
    """
    rows = range(len(table.states))
    if height is not None and table.outage:
        height -= 1
    # One line of the terminal remains for the cursor.
    lines_for_rows_and_titles = len(rows) + 1
    if height is None or lines_for_rows_and_titles < height:
        return table.format_rows(rows)
    by_attention = sorted(rows, key=lambda row: _attention(table.states[row]))
    number_kept = max(1, height - _LINES_AROUND_ROWS)
    kept, omitted = by_attention[:number_kept], by_attention[number_kept:]
    counts = count_words(table.states[row] for row in omitted)
    last = f"and {len(omitted)} more: {', '.join(counts)}"
    return [table.title, *table.format_rows(kept), last]


def _attention(state: str) -> int:
    """Return a sort key: states that need attention first."""
    return STATES_BY_ATTENTION.index(state) if state in STATES_BY_ATTENTION else 0
