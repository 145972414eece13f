"""Why a supervisor could not create units: an annotation of the object with the roster. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from symphony_kube.render import codec


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a unit could not be created, and when this was determined, in seconds since the epoch.

    ``permanent`` is true if the supervisor does not try again.
    """

    text: str
    time: float
    permanent: bool = False


def encode_problems(problems: Mapping[str, Problem]) -> str:
    """Encode the problems of units as an annotation value."""
    content = {unit: asdict(problem) for unit, problem in problems.items()}
    return codec.to_text(content)


def decode_problems(text: str) -> dict[str, Problem]:
    """Decode an annotation that `encode_problems` encoded.

    Ignore problems that are not valid, because other users of the namespace may be able to change
    the annotation.
    """
    try:
        content = codec.from_text(text)
    except ValueError:
        return {}
    if not isinstance(content, dict):
        return {}
    problems = {}
    for unit, fields in content.items():
        with contextlib.suppress(ValueError):
            problems[unit] = codec.build(Problem, fields)
    return problems
