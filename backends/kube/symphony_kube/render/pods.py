"""Render units as Pods and Jobs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symphony.errors import SpecError, default_error_path
from symphony.model.settings.table import Settings
from symphony.plan.resolution.ranks import master_service
from symphony.support.names import did_you_mean
from symphony_kube.api.labels import EXPERIMENT, MANAGED_BY, QUEUE, RANK_OF, SYMPHONY, UNIT
from symphony_kube.render.given_fields.cluster_overrides import with_cluster_override, with_security
from symphony_kube.render.given_fields.merge import merge, to_plain_data
from symphony_kube.render.object_kinds import (
    is_created_later,
    is_judged_by_exit_code,
    is_restarted_by_job,
    is_restarted_by_supervisor,
)
from symphony_kube.render.pod_parts import disruption_rules
from symphony_kube.render.pod_parts.container_checks import check_container
from symphony_kube.render.pod_parts.containers import (
    DEFAULT_GRACE_SECONDS,
    container,
    ports,
    with_stop_hook,
    with_stop_signal,
)
from symphony_kube.render.pod_parts.scheduling import (
    scheduling_fields,
    scheduling_labels,
    wait_for_queue,
)
from symphony_kube.render.pod_parts.volumes import pod_volumes
from symphony_kube.render.render_context import PlannedUnit, RenderContext
from symphony_kube.render.stop_script import with_mounted_script
from symphony_kube.render.text import Object, check_label_keys

MAX_BACKOFF_LIMIT = 2**31 - 1
# The labels that symphony uses to find its Pods.
_SYMPHONY_LABELS = (MANAGED_BY, EXPERIMENT, UNIT, RANK_OF)
_POD_KEYS = ("apiVersion", "kind", "metadata", "spec")

# Maps the settings of a job to the fields of the Job.
_JOB_FIELDS = {
    "backoff_limit": "backoffLimit",
    "active_deadline": "activeDeadlineSeconds",
    "ttl": "ttlSecondsAfterFinished",
}


def pod(unit: PlannedUnit, context: RenderContext) -> Object:
    """Return the Pod for a unit."""
    body = {"apiVersion": "v1", "kind": "Pod", **pod_body(unit, context)}
    wait_for_queue(body, unit, context)
    return body


def job(unit: PlannedUnit, context: RenderContext) -> Object:
    """Return the Job for a unit.

    Raises `SpecError` if a Job does not support the unit's settings.
    """
    body = pod_body(unit, context)
    policy = body["spec"].get("restartPolicy")
    if policy not in ("Never", "OnFailure"):
        by_option = unit.processes[0].pod.job is None
        alternative = "launch without jobs_only" if by_option else "remove job()"
        raise SpecError(
            f"{unit.description} has the restart policy {policy}, which a Job cannot have "
            f"because it runs to completion: set OnFailure or Never, or {alternative}"
        )
    # Systems such as Kueue read the labels of Jobs.
    labels = {
        **_user_labels(unit.processes[0].pod, unit),
        **context.labels(unit.name),
        **queue_label(unit),
    }
    result = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": context.metadata(unit.name, labels),
        "spec": {
            **_job_settings(unit, policy),
            **waiting_fields(unit),
            "template": pod_template(body),
        },
    }
    return with_cluster_override(result, context.options)


def pod_template(body: Object) -> Object:
    """Return the Pod of a unit as the template of a Job.

    A Job generates the names of its Pods. Kueue admits the Job or JobSet, and not its Pods.
    """
    metadata = dict(body["metadata"])
    del metadata["name"], metadata["namespace"]
    metadata["labels"].pop(QUEUE, None)
    return {"metadata": metadata, "spec": body["spec"]}


def queue_label(unit: PlannedUnit) -> dict[str, str]:
    """Return the label of a Job or JobSet by which Kueue finds it, if it has a queue."""
    queue = unit.processes[0].pod.queue
    return {QUEUE: queue} if queue else {}


def waiting_fields(unit: PlannedUnit) -> Object:
    """Return the fields of a Job or JobSet with which it waits for its queue, if it has one."""
    return {"suspend": True} if unit.processes[0].pod.queue else {}


def annotate(body: Object, key: str, value: str) -> None:
    """Add an annotation to a Pod, to a Job and its Pod template, or to a JobSet and the Pod
    template of its first rank.
    """
    targets = [body]
    if body["kind"] == "Job":
        targets.append(body["spec"]["template"])
    elif body["kind"] == "JobSet":
        first = body["spec"]["replicatedJobs"][0]["template"]
        targets.append(first["spec"]["template"])
    for target in targets:
        target["metadata"].setdefault("annotations", {})[key] = value


def _job_settings(unit: PlannedUnit, policy: str) -> Object:
    settings = dict(unit.processes[0].pod.job or {})
    if is_restarted_by_job(unit):
        settings.setdefault("backoff_limit", unit.processes[0].restart.max_restarts)
    # By default, Kubernetes retries a failed Job six times. On every symphony backend, a process
    # with the restart policy Never is not started again, and a process with the restart policy
    # OnFailure is restarted without a limit.
    settings.setdefault("backoff_limit", 0 if policy == "Never" else MAX_BACKOFF_LIMIT)
    limit = settings["backoff_limit"]
    if limit > MAX_BACKOFF_LIMIT:
        raise SpecError(
            f"{unit.description} has a job with backoff_limit={limit}; the maximum on Kubernetes "
            f"is {MAX_BACKOFF_LIMIT}"
        )
    given = {field: settings.get(name) for name, field in _JOB_FIELDS.items()}
    fields = {field: value for field, value in given.items() if value is not None}
    return {**fields, **disruption_rules.job_fields(limit, policy)}


def pod_body(unit: PlannedUnit, context: RenderContext) -> Object:
    """Return the metadata and spec of a unit's Pod."""
    settings = unit.processes[0].pod
    mounted = pod_volumes(unit, context, sends_code=not is_created_later(unit, context))
    ports_of = ports(unit)
    labels = {
        **_user_labels(settings, unit),
        **context.labels(unit.name),
        **scheduling_labels(unit),
    }
    names: Object = {}
    if unit.rank_of is not None:
        labels[RANK_OF] = unit.rank_of
        service = master_service(unit.rank_of)
        names = {
            "hostname": context.scope.object_name(unit.name),
            "subdomain": context.scope.object_name(service),
        }
    spec: Object = {
        **names,
        "restartPolicy": _restart_policy(unit, context),
        "terminationGracePeriodSeconds": _grace_seconds(settings),
        "enableServiceLinks": False,
        # A program with process ID 1 ignores TERM unless it handles the signal, and it has to reap
        # orphaned processes. In a shared process namespace, none of the containers' programs has
        # process ID 1.
        "shareProcessNamespace": True,
        **scheduling_fields(unit, context),
    }
    if mounted.init_containers:
        spec["initContainers"] = mounted.init_containers
    containers = spec["containers"] = []
    for process in unit.processes:
        with default_error_path(*process.document_path):
            rendered = container(
                process,
                ports_of.get(process.name, []),
                mounted.mounts.get(process.name),
                context,
                is_judged_by_exit_code=is_judged_by_exit_code(unit, context),
            )
        containers.append(rendered)
    if mounted.volumes:
        spec["volumes"] = mounted.volumes
    body: Object = {"metadata": context.metadata(unit.name, labels), "spec": spec}
    options = context.options
    if options.pod_yml:
        body = _apply_override(body, options.pod_yml, "the option pod_yml")
    if settings.pod_yml:
        body = _apply_override(body, settings.pod_yml, f"pod_yml of {unit.description}")
    _check_containers(unit, body["spec"].get("containers"))
    spec = _with_stop_signals(body["spec"], unit, context)
    spec = _with_stop_hooks(spec, unit, context)
    return {**body, "spec": with_security(spec, options.security)}


def mounts_scripts(context: RenderContext) -> bool:
    """Return whether containers mount the script that stops programs.

    With ``jobs_only``, users may not be allowed to create the ConfigMap that contains it.
    """
    return not context.options.jobs_only


def _with_stop_signals(spec: Object, unit: PlannedUnit, context: RenderContext) -> Object:
    """Return the spec of a Pod whose node sends the signals of its processes instead of TERM.

    A hook sends them first, but cannot run in an image without a shell. The controller of a JobSet
    may have been built before Kubernetes had the field.
    """
    os = {"name": "linux", **(spec.get("os") or {})}
    if not context.options.stop_signals or unit.job_set is not None or os["name"] != "linux":
        return spec
    processes = {process.name: process for process in unit.processes}
    containers = []
    for item in spec["containers"]:
        process = processes.get(item.get("name", ""))
        containers.append(item if process is None else with_stop_signal(process, item))
    if containers == spec["containers"]:
        return spec
    # Kubernetes accepts the field only together with the operating system.
    return {**spec, "os": os, "containers": containers}


def _with_stop_hooks(spec: Object, unit: PlannedUnit, context: RenderContext) -> Object:
    """Return the spec of a Pod in which the programs are stopped by their containers' hooks.

    The hooks depend on the grace period, which overrides can change.
    """
    grace = spec.get("terminationGracePeriodSeconds")
    # A script could confuse the processes of a Pod that sees the processes of its node.
    if not isinstance(grace, int) or spec.get("hostPID"):
        return spec
    processes = {process.name: process for process in unit.processes}
    failure = is_judged_by_exit_code(unit, context)
    mounted = mounts_scripts(context)
    containers = []
    for item in spec["containers"]:
        process = processes.get(item.get("name", ""))
        if process is not None:
            item = with_stop_hook(process, item, grace, failure=failure, mounted=mounted)
        containers.append(item)
    return with_mounted_script({**spec, "containers": containers}, context.scope)


def _check_containers(unit: PlannedUnit, containers: Any) -> None:
    """Raise `SpecError` if the API server would refuse the container of a process."""
    processes = {process.name: process for process in unit.processes}
    for rendered in containers:
        process = processes.get(rendered.get("name"))
        if process is not None:
            with default_error_path(*process.document_path):
                check_container(rendered, process.path)


def _restart_policy(unit: PlannedUnit, context: RenderContext) -> str:
    # If a Job or the supervisor restarts the process, each attempt has its own Pod, which keeps its
    # log.
    if is_restarted_by_job(unit) or is_restarted_by_supervisor(unit, context):
        return "Never"
    return unit.processes[0].restart.policy


def _user_labels(settings: Settings, unit: PlannedUnit) -> dict[str, str]:
    """Return the labels that the user set.

    Raises `SpecError` if they include a label that is reserved for symphony.
    """
    for key in settings.labels:
        if key == MANAGED_BY or key.startswith(f"{SYMPHONY}/"):
            raise SpecError(
                f"{unit.description} has a label {key!r}, which is reserved for symphony; choose "
                "another key"
            )
    check_label_keys((*settings.labels, *settings.node_selector), unit.description)
    return settings.labels


def _grace_seconds(settings: Settings) -> int:
    seconds = settings.termination_grace_period
    return DEFAULT_GRACE_SECONDS if seconds is None else seconds


# --- pod_yml ---


def _apply_override(body: Object, pod_yml: Mapping[str, Any], description: str) -> Object:
    """Merge pod_yml into a rendered Pod, whose fields it overrides.

    ``description`` names this pod_yml in messages.

    Raises `SpecError` if pod_yml is not a valid part of a Pod, if it changes a field that symphony
    uses to find its objects, or if it removes a container.
    """
    for key in pod_yml:
        if key not in _POD_KEYS:
            hint = did_you_mean(key, _POD_KEYS) or f"; write spec: {{{key}: ...}}"
            raise SpecError(
                f"{description} is merged over the Pod, which has metadata and spec, but no {key!r}"
                f"{hint}"
            )
    rendered = {"apiVersion": "v1", "kind": "Pod", **body}
    result = merge(rendered, to_plain_data(pod_yml, description))
    _check_identity(result, body, description)
    return {"metadata": result["metadata"], "spec": result["spec"]}


def _check_identity(result: Object, body: Object, description: str) -> None:
    """Raise `SpecError` if an override changed a Pod's identity or removed a container.

    The identity consists of the kind, the name, the namespace and symphony's labels.
    """
    if (result.get("apiVersion"), result.get("kind")) != ("v1", "Pod"):
        raise SpecError(
            f"{description} changes the kind of the object, which is a Pod; remove apiVersion "
            "and kind"
        )
    before = body["metadata"]
    after = _as_mapping(result.get("metadata"))
    labels = _as_mapping(after.get("labels"))
    changed = [key for key in ("name", "namespace") if after.get(key) != before[key]]
    expected = before["labels"]
    changed += [key for key in _SYMPHONY_LABELS if labels.get(key) != expected.get(key)]
    if changed:
        raise SpecError(
            f"{description} changes {changed[0]!r}, by which symphony finds its objects; remove it"
        )
    annotations = after.get("annotations", {})
    if not isinstance(annotations, dict):
        raise SpecError(f"{description} has annotations that are not a mapping: {annotations!r}")
    containers = _as_mapping(result.get("spec")).get("containers")
    if not isinstance(containers, list):
        containers = []
    names = [_as_mapping(item).get("name") for item in containers]
    for item in body["spec"]["containers"]:
        if item["name"] not in names:
            raise SpecError(
                f"{description} removes the container {item['name']!r}; name each container that "
                "it changes"
            )


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
