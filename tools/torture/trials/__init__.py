"""The trials. Importing this package adds all of them to `TRIALS`."""

from torture.trial import TRIALS
from torture.trials import changing, controlling, disk, escaping, killing, logs, names, texts

__all__ = [
    "TRIALS",
    "changing",
    "controlling",
    "disk",
    "escaping",
    "killing",
    "logs",
    "names",
    "texts",
]
