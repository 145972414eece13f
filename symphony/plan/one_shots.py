"""Processes that do their work once, such as the migration of a database.

A process is a one-shot if another process waits for its success. When it has succeeded, it does not
run again because other processes are restarted, started or changed. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from symphony.status import State

if TYPE_CHECKING:
    from symphony.plan.topology import Topology
    from symphony.status import ExperimentStatus, ProcessStatus

_CONDITION = "succeeded"


def finished_one_shots(
    processes: Iterable[ProcessStatus], starts_after: Iterable[Mapping[str, str]]
) -> list[str]:
    """Return the names of the one-shots that have succeeded.

    ``starts_after`` contains the start conditions of all processes, which map the names of awaited
    processes to conditions.
    """
    awaited = {
        name
        for conditions in starts_after
        for name, condition in conditions.items()
        if condition == _CONDITION
    }
    return [
        process.name
        for process in processes
        if process.name in awaited and process.state is State.SUCCEEDED and not process.stopped
    ]


def finished_in(status: ExperimentStatus, topology: Topology) -> list[str]:
    """Return the names of the one-shots of a running experiment that have succeeded."""
    members: dict[str, list[str]] = {}
    for process in status:
        members.setdefault(process.name, []).append(process.name)
        if process.group:
            members.setdefault(process.group, []).append(process.name)
    conditions = [
        {name: link.condition}
        for link in topology.links
        for name in members.get(link.target, ())
        if link.kind == "starts-after"
    ]
    return finished_one_shots(status, conditions)


def in_whole_groups(names: Iterable[str], processes: Iterable[ProcessStatus]) -> list[str]:
    """Return those of the processes ``names`` whose groups contain no other process.

    Use this function if the processes of a group can only start together.
    """
    wanted, all_processes = set(names), list(processes)
    partial = {process.group for process in all_processes if process.name not in wanted}
    partial.discard(None)
    return [
        process.name
        for process in all_processes
        if process.name in wanted and process.group not in partial
    ]
