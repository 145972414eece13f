"""Stop an experiment for good, and keep its Pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.errors import BackendError
from symphony.status import ReasonCode
from symphony_kube import client_requests
from symphony_kube.api.errors import ApiError
from symphony_kube.killer import kill_deleted
from symphony_kube.record.encoded_record import record_of_ending
from symphony_kube.record.ending import StoppedProcesses
from symphony_kube.record.publish import publish
from symphony_kube.state.ending import find_never_started, processes_to_stop
from symphony_kube.state.observe import ExperimentState, Observation
from symphony_kube.state.unit_status import STOPPED
from symphony_kube.status import experiments
from symphony_kube.status.permission_errors import missing_right

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

# How often an experiment is stopped if its supervisor creates other processes in the meantime.
MAX_STOPS = 5


def stop_for_good(experiment: KubeExperiment, *, at_once: bool) -> None:
    """Stop an experiment, and keep its Pods; see `Cluster.stop`.

    The decision is recorded first, so that a supervisor starts no more processes, and stops the
    others if this command is killed.
    """
    for _ in range(MAX_STOPS):
        state, _ = experiments.observe_once(experiment)
        experiments.current_status(experiment, state)
        observation = state.observe(experiment.api.now())
        if observation.deleting:
            if at_once:
                units = observation.unit_statuses.values()
                kill_deleted(experiment, [pod for unit in units for pod in unit.pods])
            return
        if state.record.ending is None and not observation.status.has_finished:
            _publish_ending(experiment, state, observation)
        client_requests.stop(experiment, None, grace=0.0 if at_once else None)
        if experiments.experiment_status(experiment).ended:
            return
    raise BackendError(
        f"experiment {experiment.name!r} is being created while it is stopped: stop its launcher "
        "first"
    )


def _publish_ending(
    experiment: KubeExperiment, state: ExperimentState, observation: Observation
) -> None:
    """Record that all processes that have not ended are stopped for good."""
    stopped = [
        process.name for process in observation.status if process.reason_code is ReasonCode.STOPPED
    ]
    ending = StoppedProcesses(
        processes=(*processes_to_stop(observation.status), *stopped),
        reason=STOPPED.text,
        code=ReasonCode.STOPPED.value,
        time=experiment.api.now(),
        failed=False,
        never_started=find_never_started(observation.status),
    )
    record = record_of_ending(ending)
    try:
        publish(experiment, state.units, observation.unit_statuses, record)
    except ApiError as exc:
        right = "patch pods and jobs"
        raise missing_right(exc, f"stop {experiment.name!r}", right, experiment.scope) from exc
