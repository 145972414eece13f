"""The user's name before the names of experiments. Pure."""

from __future__ import annotations

from symphony.errors import SpecError
from symphony.names import MAX_LENGTH, check_name


def with_user(username: str, name: str) -> str:
    """The name of a new experiment of a user: ``rl`` becomes ``sarah-rl``, and stays so. Raises `SpecError`.

    >>> with_user("sarah", "rl"), with_user("sarah", "sarah-rl"), with_user("sarah", "sarahs-x")
    ('sarah-rl', 'sarah-rl', 'sarah-sarahs-x')
    """
    check_name(name, "experiment")
    if is_of(username, name):
        return name
    result = f"{username}-{name}"
    if len(result) > MAX_LENGTH:
        raise SpecError(
            f"experiment {name!r} of user {username!r} would be called {result!r}, which is {len(result)} characters "
            f"long and at most {MAX_LENGTH} are allowed; shorten one of the two"
        )
    return result


def is_of(username: str, name: str) -> bool:
    """Whether a name is of that user already."""
    return name.startswith(f"{username}-")
