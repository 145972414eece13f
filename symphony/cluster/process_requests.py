"""Stop, start, restart and signal the processes of a running experiment, on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.cluster.backend import ProcessRequest
from symphony.cluster.matching import select_processes
from symphony.errors import SpecError, shown
from symphony.status import ExperimentStatus, ProcessStatus

if TYPE_CHECKING:
    from symphony.cluster.cluster import Cluster

MAX_GRACE_SECONDS = 1e9


def request_processes(
    cluster: Cluster,
    kind: str,
    experiment: str,
    processes: Sequence[str] | None,
    *,
    grace: float | None = None,
    timeout: float | str | None = None,
    signal: int = 0,
    force: bool = False,
) -> list[ProcessStatus]:
    """Carry out a request about processes, and return their statuses.

    ``processes`` selects processes as in `Cluster.stop_processes`. The other arguments are those of
    `ProcessRequest`, and ``timeout`` can have a unit.
    """
    from symphony.model.settings.durations import parse_timeout

    def find() -> tuple[ExperimentStatus, list[str]]:
        status = cluster.describe_experiment(experiment)
        names = [process.name for process in select_processes(status, processes)]
        if processes is None and kind in ("start", "restart"):
            finished = cluster.finished_one_shots(status)
            names = [name for name in names if name not in finished]
        return status, names

    request = ProcessRequest(
        kind=kind,
        processes=processes,
        find=find,
        grace=grace,
        signal=signal,
        force=force,
        timeout=parse_timeout(timeout),
    )
    statuses = cluster.implementation.request(experiment, request)
    if statuses is not None:
        return list(statuses)
    return select_processes(cluster.describe_experiment(experiment), request.names)


def end_experiment(cluster: Cluster, experiment: str, *, at_once: bool) -> None:
    """Stop an experiment for good; see `Cluster.stop`."""

    def find() -> tuple[ExperimentStatus, list[str]]:
        status = cluster.describe_experiment(experiment)
        return status, [process.name for process in status]

    grace = grace_seconds(None, at_once)
    request = ProcessRequest(kind="end", processes=None, find=find, grace=grace)
    cluster.implementation.request(experiment, request)


def grace_seconds(grace: float | str | None, at_once: bool) -> float | None:
    """Return the grace period for a request, or None for the period of each process."""
    if grace is None:
        return 0.0 if at_once else None
    if at_once:
        raise SpecError("at_once means that there is no grace period; remove grace or at_once")
    from symphony.model.settings.durations import parse_duration

    seconds = parse_duration(grace, "grace")
    if seconds > MAX_GRACE_SECONDS:
        raise SpecError(f"grace must be at most {MAX_GRACE_SECONDS} s, not {shown(grace)}")
    return seconds
