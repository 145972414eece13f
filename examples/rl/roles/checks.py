"""Checks of the messages that the servers receive. Any program that can connect to a
service can send it a message, and an ill-typed message must not stop the receiver.

Each function returns its message unchanged, or raises `InvalidMessage`.
"""

from __future__ import annotations

import math
from typing import Any

from roles import maze

# The replay buffer refuses larger batches.
MAX_BATCH = 100_000


class InvalidMessage(Exception):
    """A message has not the expected type, or lacks a field."""


def score(message: Any) -> dict[str, Any]:
    """Check a score from an evaluator."""
    return _with_fields(message, version=_is_count, value=_is_number)


def line(message: Any) -> dict[str, Any]:
    """Check a line for the logger."""
    return _with_fields(message, name=_is_text, text=_is_text)


def point(message: Any) -> dict[str, Any]:
    """Check a point on a curve."""
    return _with_fields(message, series=_is_text, step=_is_count, value=_is_number)


def point_or_path(message: Any) -> dict[str, Any]:
    """Check a message for the page: a point on a curve, or the path of an episode."""
    if isinstance(message, dict) and "path" in message:
        return _with_fields(message, path=_is_path, name=_is_text)
    return point(message)


def transitions(message: Any) -> list[Any]:
    """Check a list of transitions; see `roles.policy.Transition`."""
    if not isinstance(message, list) or not all(map(_is_transition, message)):
        raise InvalidMessage("it is not a list of transitions")
    return message


def parameters(message: Any) -> dict[str, Any]:
    """Check a message to the parameter server: new parameters, or a request for the newest ones."""
    if isinstance(message, dict) and message.get("what") == "put":
        return _with_fields(message, version=_is_count, values=_is_table)
    return _with_fields(message, what=_is_text, but=_is_whole_number)


def last_episode(message: Any) -> dict[str, Any]:
    """Check a message to the curriculum: the result of the agent's last episode, or an empty object
    before the first episode.
    """
    if message == {}:
        return {}
    return _with_fields(message, start=_is_start, reached=_is_truth_value)


def replay_request(message: Any) -> dict[str, Any]:
    """Check a request to the replay buffer."""
    if isinstance(message, dict) and message.get("what") == "batch":
        return _with_fields(message, size=_is_batch_size)
    return _with_fields(message, what=_is_text)


def _with_fields(message: Any, **checks: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidMessage("it is not an object")
    for field, check in checks.items():
        if field not in message:
            raise InvalidMessage(f"it has no field {field!r}")
        if not check(message[field]):
            raise InvalidMessage(f"its field {field!r} has an invalid value")
    return message


def _is_text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON allows surrogates, which no file and no page can contain.
        return False
    return True


def _is_number(value: Any) -> bool:
    if not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # The number is too large for a float.
        return False


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0 and _is_number(value)


def _is_below(limit: int, value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < limit


def _is_whole_number(value: Any) -> bool:
    return isinstance(value, int)


def _is_truth_value(value: Any) -> bool:
    return isinstance(value, bool)


def _is_start(value: Any) -> bool:
    return _is_below(maze.STATES, value) and value != maze.GOAL


def _is_batch_size(value: Any) -> bool:
    return _is_below(MAX_BATCH + 1, value)


def _is_table(value: Any) -> bool:
    """Return whether a value is a number for each state and action."""
    return (
        isinstance(value, list) and len(value) == maze.STATES and all(_is_row(row) for row in value)
    )


def _is_row(value: Any) -> bool:
    return isinstance(value, list) and len(value) == maze.ACTIONS and all(map(_is_number, value))


def _is_path(value: Any) -> bool:
    return isinstance(value, list) and all(_is_below(maze.STATES, state) for state in value)


def _is_transition(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 5:
        return False
    state, action, reward, following, reached = value
    return (
        _is_below(maze.STATES, state)
        and _is_below(maze.ACTIONS, action)
        and _is_number(reward)
        and _is_below(maze.STATES, following)
        and isinstance(reached, bool)
    )
