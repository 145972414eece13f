"""The wish for a running experiment: its processes, their policies, and their start order.

A supervisor creates a `Wish` when it starts and after each change, and decides with it many times.
Everything that follows from the wish alone is therefore computed once. The supervisor imports this
module at its start, so it does not import `symphony.model`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from symphony.plan.policies import Policies
from symphony.plan.restart_policy import Backoff, RestartPolicy
from symphony.plan.stop_order import stop_waves

# The default of a field. It is never changed.
_NO_CONDITIONS: Mapping[str, str] = {}


class ProcessWish(NamedTuple):
    """The wish for one process.

    ``starts_after`` maps the names of processes to the condition ``started``, ``ready`` or
    ``succeeded``. ``has_test`` is true if a readiness test determines whether the process is ready,
    and ``ready_timeout`` is the time for it in seconds. ``max_failed_tests`` is the number of
    health tests in a row after whose failure it is stopped and has failed, or None if it has no
    health test. ``grace`` is in seconds. ``deadline`` is the time in seconds after the first start
    at which the process is stopped and has failed, or None. ``gang`` is the unit of which the
    process is a rank, or None. ``ports`` are the ports that it binds. If ``reserves`` is true, it
    needs resources that are reserved before each start on request, such as GPUs. ``fingerprint``
    differs if the process has to be restarted because its description has changed. ``path`` is the
    name that messages show. ``place_within`` is the time in seconds within which machines must be
    found for all ranks of the unit once one was found for the first, or 0.0 for no limit.
    """

    name: str
    path: str = ""
    restart: RestartPolicy = RestartPolicy()
    starts_after: Mapping[str, str] = _NO_CONDITIONS
    has_test: bool = False
    ready_timeout: float = 60.0
    max_failed_tests: int | None = None
    grace: float = 30.0
    deadline: float | None = None
    gang: str | None = None
    ports: tuple[int, ...] = ()
    reserves: bool = False
    fingerprint: str = ""
    place_within: float = 0.0


def start_cause(starts_after: Mapping[str, str]) -> str:
    """Return what a process has waited for, such as ``after replay is ready``, or ``""``.

    ``starts_after`` is that of a `ProcessWish`.
    """
    words = {"ready": "is ready", "started": "has started", "succeeded": "has succeeded"}
    texts = [f"{name} {words[condition]}" for name, condition in starts_after.items()]
    return f"after {' and '.join(texts)}" if texts else ""


class Wish:
    """The wish for an experiment. Do not change it; replace it by another one.

    ``processes`` are in the order of their declaration. ``previous`` contains the removed and
    restarted processes of the latest change as they were before it. ``change`` is the event of the
    latest change, or None. Its ``revision`` is the number of the change. ``name`` is the name of
    the experiment. Units of different experiments that wait for each other try again at different
    times, which follow from their names.
    """

    def __init__(
        self,
        processes: Iterable[ProcessWish],
        policies: Policies | None = None,
        *,
        backoff: Backoff | None = None,
        previous: Iterable[ProcessWish] = (),
        change: Mapping[str, Any] | None = None,
        name: str = "",
    ) -> None:
        self.name = name
        self.processes = {process.name: process for process in processes}
        self.policies = policies or Policies()
        self.backoff = backoff or Backoff()
        self.previous = {process.name: process for process in previous}
        self.change = change
        self.revision: int = 0 if change is None else change["revision"]
        self.has_end = self.policies.has_end
        """True if policies determine the end of the experiment."""
        self.gangs = _gangs(self.processes.values())
        """The names of the ranks of each unit."""
        self.depths = _depths({**self.previous, **self.processes})
        """The position of each process in the start order. Processes with the largest are stopped
        first; see `symphony.plan.stop_order`.
        """
        self.start_causes = {
            name: start_cause(process.starts_after) for name, process in self.processes.items()
        }
        self.deadlines = {
            name: process.deadline
            for name, process in self.processes.items()
            if process.deadline is not None
        }
        """The deadlines of the processes that have one, in seconds after their first start."""
        self.independent = frozenset(
            name
            for name, process in self.processes.items()
            if process.gang is None and process.deadline is None
        )
        """The processes that are stopped only by a request or with the whole experiment."""
        known = (*self.previous.values(), *self.processes.values())
        graces = [process.grace for process in known] or [ProcessWish("").grace]
        self.longest_grace = max(graces)

    def ranks_with(self, name: str) -> tuple[str, ...]:
        """Return all ranks of the unit of a process, or only its name if it is not a rank."""
        process = self.processes.get(name)
        if process is None or process.gang is None:
            return (name,)
        return self.gangs[process.gang]


class Difference(NamedTuple):
    """The names of the processes that differ between two wishes."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()


def difference(old: Wish, new: Wish) -> Difference:
    """Return which processes a change from ``old`` to ``new`` adds, removes and restarts.

    If a rank of a unit is restarted, the whole unit is restarted.
    """
    both = [name for name in new.processes if name in old.processes]
    changed = {
        name for name in both if new.processes[name].fingerprint != old.processes[name].fingerprint
    }
    for name in list(changed):
        changed.update(new.ranks_with(name))
    return Difference(
        added=tuple(name for name in new.processes if name not in old.processes),
        removed=tuple(name for name in old.processes if name not in new.processes),
        restarted=tuple(name for name in both if name in changed),
    )


def _gangs(processes: Iterable[ProcessWish]) -> dict[str, tuple[str, ...]]:
    gangs: dict[str, tuple[str, ...]] = {}
    for process in processes:
        if process.gang is not None:
            gangs[process.gang] = (*gangs.get(process.gang, ()), process.name)
    return gangs


def _depths(processes: Mapping[str, ProcessWish]) -> dict[str, int]:
    waves = stop_waves(processes, {name: each.starts_after for name, each in processes.items()})
    depths: dict[str, int] = {}
    for depth, wave in enumerate(reversed(waves)):
        depths.update(dict.fromkeys(wave, depth))
    return depths
