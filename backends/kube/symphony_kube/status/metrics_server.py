"""The resource use of processes according to the cluster's metrics server (``metrics.k8s.io``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.cluster import WatchedStatuses
from symphony.errors import NotFound, Unsupported
from symphony.model.settings.quantities import parse_quantity
from symphony.usage import ExperimentUsage, ProcessUsage
from symphony_kube.api.error_messages import is_forbidden
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import REPLACED_UNIT
from symphony_kube.api.resources import collection_path, items_of

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.api.labels import Scope

# By default, the metrics server measures every 15 seconds.
SHORTEST_INTERVAL_SECONDS = 10.0
_CHECK_SECONDS = 1.0
_ONLY = "metrics.k8s.io reports only CPU and memory"
UNAVAILABLE = dict.fromkeys(("pss", "open_files", "gpu_memory", "gpu_utilization"), _ONLY)

Object = Mapping[str, Any]


def read_metrics(
    experiment: KubeExperiment, *, cancelled: threading.Event | None = None
) -> Sequence[Object]:
    """Return the metrics of an experiment's Pods.

    A failed call is not repeated once ``cancelled`` is set. Raises `Unsupported` with the reason if
    the cluster serves no metrics to this user.
    """
    try:
        answer = experiment.api.call(
            "GET",
            collection_path("PodMetrics", experiment.namespace),
            query={"labelSelector": f"{experiment.scope.present_selector},!{REPLACED_UNIT}"},
            cancelled=cancelled,
        )
    except ApiError as exc:
        raise _explained(exc, experiment.scope) from exc
    return items_of(answer)


def _explained(exc: ApiError, scope: Scope) -> Exception:
    if exc.status == 404:
        return Unsupported(
            "the cluster serves no metrics (metrics.k8s.io); an administrator can install "
            "metrics-server"
        )
    if is_forbidden(exc):
        return Unsupported(
            f"{exc.detail}; ask for the right to list pods in the API group metrics.k8s.io in "
            f"namespace {scope.namespace!r}"
        )
    if exc.status == 503:
        return Unsupported(f"the metrics server of the cluster does not respond: {exc.detail}")
    return exc


def usage_of(metrics: Collection[Object], processes: Collection[str], at: float) -> ExperimentUsage:
    """Return the sample that the metrics of Pods contain.

    A container has the name of its process. Other containers, such as sidecars, are omitted. A Pod
    has no metrics until it has been measured.
    """
    by_name = {
        container["name"]: container["usage"]
        for pod in metrics
        for container in pod.get("containers") or ()
    }
    usages = tuple(
        ProcessUsage(
            process=name,
            cpu=float(parse_quantity(by_name[name].get("cpu", 0))),
            memory=int(parse_quantity(by_name[name].get("memory", 0))),
        )
        for name in processes
        if name in by_name
    )
    return ExperimentUsage(at=at, processes=usages, unavailable=UNAVAILABLE)


def follow_usage(
    experiment: KubeExperiment, read: Callable[[], WatchedStatuses], interval: float
) -> Iterator[ExperimentUsage]:
    """Yield samples until the experiment has finished or was deleted.

    ``read`` returns its current status; see `Cluster.watch_experiment`.
    """
    due = 0.0
    try:
        while True:
            (status,) = read().statuses
            if status.ended:
                return
            if time.monotonic() >= due:
                metrics = read_metrics(experiment)
                yield usage_of(metrics, [process.name for process in status], time.time())
                due = time.monotonic() + max(interval, SHORTEST_INTERVAL_SECONDS)
            time.sleep(_CHECK_SECONDS)
    except NotFound:
        return
