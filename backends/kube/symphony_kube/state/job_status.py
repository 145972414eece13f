"""Read the retries and the result of a Job or a JobSet from its API object. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from symphony.status import ReasonCode, State
from symphony_kube.api import labels
from symphony_kube.api.labels import unit_of
from symphony_kube.api.resources import parse_time
from symphony_kube.record.encoded_record import NO_RECORD, EncodedRecord, record_in
from symphony_kube.render.pod_parts.disruption_rules import IGNORE_DISRUPTIONS, RESTART_UNCOUNTED
from symphony_kube.state import reasons
from symphony_kube.state.control_state import (
    FIRST_ATTEMPT,
    NO_CONTROL,
    Attempt,
    Control,
    after_restarts,
    decode_attempt,
    decode_control,
)
from symphony_kube.state.reasons import NO_REASON, Reason, deadline_exceeded

Object = Mapping[str, Any]

# The first and the longest delay, in seconds, before the Job controller retries. The delay doubles
# with each failure.
FIRST_BACK_OFF_SECONDS, MAX_BACK_OFF_SECONDS = 10, 360
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
# Completed is a condition of JobSets.
_RESULTS = {"Failed": State.FAILED, "Complete": State.SUCCEEDED, "Completed": State.SUCCEEDED}
# Since Kubernetes 1.31, the Job controller sets these conditions when it has decided on the result,
# and those above when all Pods have finished.
_TARGETS = {"FailureTarget": State.FAILED, "SuccessCriteriaMet": State.SUCCEEDED}
# The part of the message of a failed JobSet that names the Job whose failure was the reason.
_FIRST_FAILED = re.compile(r"first failed job: ([-a-z0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The state of a Job, or that of a JobSet for one of its ranks.

    ``result`` is `State.SUCCEEDED`, `State.FAILED`, or None while the Job has not finished.
    ``target`` is the result that the controller has decided on, which it reports as soon as the
    Pods have finished. ``failures`` is the number of Pods that the controller counts as failed, and
    ``failed_pods`` contains the UIDs of those that it has counted last. ``backoff_limit`` is the
    maximum number of retries, and ``processes`` contains the names of the containers in the Job's
    Pods. ``first_failed`` is the unit whose failure was the reason for that of its JobSet, or
    ``""``. If ``ignores_disruptions`` is true, a Pod that a disruption has ended does not count as
    failed. If ``ends_early`` is true, a JobSet can succeed while some of its ranks run, which its
    controller then stops. Times are seconds since the epoch.
    """

    kind: str = "Job"
    name: str
    uid: str
    unit: str
    created: float = 0.0
    record: EncodedRecord = NO_RECORD
    attempt: Attempt = FIRST_ATTEMPT
    control: Control = NO_CONTROL
    has_manifest: bool = False
    backoff_limit: int = 6
    result: State | None = None
    target: State | None = None
    failures: int = 0
    failed_pods: tuple[str, ...] = ()
    reason: Reason = NO_REASON
    retries_exhausted: bool = False
    first_failed: str = ""
    processes: tuple[str, ...] = ()
    ended: float | None = None
    suspended: bool = False
    ignores_disruptions: bool = False
    ends_early: bool = False
    queue: str = ""
    deleting: bool = False


def parse_job(job: Object) -> JobStatus:
    """Return the state of a Job from its API object."""
    metadata, spec, status = job["metadata"], job["spec"], job.get("status", {})
    result, condition = _find_result(status, _RESULTS)
    target, target_condition = _find_result(status, _TARGETS)
    failed = State.FAILED in (result, target)
    failed_pods = (status.get("uncountedTerminatedPods") or {}).get("failed") or ()
    failures = (status.get("failed") or 0) + len(failed_pods)
    reason = NO_REASON
    if failed:
        reason = _failure_reason(spec, failures, condition or target_condition)
    return replace(
        _common_status(job),
        unit=unit_of(metadata.get("labels") or {}) or metadata["name"],
        backoff_limit=spec.get("backoffLimit", 6),
        result=result,
        target=target,
        failures=failures,
        failed_pods=tuple(failed_pods),
        reason=reason,
        retries_exhausted=failed and condition.get("reason") == BACKOFF_LIMIT_EXCEEDED,
        processes=_containers(spec["template"]),
        ended=parse_time(condition.get("lastTransitionTime")),
        ignores_disruptions=_ignores_disruptions(spec),
    )


def parse_job_set(job_set: Object) -> list[JobStatus]:
    """Return the state of a JobSet for each of its ranks, from its API object.

    Each restart of the JobSet is an attempt of its ranks.
    """
    spec, status = job_set["spec"], job_set.get("status") or {}
    common = _common_status(job_set)
    policy = spec.get("failurePolicy") or {}
    limit = policy.get("maxRestarts") or 0
    success = spec.get("successPolicy") or {}
    restarts = status.get("restarts") or 0
    counted = status.get("restartsCountTowardsMax", restarts)
    result, condition = _find_result(status, _RESULTS)
    message = condition.get("message", "")
    first_failed = _FIRST_FAILED.search(message)
    jobs = {f"{common.name}-{job['name']}-0": job["template"] for job in spec["replicatedJobs"]}
    units = {name: unit_of(template["metadata"]["labels"]) for name, template in jobs.items()}
    reason = Reason(reasons.with_message(condition.get("reason", ""), message), ReasonCode.EXITED)
    common = replace(
        common,
        kind="JobSet",
        # A restart after a disruption does not count.
        attempt=replace(
            after_restarts(common.attempt, restarts), restarts=common.attempt.restarts + counted
        ),
        backoff_limit=limit,
        ignores_disruptions=any(
            rule.get("action") == RESTART_UNCOUNTED for rule in policy.get("rules") or ()
        ),
        result=result,
        reason=reason if result is State.FAILED else NO_REASON,
        retries_exhausted=counted >= limit,
        first_failed=units.get(first_failed[1], "") if first_failed else "",
        ended=parse_time(condition.get("lastTransitionTime")),
        ends_early=success.get("operator") == "Any" or bool(success.get("targetReplicatedJobs")),
    )
    return [
        replace(common, unit=units[name], processes=_containers(template["spec"]["template"]))
        for name, template in jobs.items()
    ]


def _ignores_disruptions(spec: Object) -> bool:
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    return IGNORE_DISRUPTIONS in rules


def is_in_job_set(job: Object) -> bool:
    """Return whether a Job belongs to a JobSet, which shows its state."""
    owners = job["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") == "JobSet" for owner in owners)


def _common_status(body: Object) -> JobStatus:
    """Return the part of the state that Jobs and JobSets have in common."""
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    return JobStatus(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        unit="",
        created=parse_time(metadata.get("creationTimestamp")) or 0.0,
        record=record_in(annotations),
        attempt=decode_attempt(annotations.get(labels.ATTEMPT)),
        control=decode_control(annotations.get(labels.CONTROL)),
        has_manifest=labels.MANIFEST in annotations,
        suspended=bool(body["spec"].get("suspend")),
        queue=(metadata.get("labels") or {}).get(labels.QUEUE, ""),
        deleting="deletionTimestamp" in metadata,
    )


def _containers(template: Object) -> tuple[str, ...]:
    return tuple(container["name"] for container in template["spec"]["containers"])


def back_off_seconds(failures: int) -> int:
    """Return the delay in seconds before a Job's next retry after ``failures`` failures."""
    doublings = min(max(failures - 1, 0), 64)
    return int(min(FIRST_BACK_OFF_SECONDS * 2.0**doublings, MAX_BACK_OFF_SECONDS))


def _find_result(status: Object, results: Mapping[str, State]) -> tuple[State | None, Object]:
    """Return the result of a Job or JobSet, and the condition that reports it.

    ``results`` maps the types of these conditions to results.
    """
    for condition in status.get("conditions") or ():
        if condition["type"] in results and condition["status"] == "True":
            return results[condition["type"]], condition
    return None, {}


def _failure_reason(spec: Object, failures: int, condition: Object) -> Reason:
    reason = condition.get("reason", "")
    deadline = spec.get("activeDeadlineSeconds")
    if reason == "DeadlineExceeded":
        if deadline:
            return deadline_exceeded(deadline)
        text = reasons.with_message(reason, condition.get("message", ""))
        return Reason(text, ReasonCode.DEADLINE_EXCEEDED)
    if reason == BACKOFF_LIMIT_EXCEEDED:
        text = f"{reason}: failed {failures} times" if failures > 1 else reason
        return Reason(text, ReasonCode.EXITED)
    return Reason(reasons.with_message(reason, condition.get("message", "")), ReasonCode.EXITED)
