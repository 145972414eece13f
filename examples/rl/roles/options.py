"""What the experiment tells its programs, by variables of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of the run; ``experiment.py`` sets them.

    ``workers`` are how many agents and evaluators, ``collectors`` how many of those that hear all others out, and
    ``servers`` how many other processes but the learner take part. The run ends after ``updates``, or before that when
    the mean return has come to ``target``, unless it is to go on ``forever``. ``pace`` is how long an update takes at
    least, and ``patience`` how long anybody is waited for, both in seconds. ``results`` is a folder for what is to
    stay.
    """

    workers: int = 1
    servers: int = 4
    collectors: int = 2
    updates: int = 1000
    target: float | None = None
    forever: bool = False
    pace: float = 0.0
    patience: float = 60.0
    seed: int = 1
    results: Path | None = None


def read(environ: Mapping[str, str] = os.environ) -> Options:
    """The settings as they stand in the environment."""
    target, results = environ.get("RL_TARGET"), environ.get("RL_RESULTS")
    return Options(
        workers=int(environ["RL_WORKERS"]),
        servers=int(environ["RL_SERVERS"]),
        collectors=int(environ["RL_COLLECTORS"]),
        updates=int(environ["RL_UPDATES"]),
        target=float(target) if target else None,
        forever=environ.get("RL_FOREVER") == "yes",
        pace=float(environ.get("RL_PACE", "0")),
        patience=float(environ.get("RL_PATIENCE", "60")),
        seed=int(environ.get("RL_SEED", "1")),
        results=Path(results) if results else None,
    )
