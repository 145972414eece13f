"""Stop, start, restart and signal processes, as a client.

A client records each request in the Pod or Job that it concerns, and carries out itself what
`symphony.plan.decide` decides: it stops the units in their order, kills those whose time is over,
and creates the next attempt of a unit when the previous one has ended and the start conditions are
met. If the client is killed, the same command continues. A running supervisor continues, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.errors import SpecError
from symphony.plan.requests import is_unit_startable
from symphony.status import ProcessStatus
from symphony_kube.lifecycle import attempts
from symphony_kube.state.unit_status import UnitStatus
from symphony_kube.user_requests.operation import Operation
from symphony_kube.user_requests.targets import (
    check_not_finished,
    check_waiting,
    find_gone,
    find_target,
    refuse_ranks_of_job_sets,
)
from symphony_kube.user_requests.unit_stops import is_stopped_for_good

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment


def stop(
    experiment: KubeExperiment,
    processes: Sequence[str] | None,
    *,
    grace: float | None = None,
    timeout: float | None = None,
) -> list[ProcessStatus]:
    """Stop processes, and wait until they have exited; see `Cluster.stop_processes`.

    ``grace`` is the grace period in seconds, or None for the period of each Pod, and ``timeout`` is
    also in seconds.
    """
    target = find_target(experiment, processes, "stopped")
    check_waiting(target)
    existing = {
        name: unit for name, unit in target.existing.items() if not is_stopped_for_good(unit)
    }
    _check_grace(existing, grace)
    operation = Operation(experiment, target, "stop", timeout, grace=grace)
    operation.stop_in_order(existing)
    operation.run()
    return operation.statuses()


def start(
    experiment: KubeExperiment,
    processes: Sequence[str] | None,
    *,
    timeout: float | None = None,
) -> list[ProcessStatus]:
    """Start processes that are not running; see `Cluster.start_processes`."""
    target = find_target(experiment, processes, "started")
    check_not_finished(target)
    ranks = {name: target.existing[name] for name in target.in_job_sets & target.existing.keys()}
    # A Pod of a rank that is stopped can exist until the controller has deleted its Job.
    refuse_ranks_of_job_sets(
        {name for name, rank in ranks.items() if rank.has_ended or rank.control.stop}
    )
    others = {name: unit for name, unit in target.existing.items() if name not in ranks}
    idle = {name: unit for name, unit in others.items() if _is_startable(unit)}
    attempts.check_manifests(idle)
    awaited = find_gone(experiment, target, is_named=processes is not None or not idle)
    operation = Operation(experiment, target, "start", timeout)
    operation.start(idle)
    operation.await_start(target.existing)
    operation.await_supervisor(awaited)
    operation.run()
    return operation.statuses()


def restart(
    experiment: KubeExperiment,
    processes: Sequence[str] | None,
    *,
    grace: float | None = None,
    timeout: float | None = None,
) -> list[ProcessStatus]:
    """Stop processes, and start them again; see `Cluster.restart_processes`."""
    target = find_target(experiment, processes, "restarted")
    check_not_finished(target)
    refuse_ranks_of_job_sets(target.in_job_sets)
    attempts.check_manifests(target.existing)
    _check_grace(target.existing, grace)
    operation = Operation(experiment, target, "restart", timeout, grace=grace)
    operation.restart(target.existing)
    operation.run()
    return operation.statuses()


def _check_grace(units: Mapping[str, UnitStatus], seconds: float | None) -> None:
    """Raise `SpecError` if the grace period of a Pod is shorter than ``seconds``."""
    for name, unit in units.items():
        limit = unit.pods[-1].grace_seconds if unit.pods and not unit.has_ended else math.inf
        if seconds is not None and seconds > limit:
            raise SpecError(
                f"the grace period of {name!r} is {limit:g} s, and Kubernetes cannot extend it: "
                "set a shorter one, or launch with a longer termination_grace_period"
            )


def _is_startable(unit: UnitStatus) -> bool:
    control = unit.control
    return is_unit_startable(
        unit.containers.values(),
        is_stopping=bool(control.stop),
        is_starting=bool(control.replaced or control.start),
    )
