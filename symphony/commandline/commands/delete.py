"""Deleting experiments, after asking."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import FAILED, OK, UsageError, error_message, exit_code
from symphony.commandline.output import views
from symphony.commandline.output.printing import show_json
from symphony.commandline.output.terminal import is_terminal, print_note, show_progress
from symphony.errors import BackendError, NotFound, SymphonyError, Unreachable
from symphony.names import join_names

if TYPE_CHECKING:
    from symphony.cluster import Cluster


def fitting(cluster: Cluster, patterns: Sequence[str], *, needed: bool) -> list[str]:
    """The experiments whose names fit a shell pattern. Raises `NotFound` for one that none fits, if ``needed``."""
    from fnmatch import fnmatchcase

    known = cluster.list_experiments()
    for pattern in patterns:
        if needed and not any(fnmatchcase(name, pattern) for name in known):
            raise NotFound(f"no experiment fits {pattern!r}; there are {join_names(known)}")
    return [name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An experiment that is there: how it stands, in one line, and what of it is deleted."""

    name: str
    summary: str
    size: str


class Deleting:
    """One ``delete``: some names, whether to ask, and how to tell what was done."""

    def __init__(
        self, cluster: Cluster, names: Sequence[str], *, force: bool, as_json: bool, dry_run: bool
    ) -> None:
        self._cluster = cluster
        self._names = list(dict.fromkeys(names))
        self._force = force
        self._as_json = as_json
        self._dry_run = dry_run

    def run(self) -> int:
        """Delete; the exit code. Nothing is deleted where a name is wrong or the answer is no."""
        from symphony.commandline.commands.names import own

        self._names = list(dict.fromkeys(own(self._cluster, name) for name in self._names))
        if self._dry_run:
            return self._would()
        if not self._force and not self._agreed():
            print_note("nothing was deleted")
            return FAILED
        code, deleted = OK, []
        for name in self._names:
            try:
                if self._delete(name):
                    deleted.append(name)
            except SymphonyError as exc:  # the others can be deleted all the same
                print_note(f"symphony: error: {error_message(exc)}")
                code = code or exit_code(exc)
        if self._as_json:
            show_json(deleted)
        return code

    def _would(self) -> int:
        found = [one for name in self._names if (one := self._there(name)) is not None]
        if self._as_json:
            show_json([one.name for one in found])
        for one in found:
            print_note(f"would delete {one.summary}")
        return OK

    def _look(self, name: str) -> Found:
        """An experiment that is there. One that cannot be described can be deleted all the same."""
        try:
            status = self._cluster.describe_experiment(name)
        except Unreachable:
            raise
        except BackendError as exc:
            why = error_message(exc)
            return Found(
                name=name,
                summary=f"{name}, of which this is known: {why}",
                size="as much as there is of it",
            )
        return Found(
            name=name,
            summary=views.summary_line(status),
            size=views.count_processes(len(status.processes)),
        )

    def _there(self, name: str) -> Found | None:
        """An experiment, or None where ``--force`` says that one which is not there is fine."""
        try:
            return self._look(name)
        except NotFound as exc:
            if not self._force:
                raise
            print_note(f"{error_message(exc)}; nothing to delete")
            return None

    def _agreed(self) -> bool:
        found = [self._meant(name) for name in self._names]
        self._names = list(dict.fromkeys(one.name for one in found))
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise UsageError(
                "delete asks first, and there is no terminal to ask on; say --force (-f) to delete"
            )
        what = ", ".join(one.summary for one in found)
        print(f"delete {what}? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def _meant(self, name: str) -> Found:
        """Shortened names are only taken where the question then says the whole one."""
        from symphony.commandline.commands import names as choosing

        asked = is_terminal(sys.stdin) and is_terminal(sys.stderr)
        return choosing.looked_at(self._cluster, name, self._look) if asked else self._look(name)

    def _delete(self, name: str) -> bool:
        from symphony.commandline.commands import current_experiment
        from symphony.commandline.parsing import completion_cache

        try:
            size = self._look(name).size
        except NotFound as exc:
            print_note(f"{error_message(exc)}; nothing to delete")
            return False
        with show_progress(f"deleting {name} ({size})"):
            self._cluster.delete(name)
        current_experiment.forget(self._cluster.backend, name)
        completion_cache.clear_cached_names()
        if not self._as_json:
            print(f"deleted {name}")
        return True
