"""Deleting experiments, after asking."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.commandline import views
from symphony.commandline.exits import FAILED, OK, UsageError, exit_code, message
from symphony.commandline.printing import show_json
from symphony.commandline.terminal import is_terminal, note, progress
from symphony.errors import NotFound, SymphonyError

if TYPE_CHECKING:
    from symphony.cluster import Cluster


class Deleting:
    """One ``delete``: some names, whether to ask, and how to tell what was done."""

    def __init__(self, cluster: Cluster, names: Sequence[str], *, force: bool, as_json: bool) -> None:
        self._cluster = cluster
        self._names = list(dict.fromkeys(names))
        self._force = force
        self._as_json = as_json

    def run(self) -> int:
        """Delete; the exit code. Nothing is deleted where a name is wrong or the answer is no."""
        if not self._force and not self._agreed():
            note("nothing was deleted")
            return FAILED
        code, deleted = OK, []
        for name in self._names:
            try:
                if self._delete(name):
                    deleted.append(name)
            except SymphonyError as exc:  # the others can be deleted all the same
                note(f"symphony: error: {message(exc)}")
                code = code or exit_code(exc)
        if self._as_json:
            show_json(deleted)
        return code

    def _agreed(self) -> bool:
        found = [self._cluster.describe_experiment(name) for name in self._names]
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise UsageError("delete asks first, and there is no terminal to ask on; say --force (-f) to delete")
        what = ", ".join(views.summary(status) for status in found)
        print(f"delete {what}? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def _delete(self, name: str) -> bool:
        try:
            number = len(self._cluster.describe_experiment(name).processes)
        except NotFound as exc:
            note(f"{message(exc)}; nothing to delete")
            return False
        with progress(f"deleting {name} ({views.processes(number)})"):
            self._cluster.delete(name)
        if not self._as_json:
            print(f"deleted {name}")
        return True
