"""The names of the Pods and Jobs of further attempts to run a unit. Pure.

The names contain no dot, because Kubernetes warns of dots in names of Pods, and cannot schedule the
Pods of such a Job as a group.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from symphony.errors import SpecError
from symphony.support.names import MAX_LENGTH

# Earlier versions of symphony have used a dot.
_NUMBER = re.compile(r"(--|\.)[0-9]+$")
_DIGEST_LENGTH = 8


def attempt_name(first: str, number: int) -> str:
    """Return the name for an attempt of a unit whose first attempt has the name ``first``.

    The name of a Job is also the value of a label, so its length is limited.
    """
    ending = f"--{number}"
    if len(first) + len(ending) > MAX_LENGTH:
        digest = hashlib.sha256(first.encode()).hexdigest()[:_DIGEST_LENGTH]
        kept = MAX_LENGTH - len(ending) - len(digest) - 1
        return f"{first[:kept]}-{digest}{ending}"
    return f"{first}{ending}"


def first_name(name: str) -> str:
    """Return the name of the first attempt, unless it was too long to be contained in ``name``."""
    return _NUMBER.sub("", name)


def check_names(units: Iterable[str]) -> None:
    """Raise `SpecError` if a unit has the name of an attempt of another one."""
    names = set(units)
    for name in names:
        first = first_name(name)
        if first != name and first in names:
            raise SpecError(
                f"{name!r} is the name of a restarted {first!r} on Kubernetes: rename one of them",
                path=("processes", name),
            )
