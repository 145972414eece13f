"""Render the ranks of a unit as a JobSet (``jobset.x-k8s.io``). Pure.

The JobSet contains one Job for each Pod of the unit. Each of these Jobs fails when its Pod fails,
and the controller of JobSets then restarts or fails all of them. The Pods have the host names that
symphony gives them, so they do not need those of the controller.
"""

from __future__ import annotations

from collections.abc import Sequence

from symphony.errors import SpecError
from symphony.plan.policies import RESTART
from symphony.support.names import MAX_LENGTH
from symphony_kube.api.labels import RANK_OF
from symphony_kube.api.resources import KINDS
from symphony_kube.render.pod_parts import disruption_rules
from symphony_kube.render.pods import pod_body, pod_template, queue_label, waiting_fields
from symphony_kube.render.render_context import PlannedUnit, RenderContext
from symphony_kube.render.text import Object

# The number of restarts of a JobSet that has no limit.
UNLIMITED_RESTARTS = 2**31 - 1
# The reason with which a Job fails whose active deadline has passed. Symphony stops JobSets so.
_DEADLINE_EXCEEDED = "DeadlineExceeded"


def job_set(ranks: Sequence[PlannedUnit], context: RenderContext) -> Object:
    """Return the JobSet for the ranks of a unit, or for their Pods if they share Pods.

    Raises `SpecError` if a JobSet does not support the settings of the ranks.
    """
    first, name = ranks[0], ranks[0].rank_of or ""
    for rank in ranks:
        _check_rank(rank, first)
    _check_policies(first, context)
    _check_size(ranks, context)
    labels = {**context.scope.labels, RANK_OF: name, **queue_label(first)}
    return {
        "apiVersion": KINDS["JobSet"][0].removeprefix("/apis/"),
        "kind": "JobSet",
        "metadata": context.metadata(name, labels),
        "spec": {
            **waiting_fields(first),
            "network": {"enableDNSHostnames": False},
            "successPolicy": {"operator": "All"},
            "failurePolicy": {
                "maxRestarts": _max_restarts(first),
                # A rank that is stopped must not be started again.
                "rules": [
                    {
                        "name": "stopped",
                        "action": "FailJobSet",
                        "onJobFailureReasons": [_DEADLINE_EXCEEDED],
                    },
                    *disruption_rules.job_set_rules(_max_restarts(first)),
                ],
            },
            "replicatedJobs": [
                {"name": job_name(number), "replicas": 1, "template": _job_template(rank, context)}
                for number, rank in enumerate(ranks)
            ],
        },
    }


def job_name(number: int) -> str:
    """Return the name of a Job in a JobSet. ``number`` counts its Pods from 0."""
    return f"rank-{number}"


def _job_template(rank: PlannedUnit, context: RenderContext) -> Object:
    return {
        "metadata": {"labels": context.labels(rank.name)},
        "spec": {
            # The Pods of an indexed Job have other host names.
            "completionMode": "NonIndexed",
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            **disruption_rules.job_fields_in_job_set(_max_restarts(rank)),
            "template": pod_template(pod_body(rank, context)),
        },
    }


def _max_restarts(rank: PlannedUnit) -> int:
    restart = rank.processes[0].restart
    if restart.policy == "Never":
        return 0
    return UNLIMITED_RESTARTS if restart.max_restarts is None else restart.max_restarts


def _check_rank(rank: PlannedUnit, first: PlannedUnit) -> None:
    process, other = rank.processes[0], first.processes[0]
    if process.pod.job is not None:
        raise SpecError(f"{rank.description} has both job and jobset; remove job")
    if process.restart.policy == "Always":
        raise SpecError(
            f"{rank.description} has the restart policy Always, which a JobSet cannot have because "
            "it runs to completion: set OnFailure or Never, or remove jobset"
        )
    for setting, given, expected in (
        ("restart_policy", process.restart, other.restart),
        ("starts_after", process.starts_after, other.starts_after),
        ("queue", process.pod.queue, other.pod.queue),
    ):
        if given != expected:
            raise SpecError(
                f"{rank.description} has another {setting} than {first.processes[0].name!r}, with "
                "which it forms a JobSet; set the same for all ranks, or remove jobset"
            )


def _check_policies(rank: PlannedUnit, context: RenderContext) -> None:
    if context.plan.policies.on_failure == RESTART:
        raise SpecError(
            f"{rank.description} is in a JobSet, whose controller alone restarts it, so the "
            "experiment cannot restart as a whole: set another on_failure, or remove jobset"
        )


def _check_size(ranks: Sequence[PlannedUnit], context: RenderContext) -> None:
    first, unit = ranks[0], ranks[0].rank_of or ""
    last = f"{context.scope.object_name(unit)}-{job_name(len(ranks) - 1)}-0"
    if len(last) > MAX_LENGTH:
        raise SpecError(
            f"{first.description} is in a JobSet, whose Job {last!r} has {len(last)} characters in "
            f"its name, and Kubernetes allows {MAX_LENGTH}; shorten {unit!r}"
        )
