"""The signs and colours of states, and the curves of values over time. All functions are pure.

Each state has a sign of its own, so that states can be told apart without colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from symphony.drawing import text_tree

# The colours are those of the terminal, so that they suit its background.
STATE_STYLES: Mapping[str, str] = {
    "pending": "yellow",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "unknown": "magenta",
    "stopping": "yellow",
    "stopped": "",
}
# Red is left to failures. Adjacent colours are easy to distinguish.
NAME_STYLES = (
    "cyan",
    "yellow",
    "green",
    "magenta",
    "blue",
    "bright_cyan",
    "bright_yellow",
    "bright_green",
    "bright_magenta",
    "bright_blue",
)


class Signs(NamedTuple):
    """The characters with which the screens are drawn.

    ``states`` maps states to signs, ``mark`` precedes a process that the user has marked, and
    ``levels`` are the columns of a curve, from the lowest to the highest.
    """

    states: Mapping[str, str]
    mark: str
    levels: str
    tree: text_tree.Signs


UNICODE = Signs(
    states={
        "pending": "○",
        "running": "●",
        "succeeded": "✓",
        "failed": "✗",
        "unknown": "?",
        "stopping": "◐",
        "stopped": "■",
    },
    mark="▶",
    levels="▁▂▃▄▅▆▇█",
    tree=text_tree.UNICODE,
)
ASCII = Signs(
    states={
        "pending": ".",
        "running": "*",
        "succeeded": "+",
        "failed": "!",
        "unknown": "?",
        "stopping": "~",
        "stopped": "-",
    },
    mark=">",
    levels="_.-=+*%#",
    tree=text_tree.ASCII,
)


def curve(values: Sequence[float], width: int, levels: str) -> str:
    """Draw values as a line of columns, the newest at the right. Zero is the lowest level.

    If there are more values than columns, a column shows the highest of its values.

    >>> curve([0, 1, 2, 3], 4, "_.-=")
    '_.-='
    """
    if not values or width < 1:
        return ""
    columns = min(width, len(values))
    highest = max(values)
    peaks = []
    for column in range(columns):
        start = column * len(values) // columns
        stop = (column + 1) * len(values) // columns
        peaks.append(max(values[start:stop]))
    if highest <= 0:
        return levels[0] * columns
    top = len(levels) - 1
    return "".join(levels[round(max(0.0, peak) / highest * top)] for peak in peaks)
