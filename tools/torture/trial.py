"""The description of a trial, and the list of all trials."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torture.workspace import KUBE, LOCAL, TMUX, Workspace

RoundFunction = Callable[[Workspace], None]


@dataclass(frozen=True, slots=True)
class Trial:
    """One kind of attack.

    ``run`` performs one round and raises `torture.workspace.Violation` if it finds an error. After
    the round, the runner checks the invariants that all trials share. ``obstacle`` returns why the
    trial cannot run on this machine, or ``""``.
    """

    name: str
    description: str
    run: RoundFunction
    backends: Sequence[str] = (LOCAL, TMUX)
    obstacle: Callable[[], str] = lambda: ""

    def obstacle_on(self, backend: str) -> str:
        """Return why the trial cannot run on a backend of this machine, or ``""`` if it can."""
        if backend == TMUX and shutil.which("tmux") is None:
            return "tmux is not installed (Debian: apt install tmux)"
        if backend == KUBE:
            from torture.kube_workspace import prepare

            return prepare()
        return self.obstacle()


TRIALS: dict[str, Trial] = {}


def trial(
    name: str,
    *,
    backends: Sequence[str] = (LOCAL, TMUX),
    obstacle: Callable[[], str] = lambda: "",
) -> Callable[[RoundFunction], RoundFunction]:
    """Return a decorator that adds a function to `TRIALS`. Its docstring is the description."""

    def add(function: RoundFunction) -> RoundFunction:
        description = (function.__doc__ or "").strip()
        TRIALS[name] = Trial(name, description, function, backends, obstacle)
        return function

    return add
