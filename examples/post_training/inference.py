"""An inference server, which answers questions with the latest weight."""

from web import serve

weights = [0.0]


def generate(question: float) -> float:
    """Return the answer to a question."""
    return weights[-1] * question


def update(weight: float) -> int:
    """Use a new weight from now on, and return its version."""
    weights.append(weight)
    return len(weights) - 1


def latest(_: None) -> float:
    """Return the latest weight, with which a restarted trainer continues."""
    return weights[-1]


serve("inference", {"/generate": generate, "/update": update, "/latest": latest})
