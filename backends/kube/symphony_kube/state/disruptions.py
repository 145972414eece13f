"""Recognize what took a Pod away, from the Pod's API object. Pure.

Since Kubernetes 1.26, the condition ``DisruptionTarget`` contains the reason
(https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions). Older
versions report only some reasons, in the status of the Pod. A Pod that a user deletes has no
condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symphony.plan.disruption import Disruption, DisruptionCause
from symphony_kube.render.pod_parts.disruption_rules import CONDITION
from symphony_kube.state.reasons import shorten

Object = Mapping[str, Any]

POD_DELETED = "its Pod was deleted"

# The reasons of the condition, and those in the status of a Pod.
_CAUSES = {
    "EvictionByEvictionAPI": DisruptionCause.DRAINED,
    "PreemptionByScheduler": DisruptionCause.PREEMPTED,
    "DeletionByTaintManager": DisruptionCause.EVICTED,
    "TerminationByKubelet": DisruptionCause.EVICTED,
    "DeletionByPodGC": DisruptionCause.NODE_LOST,
    "Evicted": DisruptionCause.EVICTED,
    "Preempting": DisruptionCause.PREEMPTED,
    "NodeShutdown": DisruptionCause.EVICTED,
    "Terminated": DisruptionCause.EVICTED,
    "Shutdown": DisruptionCause.EVICTED,
    "NodeLost": DisruptionCause.NODE_LOST,
}


def find_disruption(
    pod: Object, conditions: Mapping[str, Object], *, node_silent: bool
) -> Disruption | None:
    """Return what takes or took a Pod away, or None if nothing does.

    ``conditions`` contains the conditions of the Pod by type. ``node_silent`` is true if the node
    has stopped reporting.
    """
    status = pod.get("status") or {}
    node = (pod.get("spec") or {}).get("nodeName", "")
    condition = conditions.get(CONDITION) or {}
    reason, message = "", ""
    if condition.get("status") == "True":
        reason, message = condition.get("reason", ""), condition.get("message", "")
    elif status.get("reason") in _CAUSES:
        reason, message = status["reason"], status.get("message", "")
    is_deleted = "deletionTimestamp" in pod["metadata"]
    if not reason and not is_deleted:
        return None
    if reason == "DeletionByTaintManager":
        # The taints of a lost node end its Pods, too.
        message = "the node has a NoExecute taint"
    if node_silent and reason in ("", "DeletionByTaintManager"):
        return Disruption(cause=DisruptionCause.NODE_LOST, node=node)
    if not reason:
        return Disruption(cause=DisruptionCause.REMOVED, node=node, detail=POD_DELETED)
    # Other programs set conditions with reasons of their own.
    cause = _CAUSES.get(reason, DisruptionCause.EVICTED)
    detail = shorten(message or reason) if cause is DisruptionCause.EVICTED else ""
    return Disruption(cause=cause, node=node, detail=detail)
