"""The trials. Importing this package adds all of them to `TRIALS`."""

from torture.trial import TRIALS
from torture.trials import (
    changing,
    controlling,
    cutting,
    disk,
    escaping,
    interrupting,
    killing,
    logs,
    names,
    ranks,
    texts,
)

__all__ = [
    "TRIALS",
    "changing",
    "controlling",
    "cutting",
    "disk",
    "escaping",
    "interrupting",
    "killing",
    "logs",
    "names",
    "ranks",
    "texts",
]
