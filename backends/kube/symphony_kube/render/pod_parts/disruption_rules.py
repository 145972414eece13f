"""The rules by which the controllers of Jobs and JobSets start Pods again after a disruption. Pure.

A disruption, such as the drain of a node, is not a failure; see `symphony.plan.disruption`. Servers
before Kubernetes 1.26 ignore the rules. A Job with these rules creates a Pod only when the previous
one has ended.
"""

from __future__ import annotations

from symphony_kube.render.text import Object

CONDITION = "DisruptionTarget"
_ON_DISRUPTION = [{"type": CONDITION, "status": "True"}]
# A Pod of a Job that a disruption has ended is replaced, and does not count as failed.
IGNORE_DISRUPTIONS: Object = {"action": "Ignore", "onPodConditions": _ON_DISRUPTION}
# A Job of a JobSet fails with a reason of its own, by which the JobSet recognizes the disruption.
_FAIL_ON_DISRUPTION: Object = {"action": "FailJob", "onPodConditions": _ON_DISRUPTION}
RESTART_UNCOUNTED = "RestartJobSetAndIgnoreMaxRestarts"
_FAILED_BY_RULE = "PodFailurePolicy"


def job_fields(limit: int, restart_policy: str | None) -> Object:
    """Return the fields of a Job with at most ``limit`` retries, and whose Pods have a restart
    policy.

    Kubernetes permits rules only if it does not restart the containers of the Pods.
    """
    if not limit or restart_policy != "Never":
        return {}
    return {"podFailurePolicy": {"rules": [IGNORE_DISRUPTIONS]}}


def job_fields_in_job_set(max_restarts: int) -> Object:
    """Return the fields of a Job in a JobSet with at most ``max_restarts`` restarts."""
    return {"podFailurePolicy": {"rules": [_FAIL_ON_DISRUPTION]}} if max_restarts else {}


def job_set_rules(max_restarts: int) -> list[Object]:
    """Return the rules of a JobSet by which a disruption restarts all ranks, and does not count as
    a restart.
    """
    if not max_restarts:
        return []
    return [
        {
            "name": "disrupted",
            "action": RESTART_UNCOUNTED,
            "onJobFailureReasons": [_FAILED_BY_RULE],
        }
    ]
