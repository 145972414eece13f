"""The deadline of an experiment as the active deadline of its Pods. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from symphony_kube.api.labels import DEADLINE

Object = Mapping[str, Any]

_FIELD = "activeDeadlineSeconds"
# The active deadline by which Pods are stopped on request. Kubernetes accepts no shorter one.
SHORTEST_DEADLINE_SECONDS = 1


def with_deadline(body: Object, seconds: float | None) -> dict[str, Any]:
    """Return a Pod or a Job that Kubernetes stops when ``seconds`` have passed.

    The Pod is returned unchanged if ``seconds`` is None, or if its active deadline is earlier.
    Kubernetes counts the time from the start of a Pod. A Job that can create several Pods also has
    an active deadline. When it has passed, Kubernetes deletes the running Pod with its logs. A
    JobSet is returned unchanged, because its supervisor alone stops it at the deadline.
    """
    if seconds is None or body["kind"] == "JobSet":
        return dict(body)
    # A Pod with the shortest deadline counts as stopped on request.
    limit = max(SHORTEST_DEADLINE_SECONDS + 1, math.ceil(seconds))
    if body["kind"] != "Job":
        return dict(_limited(body, limit))
    spec = {**body["spec"], "template": _limited(body["spec"]["template"], limit)}
    if spec.get("backoffLimit") and spec.get(_FIELD, limit) >= limit:
        spec[_FIELD] = limit
    return {**body, "spec": spec}


def with_new_deadline(body: Object, seconds: float | None) -> dict[str, Any]:
    """Return a Pod or a Job that Kubernetes stops when ``seconds`` have passed, if it already has
    the deadline of an experiment as its active deadline.

    With None, the active deadline is removed. Other objects are returned unchanged, because their
    supervisor alone stops them at the deadline.
    """
    if body["kind"] == "JobSet":
        return dict(body)
    is_job = body["kind"] == "Job"
    pod = body["spec"]["template"] if is_job else body
    annotations = dict(pod["metadata"].get("annotations") or {})
    if annotations.pop(DEADLINE, None) is None:
        return dict(body)
    spec = {key: value for key, value in pod["spec"].items() if key != _FIELD}
    pod = {**pod, "metadata": {**pod["metadata"], "annotations": annotations}, "spec": spec}
    if is_job:
        job_spec = {key: value for key, value in body["spec"].items() if key != _FIELD}
        pod = {**body, "spec": {**job_spec, "template": pod}}
    return with_deadline(pod, seconds)


def _limited(pod: Object, limit: int) -> Object:
    spec = pod["spec"]
    if spec.get(_FIELD, limit) < limit:
        return pod
    metadata = pod["metadata"]
    annotations = {**(metadata.get("annotations") or {}), DEADLINE: str(limit)}
    return {
        **pod,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**spec, _FIELD: limit},
    }
