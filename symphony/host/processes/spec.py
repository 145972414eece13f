"""What a supervisor runs: one process of a manifest, as data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

MARK = "SYMPHONY_RUN"
DEFAULT_GRACE = 30.0

# What JSON makes lists of.
_TUPLES = ("argv", "releases", "connects", "preamble")


class CannotLook(Exception):
    """Whether a process is ready could not be asked, which is no answer. The message says what and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A process ready to be started.

    ``env`` lies over the launcher's environment. ``env_secrets`` has, by variable, the file of the secrets folder
    whose content it gets, see `with_secrets`. ``preamble`` are the shell lines that ``argv`` runs first, for what
    runs beside it; the shell is then the first of ``argv``. ``releases`` are the ports whose hold ends when this
    starts. ``ready`` is its test with addresses in it (``{"tcp": [host, port]}``), or None where to run is to be
    ready; ``ready_timeout`` and ``grace`` are in seconds. ``restart`` is Always, OnFailure or Never.
    """

    name: str
    group: str | None = None
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    env_secrets: dict[str, str] = field(default_factory=dict)
    grace: float = DEFAULT_GRACE
    restart: str = "Never"
    ready: dict[str, Any] | None = None
    ready_timeout: float = 60.0
    starts_after: dict[str, str] = field(default_factory=dict)
    releases: tuple[int, ...] = ()
    connects: tuple[str, ...] = ()
    gpus: int = 0
    preamble: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """``group/process``, or ``process`` where it is in no group."""
        return f"{self.group}/{self.name}" if self.group else self.name

    def to_dict(self) -> dict[str, Any]:
        """The command as JSON knows it."""
        return {item: getattr(self, item) for item in self.__slots__}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Command:
        """The command that `to_dict` wrote."""
        return cls(**{**data, **{name: tuple(data[name]) for name in _TUPLES if name in data}})

    def with_secrets(self, folder: Path) -> Command:
        """The command with the values of its secrets among its variables: to be run, never to be written."""
        if not self.env_secrets:
            return self
        values = {
            key: os.fsdecode((folder / name).read_bytes()) for key, name in self.env_secrets.items()
        }
        return replace(self, env={**self.env, **values}, env_secrets={})

    def probe(self, log: Path, log_begins: int, env: Mapping[str, str]) -> Any:
        """One look at whether the process is ready, as a function that blocks for a while at most.

        ``env`` is what the process began with. The function raises `CannotLook`.
        """
        from symphony.host.supervisor.readiness import probe, succeeds

        test = self.ready or {}
        return probe(test, log, log_begins) or (lambda: succeeds(self, test["command"], env))
