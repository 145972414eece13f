"""Why a supervisor could not create units: an annotation of the object with the roster. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a unit could not be created, and when this was determined, in seconds since the epoch.

    ``permanent`` is true if the supervisor does not try again.
    """

    text: str
    time: float
    permanent: bool


def encode_problems(problems: Mapping[str, Problem]) -> str:
    """Encode the problems of units as an annotation value."""
    content = {unit: asdict(problem) for unit, problem in problems.items()}
    return json.dumps(content, sort_keys=True)


def decode_problems(text: str) -> dict[str, Problem]:
    """Decode an annotation that `encode_problems` encoded.

    Ignore problems that are not valid, because other users of the namespace may be able to change
    the annotation.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    problems = {}
    for unit, fields in content.items():
        problem = _decode(fields)
        if problem is not None:
            problems[unit] = problem
    return problems


def _decode(fields: object) -> Problem | None:
    if not isinstance(fields, dict):
        return None
    text, time, permanent = fields.get("text"), fields.get("time"), fields.get("permanent")
    if not isinstance(text, str) or not isinstance(time, (int, float)):
        return None
    return Problem(text=text, time=float(time), permanent=bool(permanent))
