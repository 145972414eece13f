"""The processor time of functions that read every character of a log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

_PASS = re.compile("[\0\x01]")
_TRIES = 5

LOG = "".join(f"step {number}: loss=0.25 throughput=99.1\n" for number in range(50_000))
"""A log of about 2 MB in which there is nothing to find."""


def passes(function: Callable[[str], object], text: str = LOG) -> float:
    """Return how many times as long a function takes as one pass over ``text``.

    A pass is the search for a set of characters that do not occur in the text. A regular expression
    takes several passes if it begins neither with fixed text nor with one set of
    characters.
    """
    return _least_seconds(function, text) / _least_seconds(lambda log: _PASS.sub("", log), text)


def _least_seconds(function: Callable[[str], object], text: str) -> float:
    seconds = []
    for _ in range(_TRIES):
        begin = time.thread_time()
        function(text)
        seconds.append(time.thread_time() - begin)
    return min(seconds)
