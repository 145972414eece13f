"""What the roster contains about the units of a plan. Pure."""

from __future__ import annotations

from typing import Any

from symphony_kube.render import object_kinds
from symphony_kube.render.pod_parts.containers import DEFAULT_READY_TIMEOUT_SECONDS
from symphony_kube.render.render_context import PlannedUnit, RenderContext
from symphony_kube.render.roster import Unit
from symphony_kube.render.text import Object


def roster_entry(unit: PlannedUnit, body: Object | None, context: RenderContext) -> Unit:
    """Return the roster entry for a unit. ``body`` is None for the other ranks of a JobSet."""
    is_job = body is not None and body["kind"] == "Job"
    ready: dict[str, float] = {}
    logs: dict[str, str] = {}
    connects: dict[str, list[str]] = {}
    serves: dict[str, list[str]] = {}
    for process in unit.processes:
        test = process.settings.ready
        if test:
            ready[process.name] = float(test.get("timeout", DEFAULT_READY_TIMEOUT_SECONDS))
            if "log" in test:
                logs[process.name] = test["log"]
        if process.settings.connects:
            connects[process.name] = process.settings.connects
        served = [item.service for item in process.serves if item.owner == process.name]
        if unit.is_group and served:
            serves[process.name] = served
    supervised: dict[str, Any] = {}
    if object_kinds.is_restarted_by_supervisor(unit, context):
        policy = unit.processes[0].restart.value()
        supervised = {"policy": policy} if isinstance(policy, str) else policy
    return Unit(
        name=unit.name,
        group=unit.is_group,
        processes=tuple(process.name for process in unit.processes),
        job=is_job,
        restart=_restart_policy(body),
        starts_after=dict(unit.processes[0].starts_after),
        ready=ready,
        logs=logs,
        connects=connects,
        serves=serves,
        supervised_restart=supervised,
        replaced_if_lost=object_kinds.is_replaced_if_lost(unit, context),
        rank_of=(unit.rank_of or "") if unit.job_set is None else "",
        within=unit.processes[0].settings.together_or_not or 0.0,
        job_set=unit.job_set or "",
    )


def _restart_policy(body: Object | None) -> str:
    """Return the restart policy of a Pod, or of the Pods of a Job or JobSet."""
    if body is None or body["kind"] == "JobSet":
        return "Never"
    spec = body["spec"]["template"]["spec"] if body["kind"] == "Job" else body["spec"]
    return spec.get("restartPolicy") or "Always"
