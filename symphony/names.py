"""Names: what is allowed, what would be right instead, and what a name becomes in the environment.

A name is a DNS-1035 label on every backend (RFC 1035, section 2.3.1, as Kubernetes applies it to
Services), so that what runs locally runs on Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from symphony.errors import SpecError

MAX_LENGTH = 63
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def is_name(name: str) -> bool:
    """Whether this may be a name."""
    return len(name) <= MAX_LENGTH and _LABEL.fullmatch(name) is not None


def check_name(name: object, what: str) -> str:
    """Return ``name`` if it is valid, else raise `SpecError` with the corrected name.

    ``what`` says whose name it is, for the message: ``"process"``.
    """
    if not isinstance(name, str):
        raise SpecError(f"the name of {_article(what)} is text, not {name!r}")
    if is_name(name):
        return name
    hint = corrected(name)
    rule = f"use a-z, 0-9 and '-', a letter first, at most {MAX_LENGTH}"
    mend = f"; for example {hint!r}" if hint else ""
    raise SpecError(f"{what} name {name!r} is not valid: {rule}{mend}")


def corrected(name: str) -> str:
    """The valid name nearest to ``name``, or ``""`` where nothing of it can be used."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    words = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    words = re.sub(r"^[0-9]", lambda digit: f"p{digit.group()}", words)
    return words[:MAX_LENGTH].rstrip("-")


def env_name(service: str) -> str:
    """``replay-server`` as it stands in environment variables: ``REPLAY_SERVER``."""
    return service.upper().replace("-", "_")


def did_you_mean(name: str, known: Iterable[str], *, limit: int = 3) -> str:
    """A hint for a message: ``; did you mean 'x' or 'y'?``, or ``""`` where nothing is near.

    Near is what is spelled alike, else what has the name as one of its words: ``image`` and ``container_image``.
    """
    import difflib

    known = list(known)
    matches = difflib.get_close_matches(name, known, n=limit, cutoff=0.6)
    if not matches:
        matches = [other for other in known if name and name in other.replace("-", "_").split("_")][
            :limit
        ]
    return f"; did you mean {' or '.join(map(repr, matches))}?" if matches else ""


def join_names(names: Iterable[str], *, limit: int = 8) -> str:
    """``a, b, c and 4 more`` for messages; ``none`` for no names."""
    names = list(names)
    head = ", ".join(names[:limit]) or "none"
    return f"{head} and {len(names) - limit} more" if len(names) > limit else head


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"
