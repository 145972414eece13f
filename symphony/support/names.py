"""The names of experiments, processes, groups and services, and lists of names in messages.

On every backend, a name is a DNS-1035 label (RFC 1035, section 2.3.1), because Kubernetes requires
such names for Services. The names of an experiment that runs locally are therefore also valid on
Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from symphony.errors import SpecError, shown

MAX_LENGTH = 63
# Every process that a supervisor on this machine starts has the identifier of its run in this
# environment variable.
RUN_ID_VARIABLE = "SYMPHONY_RUN"
# Keys of the user's own begin with this prefix, as in a compose file. In an experiment file they
# hold values with YAML anchors, and in a configuration the settings of a program.
OWN_KEY_PREFIX = "x-"
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def is_name(name: str) -> bool:
    """Return whether ``name`` is a valid name."""
    return len(name) <= MAX_LENGTH and _LABEL.fullmatch(name) is not None


def check_name(name: object, what: str) -> str:
    """Return ``name`` if it is valid. Otherwise, raise `SpecError` and suggest a valid name.

    ``what`` names the kind of object in the error message, such as ``"process"``.
    """
    name = check_is_text(name, what)
    if is_name(name):
        return name
    suggestion = suggested_name(name)
    example = f"; for example {suggestion!r}" if suggestion else ""
    raise SpecError(
        f"{what} name {shown(name)} is not valid: use a-z, 0-9 and '-', begin with a letter, "
        f"at most {MAX_LENGTH} characters{example}"
    )


def check_is_text(name: object, what: str) -> str:
    """Return ``name`` if it is a string. Otherwise, raise `SpecError`.

    Use this function for the name of an object that may not exist. ``what`` has the same meaning as
    in `check_name`.
    """
    if not isinstance(name, str):
        hint = ""
        if what == "service" and isinstance(name, int) and not isinstance(name, bool):
            hint = (
                f"; a port belongs to a service with a name, as in exposes: {{web: {shown(name)}}}"
            )
        raise SpecError(f"the name of {_with_article(what)} must be text, not {shown(name)}{hint}")
    return name


def suggested_name(name: str) -> str:
    """Return a valid name that is similar to ``name``, or an empty string if ``name`` contains
    no usable character.
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    words = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    words = re.sub(r"^[0-9]", lambda digit: f"p{digit.group()}", words)
    return words[:MAX_LENGTH].rstrip("-")


def service_env_name(service: str) -> str:
    """Return a service name in the form that environment variables use, such as
    ``REPLAY_SERVER``.
    """
    return service.upper().replace("-", "_")


def did_you_mean(name: str, known: Iterable[str], *, limit: int = 3) -> str:
    """Return ``; did you mean 'x' or 'y'?`` for similar known names, or an empty string.

    If no known name has a similar spelling, suggest the names that contain ``name`` as a word, for
    example ``container_image`` for ``image``.
    """
    import difflib

    known = list(known)
    matches = difflib.get_close_matches(name, known, n=limit, cutoff=0.6)
    if not matches and name:
        with_word = [other for other in known if name in other.replace("-", "_").split("_")]
        matches = with_word[:limit]
    if not matches:
        return ""
    return f"; did you mean {' or '.join(map(repr, matches))}?"


def join_names(names: Iterable[str], *, limit: int = 8) -> str:
    """Join names for a message, such as ``a, b, c and 4 more``, or ``none`` if there are no
    names.
    """
    names = list(names)
    if not names:
        return "none"
    shown = ", ".join(names[:limit])
    if len(names) > limit:
        return f"{shown} and {len(names) - limit} more"
    return shown


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
