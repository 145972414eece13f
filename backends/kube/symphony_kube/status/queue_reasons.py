"""Add to the reasons of processes that wait in a queue of Kueue what their Workloads wait for.

A Workload is owned by the Job, the JobSet or the Pods that it admits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony_kube.api.kueue import workloads_path
from symphony_kube.api.resources import items_of
from symphony_kube.state import reasons
from symphony_kube.state.reasons import waiting_for_queue

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]
ProcessesOf = Callable[[str], Iterable[str]]

_WAITS = waiting_for_queue("").text
# The beginning of the messages of Kueue, with a name that Kueue has generated.
_NO_FLAVOR = re.compile(r"couldn't assign flavors to pod set \S+: ")


def waits_in_queue(process: ProcessStatus) -> bool:
    """Return whether a process waits in a queue."""
    return process.state is State.PENDING and process.reason.startswith(_WAITS)


def explain_queues(
    experiment: KubeExperiment, status: ExperimentStatus, processes_of: ProcessesOf
) -> ExperimentStatus:
    """Return ``status`` with what each process waits for that waits in a queue.

    ``processes_of`` returns the processes of a Pod, a Job or a JobSet with a given UID. The status
    is returned unchanged if no process waits, or if the Workloads cannot be listed.
    """
    if not any(map(waits_in_queue, status)):
        return status
    try:
        workloads = items_of(
            experiment.api.call("GET", workloads_path(experiment.api, experiment.namespace))
        )
    except BackendError:  # Without the Workloads, the status is correct but less detailed.
        return status
    return with_queue_reasons(status, workloads, processes_of)


def with_queue_reasons(
    status: ExperimentStatus, workloads: Iterable[Object], processes_of: ProcessesOf
) -> ExperimentStatus:
    """Return ``status`` with the messages of Workloads. Pure."""
    messages: dict[str, str] = {}
    for workload in workloads:
        message = _message(workload)
        for owner in workload["metadata"].get("ownerReferences") or ():
            messages.update(dict.fromkeys(processes_of(owner["uid"]), message))
    processes = []
    for process in status:
        message = messages.get(process.name, "")
        if message and waits_in_queue(process):
            process = replace(process, reason=f"{process.reason}: {message}")
        processes.append(process)
    return replace(status, processes=tuple(processes))


def _message(workload: Object) -> str:
    """Return why the quota of a Workload is not reserved, or ``""``."""
    for condition in (workload.get("status") or {}).get("conditions") or ():
        if condition["type"] == "QuotaReserved" and condition["status"] == "False":
            return reasons.shorten(_NO_FLAVOR.sub("", condition.get("message") or ""))
    return ""
