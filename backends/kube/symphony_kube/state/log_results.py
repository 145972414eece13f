"""The annotations of a Pod with what its logs have shown: readiness, and problems of reading."""

from __future__ import annotations

import json
from collections.abc import Mapping


def encode_ready(results: Mapping[str, int]) -> str:
    """Return the annotation `READY`: the processes that are ready according to their logs.

    ``results`` maps them to the number of earlier executions of their containers.
    """
    words = []
    for name, restarts in results.items():
        words.append(f"{name}:{restarts}" if restarts else name)
    return ",".join(sorted(words))


def decode_ready(value: str) -> dict[str, int]:
    """Decode the annotation `READY`. See `encode_ready`. Words that are damaged are ignored."""
    results = {}
    for word in value.split(","):
        name, _, restarts = word.partition(":")
        if name and (not restarts or restarts.isdecimal()):
            results[name] = int(restarts or 0)
    return results


def decode_log_problems(value: str) -> dict[str, str]:
    """Decode the annotation `LOG_PROBLEMS`, which maps processes to messages. A damaged value is
    ignored.
    """
    try:
        problems = json.loads(value)
    except ValueError:
        return {}
    if not isinstance(problems, dict):
        return {}
    return {name: str(message) for name, message in problems.items()}
