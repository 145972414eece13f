"""The settings that the experiment passes to its programs in environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings for the run, as set by ``experiment.py``.

    ``evaluators`` is the number of evaluators. Unless ``forever`` is set, the run ends after
    ``updates`` updates, or earlier if the mean return reaches ``target``. ``pace`` is the minimum
    duration of an update, and ``patience`` is the longest wait for another process, both in
    seconds; agents and evaluators wait without a limit for the first parameters. ``seed`` is the
    seed for random numbers. ``results`` is the directory for results.
    """

    evaluators: int = 1
    updates: int = 1000
    target: float | None = None
    forever: bool = False
    pace: float = 0.0
    patience: float = 60.0
    seed: int = 1
    results: Path | None = None


def read(environ: Mapping[str, str] = os.environ) -> Options:
    """Return the settings from the environment."""
    target, results = environ.get("RL_TARGET"), environ.get("RL_RESULTS")
    return Options(
        evaluators=int(environ["RL_EVALUATORS"]),
        updates=int(environ["RL_UPDATES"]),
        target=float(target) if target else None,
        forever=environ.get("RL_FOREVER") == "yes",
        pace=float(environ.get("RL_PACE", "0")),
        patience=float(environ.get("RL_PATIENCE", "60")),
        seed=int(environ.get("RL_SEED", "1")),
        results=Path(results) if results else None,
    )
