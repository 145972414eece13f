"""Decide whether a unit becomes a Pod or a Job, and what restarts and replaces it. Pure."""

from __future__ import annotations

from symphony.errors import SpecError
from symphony_kube.render.file_objects.code_volumes import fits_into_secrets
from symphony_kube.render.render_context import PlannedUnit, RenderContext


def is_job(unit: PlannedUnit, context: RenderContext) -> bool:
    """Return whether a unit is rendered as a Job.

    Raises `SpecError` if the unit consists of ranks and its settings require a Job.
    """
    if unit.job_set is not None:
        return False
    if unit.rank_of is not None:
        _refuse_job(unit, context)
        return False
    if context.options.jobs_only or unit.processes[0].pod.job is not None:
        return True
    return is_restarted_by_job(unit) and not is_restarted_by_supervisor(unit, context)


def is_restarted_by_supervisor(unit: PlannedUnit, context: RenderContext) -> bool:
    """Return whether the supervisor restarts a unit, because Kubernetes cannot apply its policy.

    Kubernetes chooses the delays between restarts, and a Pod has no limit for their number. The
    supervisor replaces the Pod of a group as a whole, and the Pods of ranks together.
    """
    if unit.rank_of is not None:
        return unit.job_set is None and unit.processes[0].restart.policy != "Never"
    if context.options.jobs_only or unit.processes[0].pod.job is not None:
        return False
    restart = unit.processes[0].restart
    if restart.policy == "Never":
        return False
    if restart.backoff is not None or restart.final_codes:
        return True
    return restart.max_restarts is not None and not is_restarted_by_job(unit)


def is_restarted_by_job(unit: PlannedUnit) -> bool:
    """Return whether a Job or a JobSet limits the number of restarts of a unit.

    A Pod has no limit for the number of restarts, but a Job has a limit for the number of Pods that
    replace failed Pods. A Pod with several containers fails only when all of them have exited, so a
    Job does not restart the members of a group. It does not restart the other ranks of a unit, but
    a JobSet does.
    """
    restart = unit.processes[0].restart
    if unit.rank_of is not None:
        return unit.job_set is not None and restart.policy == "OnFailure"
    is_limited = restart.policy == "OnFailure" and restart.max_restarts is not None
    return is_limited and not unit.is_group


def is_judged_by_exit_code(unit: PlannedUnit, context: RenderContext) -> bool:
    """Return whether Kubernetes decides by the exit code of a unit whether it has failed.

    Otherwise, symphony decides this, or the unit is restarted after each exit.
    """
    if unit.job_set is not None or is_job(unit, context):
        return True
    is_restarted = unit.processes[0].restart.policy == "OnFailure"
    return is_restarted and not is_restarted_by_supervisor(unit, context)


def is_created_later(unit: PlannedUnit, context: RenderContext) -> bool:
    """Return whether Pods of a unit are also created when no command of the user runs."""
    if unit.processes[0].starts_after or unit.rank_of is not None or is_job(unit, context):
        return True
    restarts_experiment = context.plan.policies.on_failure == "restart"
    return restarts_experiment or is_replaced_if_lost(unit, context)


def is_replaced_if_lost(unit: PlannedUnit, context: RenderContext) -> bool:
    """Return whether the supervisor starts a unit again after a disruption.

    A disruption is, for example, the drain of its node; see `symphony.plan.disruption`. The
    controller of a Job or JobSet does this itself. A Pod whose code only the user's command can
    send is not started again, unless the supervisor also restarts it.
    """
    if unit.processes[0].restart.policy == "Never" or unit.job_set is not None:
        return False
    if is_job(unit, context):
        return False
    if unit.rank_of is not None or is_restarted_by_supervisor(unit, context):
        return True
    archives = [context.archives.get(process.name) for process in unit.processes]
    return all(archive is None or fits_into_secrets(archive) for archive in archives)


def _refuse_job(unit: PlannedUnit, context: RenderContext) -> None:
    """Raise `SpecError` if a rank would be a Job."""
    alternative = None
    if unit.processes[0].pod.job is not None:
        alternative = "remove job(), and set a restart_policy with max_restarts"
    elif context.options.jobs_only:
        alternative = "launch without jobs_only"
    if alternative is not None:
        raise SpecError(
            f"{unit.description} is a rank, which cannot be a Job, because a Job does not restart "
            f"the other ranks: {alternative}"
        )
