"""An environment server, which asks questions and rewards answers."""

import random

from web import serve


def ask(_: None) -> float:
    """Return a question, which is a number."""
    return random.uniform(1.0, 2.0)


def correct(question: float) -> float:
    """Return the correct answer, which is three times the number."""
    return 3.0 * question


serve("environment", {"/ask": ask, "/correct": correct})
