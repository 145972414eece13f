"""Units as Pods and Jobs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symphony.errors import SpecError
from symphony.model.settings import Settings
from symphony.names import did_you_mean
from symphony_kube.api.labels import EXPERIMENT, MANAGED_BY, SYMPHONY, UNIT
from symphony_kube.render.containers import container, ports
from symphony_kube.render.context import Context, Group
from symphony_kube.render.merge import merged, plain
from symphony_kube.render.text import Object, check_label_keys
from symphony_kube.render.volumes import volumes

DEFAULT_GRACE = 30
MOST_TRIES = 2**31 - 1
_OURS = (MANAGED_BY, EXPERIMENT, UNIT)
_PARTS = ("apiVersion", "kind", "metadata", "spec")


def is_job(group: Group, context: Context) -> bool:
    """Whether a unit becomes a Job."""
    return context.options.jobs_only or group.processes[0].pod.job is not None


def pod(group: Group, context: Context) -> Object:
    """A lone process or a group as a Pod."""
    return {"apiVersion": "v1", "kind": "Pod", **_body(group, context)}


def job(group: Group, context: Context) -> Object:
    """A lone process or a group as a Job."""
    body = _body(group, context)
    policy = body["spec"].get("restartPolicy")
    if policy not in ("Never", "OnFailure"):
        instead = (
            "launch without jobs_only" if group.processes[0].pod.job is None else "leave job() out"
        )
        raise SpecError(
            f"{group.what} has the restart policy {policy}, which a Job cannot have, since it is to end: "
            f"set OnFailure or Never, or {instead}"
        )
    template_metadata = {
        key: value for key, value in body["metadata"].items() if key not in ("name", "namespace")
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": context.metadata(group.name, context.labels(group.name)),
        "spec": {
            **_job_settings(group, policy),
            "template": {"metadata": template_metadata, "spec": body["spec"]},
        },
    }


def annotate(unit: Object, key: str, value: str) -> None:
    """Put an annotation on a Pod, or on a Job and its Pod."""
    bodies = [unit, unit["spec"]["template"]] if unit["kind"] == "Job" else [unit]
    for body in bodies:
        body["metadata"].setdefault("annotations", {})[key] = value


def _job_settings(group: Group, policy: str) -> Object:
    given: Mapping[str, int] = group.processes[0].pod.job or {}
    # Never: symphony starts nothing again unless asked. OnFailure: again and again, as on every backend.
    usual = {"backoff_limit": 0 if policy == "Never" else MOST_TRIES}
    result = {}
    for name, field, most in _JOB_FIELDS:
        value = given.get(name, usual.get(name))
        if value is None:
            continue
        if value > most:
            raise SpecError(
                f"{group.what} has a job with {name}={value}; Kubernetes takes at most {most}"
            )
        result[field] = value
    return result


_JOB_FIELDS = (
    ("backoff_limit", "backoffLimit", MOST_TRIES),
    ("active_deadline", "activeDeadlineSeconds", 2**63 - 1),
    ("ttl", "ttlSecondsAfterFinished", 2**31 - 1),
)


def _body(group: Group, context: Context) -> Object:
    """The metadata and the spec of a Pod."""
    settings = group.processes[0].pod
    mounted = volumes(group, context)
    served = ports(group, context)
    metadata = context.metadata(
        group.name, {**_labels(settings, group), **context.labels(group.name)}
    )
    spec: Object = {
        "restartPolicy": settings.restart_policy or "Never",
        "terminationGracePeriodSeconds": _grace(settings, group),
        "enableServiceLinks": False,
        # Then no program is process 1, which ignores TERM unless it handles it, and nobody's orphans stay.
        "shareProcessNamespace": True,
        **_placing(settings, context),
    }
    if mounted.init:
        spec["initContainers"] = mounted.init
    spec["containers"] = [
        container(process, served.get(process.name, []), mounted.mounts.get(process.name), context)
        for process in group.processes
    ]
    if mounted.volumes:
        spec["volumes"] = mounted.volumes
    body: Object = {"metadata": metadata, "spec": spec}
    return _with_own(group, body, settings.pod_yml) if settings.pod_yml else body


def _labels(settings: Settings, group: Group) -> dict[str, str]:
    for key in settings.labels:
        if key == MANAGED_BY or key.startswith(f"{SYMPHONY}/"):
            raise SpecError(
                f"{group.what} has a label {key!r}, which is symphony's own; choose another key"
            )
    check_label_keys((*settings.labels, *settings.node_selector), group.what)
    return settings.labels


def _grace(settings: Settings, group: Group) -> int:
    grace = settings.termination_grace_period
    if grace is None:
        return DEFAULT_GRACE
    if grace >= 2**63:
        raise SpecError(
            f"{group.what} has a termination_grace_period of {grace} s; Kubernetes takes at most 2^63 - 1"
        )
    return grace


def _placing(settings: Settings, context: Context) -> Object:
    """What says where a Pod runs, as whom, and how its images are got."""
    options = context.options
    given: Object = {
        "serviceAccountName": options.service_account,
        "imagePullSecrets": [{"name": name} for name in options.image_pull_secrets],
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [_toleration(toleration) for toleration in settings.tolerations],
    }
    return {key: value for key, value in given.items() if value}


def _toleration(given: Mapping[str, Any]) -> Object:
    return {
        "tolerationSeconds" if key == "toleration_seconds" else key: value
        for key, value in given.items()
    }


# --- the escape hatch ---


def _with_own(group: Group, body: Object, own: Mapping[str, Any]) -> Object:
    """A Pod with its user's own fields, which must leave alone what symphony finds it by."""
    who = f"pod_yml of {group.what}"
    for key in own:
        if key not in _PARTS:
            hint = did_you_mean(key, _PARTS) or f"; write spec: {{{key}: ...}}"
            raise SpecError(
                f"{who} is laid over the Pod, which has metadata and spec, and no {key!r}{hint}"
            )
    result = merged({"apiVersion": "v1", "kind": "Pod", **body}, plain(own, who))
    _check_kept(result, body, who)
    return {"metadata": result["metadata"], "spec": result["spec"]}


def _check_kept(result: Object, body: Object, who: str) -> None:
    before, after = body["metadata"], _mapping(result.get("metadata"))
    if (result.get("apiVersion"), result.get("kind")) != ("v1", "Pod"):
        raise SpecError(
            f"{who} makes another kind of object of the Pod; leave apiVersion and kind out"
        )
    labels = _mapping(after.get("labels"))
    kept = {key: (before[key], after.get(key)) for key in ("name", "namespace")}
    kept.update({key: (before["labels"][key], labels.get(key)) for key in _OURS})
    for key, (was, now) in kept.items():
        if was != now:
            raise SpecError(
                f"{who} changes {key!r}, by which symphony finds its objects; leave it out"
            )
    if not isinstance(after.get("annotations", {}), dict):
        raise SpecError(f"{who} has annotations that are no mapping: {after['annotations']!r}")
    found = _mapping(result.get("spec")).get("containers")
    there = [_mapping(item).get("name") for item in found] if isinstance(found, list) else []
    missing = [item["name"] for item in body["spec"]["containers"] if item["name"] not in there]
    if missing:
        raise SpecError(
            f"{who} takes the container {missing[0]!r} away; name each container that it changes"
        )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
