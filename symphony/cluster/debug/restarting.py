"""Restarting processes that can be under a debugger, for the commands and the views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.cluster.matching import select_processes
from symphony.errors import SymphonyError

if TYPE_CHECKING:
    from symphony.cluster.cluster import Cluster
    from symphony.status import ProcessStatus


def restart_with_ordinary_commands(
    cluster: Cluster,
    experiment: str,
    names: Sequence[str],
    *,
    grace: float | None = None,
    at_once: bool = False,
    timeout: float | None = None,
) -> Sequence[ProcessStatus]:
    """Restart processes, and return their statuses. Those under a debugger get their ordinary
    commands again.

    The options are those of `Cluster.restart_processes`.
    """
    changed = _end_debugging(cluster, experiment, names)
    rest = [name for name in names if name not in changed]
    if not rest:
        return select_processes(cluster.describe_experiment(experiment), names)
    return cluster.restart_processes(
        experiment, rest, grace=grace, at_once=at_once, timeout=timeout
    )


def _end_debugging(cluster: Cluster, experiment: str, names: Sequence[str]) -> list[str]:
    """Restart those of the processes with their ordinary commands that are under a debugger, and
    return their names.
    """
    try:
        debugged = cluster.debugged_processes(experiment)
    except SymphonyError:
        # Without a description of the experiment, no process can have been changed.
        return []
    if debugged.keys().isdisjoint(names):
        return []
    from symphony.cluster.debug.debugging import put_back

    return put_back(cluster, experiment, names)
