"""The deadline of an experiment as the active deadline of its Pods. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from symphony_kube.api.labels import DEADLINE

Object = Mapping[str, Any]


def with_deadline(body: Object, seconds: float | None) -> dict[str, Any]:
    """Return a Pod or a Job that Kubernetes stops when ``seconds`` have passed.

    The Pod is returned unchanged if ``seconds`` is None, or if its active deadline is earlier.
    Kubernetes counts the time from the start of a Pod. A Job that can create several Pods also has
    an active deadline. When it has passed, Kubernetes deletes the running Pod with its logs.
    """
    if seconds is None:
        return dict(body)
    limit = max(1, math.ceil(seconds))
    if body["kind"] != "Job":
        return dict(_limited(body, limit))
    spec = {**body["spec"], "template": _limited(body["spec"]["template"], limit)}
    if spec.get("backoffLimit") and spec.get("activeDeadlineSeconds", limit) >= limit:
        spec["activeDeadlineSeconds"] = limit
    return {**body, "spec": spec}


def _limited(pod: Object, limit: int) -> Object:
    spec = pod["spec"]
    if spec.get("activeDeadlineSeconds", limit) < limit:
        return pod
    metadata = pod["metadata"]
    annotations = {**(metadata.get("annotations") or {}), DEADLINE: str(limit)}
    return {
        **pod,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**spec, "activeDeadlineSeconds": limit},
    }
