"""The fields and labels of a Pod that determine when and where it is scheduled. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from symphony.errors import SpecError
from symphony.model.settings.table import Settings
from symphony_kube.api.labels import COPIES, EXPERIMENT, POD_GROUP, POD_GROUP_SIZE, QUEUE
from symphony_kube.render.render_context import PlannedUnit, RenderContext
from symphony_kube.render.text import Object

# Kueue removes this gate from a Pod, or resumes a Job, when its queue has admitted it.
_QUEUE_GATE = "kueue.x-k8s.io/admission"


def scheduling_fields(unit: PlannedUnit, context: RenderContext) -> Object:
    """Return the fields of the Pod's spec. Raises `SpecError` if two settings contradict."""
    settings, options = unit.processes[0].pod, context.options
    copies = {EXPERIMENT: context.plan.experiment, COPIES: copies_of(unit)}
    selector = {"labelSelector": {"matchLabels": copies}}
    fields: Object = {
        "serviceAccountName": options.service_account,
        "imagePullSecrets": [{"name": name} for name in options.image_pull_secrets],
        "priorityClassName": settings.priority_class,
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [_toleration(toleration) for toleration in settings.tolerations],
        "affinity": _affinity(unit, selector),
        "topologySpreadConstraints": [
            {**_constraint(constraint), **selector} for constraint in settings.topology_spread
        ],
    }
    return {key: value for key, value in fields.items() if value}


def copies_of(unit: PlannedUnit) -> str:
    """Return the name that the ranks of a unit, or the replicas of a process, have in common."""
    return unit.rank_of or re.sub(r"-+[0-9]+$", "", unit.name)


def scheduling_labels(unit: PlannedUnit) -> dict[str, str]:
    """Return the labels of the Pod by which the scheduler and Kueue find it."""
    settings = unit.processes[0].pod
    labels = {}
    if settings.spread or settings.together or settings.topology_spread:
        labels[COPIES] = copies_of(unit)
    if settings.queue:
        labels[QUEUE] = settings.queue
    return labels


def wait_for_queue(pod: Object, unit: PlannedUnit, context: RenderContext) -> None:
    """Let a Pod wait until its queue has admitted it. The ranks of a unit are admitted together."""
    if not unit.processes[0].pod.queue:
        return
    pod["spec"]["schedulingGates"] = [{"name": _QUEUE_GATE}]
    if unit.rank_of is not None:
        ranks = [item for item in context.plan if item.settings.rank_of == unit.rank_of]
        metadata = pod["metadata"]
        metadata["labels"][POD_GROUP] = context.scope.object_name(unit.rank_of)
        metadata.setdefault("annotations", {})[POD_GROUP_SIZE] = str(len(ranks))


def _affinity(unit: PlannedUnit, selector: Object) -> Object:
    settings = unit.processes[0].pod
    _check_topology(unit, settings)
    affinity: Object = {}
    for field, topology in (
        ("podAffinity", settings.together),
        ("podAntiAffinity", settings.spread),
    ):
        if topology:
            term = {**selector, "topologyKey": topology}
            affinity[field] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return affinity


def _check_topology(unit: PlannedUnit, settings: Settings) -> None:
    if settings.spread and settings.spread == settings.together:
        raise SpecError(
            f"{unit.description} has both spread and together for {settings.spread}; remove one of "
            "them, or set different labels of nodes"
        )


def _constraint(settings: Mapping[str, Any]) -> Object:
    return {
        "maxSkew": settings.get("max_skew", 1),
        "topologyKey": settings["key"],
        "whenUnsatisfiable": settings.get("when_unsatisfiable", "DoNotSchedule"),
    }


def _toleration(settings: Mapping[str, Any]) -> Object:
    result = dict(settings)
    if "toleration_seconds" in result:
        result["tolerationSeconds"] = result.pop("toleration_seconds")
    return result
