"""The supervisor as a Job in the experiment's namespace.

A Secret contains the description of the run, and its annotation the supervisor's record. A Job
keeps one Pod of the supervisor running until the supervisor has finished, also if the Pod is
deleted or its node is lost. A Role permits the supervisor's service account to use the Secret, and
to create and observe Pods and Jobs in the namespace. If the resource use is recorded, a second
Secret contains it.
"""

from __future__ import annotations

import base64
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.errors import LaunchFailed
from symphony_kube.api import error_messages
from symphony_kube.api.client import ACCEPT_METADATA, ACCEPT_METADATA_LIST, MERGE_PATCH
from symphony_kube.api.compare_and_swap import MAX_TRIES, changed_too_often
from symphony_kube.api.errors import ApiError, one_line
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import (
    DESCRIPTION,
    MANAGED_BY,
    MANAGED_SELECTOR,
    RUN,
    SUPERVISOR,
    SYMPHONY,
    USAGE,
    Scope,
)
from symphony_kube.api.resources import (
    NAMESPACES,
    api_group,
    collection_path,
    is_managed,
    items_of,
    labels_of,
    pods_of,
    to_resource,
    with_run_label,
)
from symphony_kube.lifecycle import wait_deleted
from symphony_kube.lifecycle.create import Creation, NameTaken, delete_uid
from symphony_kube.lifecycle.rights import may
from symphony_kube.lifecycle.supervisor.run import SupervisedRun, decode_run, encode_run
from symphony_kube.lifecycle.supervisor.stored_usage import (
    UsageInSecret,
    recorded_content,
    usage_object,
)
from symphony_kube.lifecycle.supervisor.supervisor_record import (
    EMPTY_RECORD,
    Record,
    RecordChanged,
    RunGone,
    decode_record,
    encode_record,
)
from symphony_kube.render import codec
from symphony_kube.render.file_objects.files import MAX_OBJECT_BYTES
from symphony_kube.render.given_fields.cluster_overrides import with_cluster_override, with_security
from symphony_kube.render.given_fields.merge import merge, to_plain_data
from symphony_kube.render.options import RenderOptions
from symphony_kube.state import reasons
from symphony_kube.state.job_status import parse_job
from symphony_kube.state.pod_parser import parse_pod
from symphony_kube.status.permission_errors import missing_right

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = Mapping[str, Any]

NAME = "symphony-supervisor"
_CONTAINER = "supervisor"
# The limits for a namespace whose quota contains limits of these resources.
_LIMITS = {"cpu": "500m", "memory": "512Mi"}
RUN_KEY = "run"
RECORD = "symphony/record"
COMMAND = ("python3", "-m", "symphony_kube.lifecycle.supervisor", "--in-cluster")
# The supervisor sleeps almost always.
REQUESTS = {"cpu": "10m", "memory": "96Mi"}
# How long a launch waits for the supervisor's Pod, which may have to wait for a node.
START_SECONDS = 20
# How long a changed experiment waits until its supervisor has noticed the change.
ACKNOWLEDGE_SECONDS = 15.0
_POLL_SECONDS = 0.1
# The kinds of the supervisor's objects, in the order of their deletion. Without the Secret, a
# supervisor does not continue.
_KINDS = ("Secret", "Job", "RoleBinding", "Role", "ServiceAccount")
_RBAC = "rbac.authorization.k8s.io"
_METRICS = api_group("PodMetrics")


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorOptions:
    """The options for a supervisor in the cluster.

    ``image`` is an image that contains symphony with its extra ``kube``, or None for a supervisor
    on the launching machine. ``cluster`` contains the options of the cluster, of which those for
    all Pods and Jobs apply. ``labels`` and ``priority_class`` are what all processes have in
    common. ``limits`` are limits of resources that a quota of the namespace requires.
    """

    image: str | None = None
    command: tuple[str, ...] = COMMAND
    cluster: RenderOptions = field(default_factory=RenderOptions)
    labels: Mapping[str, str] = field(default_factory=dict)
    priority_class: str | None = None
    limits: Mapping[str, str] = field(default_factory=dict)

    def like(self, units: Iterable[Object]) -> SupervisorOptions:
        """Return the options with what the Pods of all ``units`` have in common. Pure."""
        pods = [pod for unit in units for pod in pods_of(unit)]
        if not pods:
            return self
        first, *others = pods
        labels = {}
        for key, value in (first["metadata"].get("labels") or {}).items():
            is_common = all(pod["metadata"].get("labels", {}).get(key) == value for pod in others)
            if is_common and not _is_own_label(key):
                labels[key] = value
        priorities = {pod["spec"].get("priorityClassName") for pod in pods}
        priority = priorities.pop() if len(priorities) == 1 else None
        return replace(self, labels=labels, priority_class=priority)


def _is_own_label(key: str) -> bool:
    """Return whether a label has a meaning for symphony or Kueue, which must not find the Pod."""
    return key == MANAGED_BY or key.partition("/")[0] in (SYMPHONY, "kueue.x-k8s.io")


class CannotRunInCluster(Exception):
    """Raised if the supervisor cannot run in the cluster. The message is a reason for the user."""


def start(
    api: Api,
    run: SupervisedRun,
    options: SupervisorOptions,
    creation: Creation,
    record: Record = EMPTY_RECORD,
) -> str:
    """Create the supervisor's objects, and return a message for the user.

    ``record`` is the record with which the supervisor begins. Raises `CannotRunInCluster` if the
    user is not allowed to create the objects, or if the run is too large for a Secret, and
    `LaunchFailed` if the supervisor's image cannot be pulled.
    """
    scope = run.scope
    experiment = KubeExperiment(api, scope)
    content = encode_run(run)
    problem = size_problem(content)
    if problem:
        raise CannotRunInCluster(problem)
    objects = render(
        scope,
        content,
        replace(options, limits=_required_limits(experiment)),
        record,
        has_job_sets=_has_job_sets(run),
        usage=_recorded_usage(api, run),
    )
    supervisor = Creation(experiment, scope.run)
    try:
        for body in objects:
            resource = to_resource(with_run_label(body, scope.run), scope.namespace)
            created = supervisor.create(resource)
            creation.created[resource.path] = (resource, created)
    except NameTaken as exc:
        raise LaunchFailed(
            error_messages.name_taken(exc.resource.kind, exc.resource.name, scope, exc.found)
        ) from exc
    except LaunchFailed as exc:
        cause = exc.__cause__
        if not isinstance(cause, ApiError) or not _is_not_permitted(cause):
            raise
        supervisor.roll_back()
        for path in supervisor.created:
            creation.created.pop(path, None)
        raise CannotRunInCluster(str(exc)) from exc
    return _wait_until_running(experiment)


def size_problem(content: bytes) -> str:
    """Return why an encoded run cannot be stored in a Secret, or ``""`` if it can."""
    if len(content) <= MAX_OBJECT_BYTES:
        return ""
    return (
        f"the description of its later objects has {len(content) / MAX_OBJECT_BYTES:.2f} MiB, and "
        "the limit of Kubernetes for a Secret is 1 MiB"
    )


def _is_not_permitted(exc: ApiError) -> bool:
    """Return whether the user may not create an object, or not grant its rights to others."""
    return error_messages.is_forbidden(exc) or "attempting to grant RBAC permissions" in exc.detail


def render(
    scope: Scope,
    content: bytes,
    options: SupervisorOptions,
    record: Record = EMPTY_RECORD,
    *,
    has_job_sets: bool = False,
    usage: bytes | None = None,
) -> list[Object]:
    """Return the supervisor's objects in the order of their creation. Pure.

    ``usage`` is the resource use that was recorded until now, or None if it is not recorded.
    """
    name = scope.object_name(NAME)
    metadata = {"name": name, "namespace": scope.namespace, "labels": scope.labels}
    annotations = {RECORD: codec.pack(encode_record(record))}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**metadata, "annotations": annotations},
        "type": "Opaque",
        "data": {RUN_KEY: base64.b64encode(content).decode()},
    }
    job = render_job(scope, name, options)
    account_name = job["spec"]["template"]["spec"]["serviceAccountName"]
    accounts: list[Object] = []
    if account_name == name:
        accounts.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    role = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": _rules(scope, has_job_sets=has_job_sets, records_usage=usage is not None),
    }
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
        "subjects": [
            {"kind": "ServiceAccount", "name": account_name, "namespace": scope.namespace}
        ],
    }
    objects: list[Object] = [secret, *accounts, role, binding]
    if usage is not None:
        objects.append(usage_object(scope, usage))
    return [*objects, job]


def _rules(scope: Scope, *, has_job_sets: bool, records_usage: bool) -> list[Object]:
    secrets = [scope.object_name(NAME), scope.object_name(DESCRIPTION, "Secret")]
    if records_usage:
        secrets.append(scope.object_name(USAGE, "Secret"))
    metrics = {"apiGroups": [_METRICS], "resources": ["pods"], "verbs": ["list"]}
    verbs = ["create", "get", "list", "watch", "patch"]
    job_sets = {"apiGroups": [api_group("JobSet")], "resources": ["jobsets"], "verbs": verbs}
    return [
        {
            "apiGroups": [""],
            "resources": ["pods"],
            "verbs": ["create", "get", "list", "watch", "patch", "delete"],
        },
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {
            "apiGroups": ["batch"],
            "resources": ["jobs"],
            "verbs": verbs,
        },
        *([job_sets] if has_job_sets else []),
        *([metrics] if records_usage else []),
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": secrets,
            "verbs": ["get", "patch"],
        },
    ]


def render_job(scope: Scope, name: str, options: SupervisorOptions) -> Object:
    """Return the Job that runs the supervisor. Pure.

    The options for all Pods and Jobs apply, except that the Pod has no other container.
    """
    # The Pod does not have the label of the experiment's Pods, so that it is not one of them.
    labels = {**options.labels, MANAGED_BY: SYMPHONY, SUPERVISOR: scope.experiment}
    resources: dict[str, Any] = {"requests": REQUESTS}
    if options.limits:
        resources["limits"] = dict(options.limits)
    container = {
        "name": _CONTAINER,
        "image": options.image,
        "command": [*options.command, scope.namespace, name],
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec: dict[str, Any] = {
        "serviceAccountName": options.cluster.service_account or name,
        "restartPolicy": "OnFailure",
        # A supervisor can be killed at any time.
        "terminationGracePeriodSeconds": 0,
        "enableServiceLinks": False,
        "containers": [container],
    }
    if options.cluster.image_pull_secrets:
        secrets = options.cluster.image_pull_secrets
        spec["imagePullSecrets"] = [{"name": item} for item in secrets]
    if options.priority_class:
        spec["priorityClassName"] = options.priority_class
    pod_yml = to_plain_data(options.cluster.pod_yml, "pod_yml")
    pod = merge({"metadata": {"labels": labels}, "spec": spec}, pod_yml)
    fixed = {key: spec[key] for key in ("restartPolicy", "terminationGracePeriodSeconds")}
    fixed["containers"] = [item for item in pod["spec"]["containers"] if item["name"] == _CONTAINER]
    pod_spec = {**pod["spec"], **fixed}
    # The containers of all Pods would not exit before the supervisor.
    pod_spec.pop("initContainers", None)
    template = {
        "metadata": {**pod["metadata"], "labels": {**pod["metadata"]["labels"], **labels}},
        "spec": with_security(pod_spec, options.cluster.security),
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": scope.namespace, "labels": labels},
        "spec": {"backoffLimit": 2**31 - 1, "template": template},
    }
    return with_cluster_override(job, options.cluster)


def _selector(scope: Scope) -> str:
    selector = f"{MANAGED_SELECTOR},{SUPERVISOR}={scope.experiment}"
    return f"{selector},{RUN}={scope.run}" if scope.run else selector


def _wait_until_running(experiment: KubeExperiment) -> str:
    """Wait until the supervisor's Pod is running, and return a message for the user.

    If this takes too long, the message contains the reason. Raises `LaunchFailed` if the image
    cannot be pulled.
    """
    path = collection_path("Pod", experiment.namespace)
    query = {"labelSelector": _selector(experiment.scope)}
    name, reason = "", "its Pod does not exist yet"
    events = experiment.api.watch(path, query=query, seconds=START_SECONDS)
    try:
        for event in events:
            pod = event["object"]
            if pod["status"].get("phase") in ("Running", "Succeeded"):
                return f"the experiment is supervised by pod {pod['metadata']['name']!r}"
            (container,) = parse_pod(pod).containers.values()
            name, reason = pod["metadata"]["name"], container.reason
            if reason.partition(":")[0] in reasons.IMAGE_NOT_FOUND_REASONS:
                raise LaunchFailed(
                    f"the supervisor cannot start: {reason}; set supervisor_image to an image that "
                    "the cluster can pull"
                )
    except ApiError as exc:
        if exc.status != 403:
            raise
        # The user is not allowed to watch Pods.
        return "the experiment is supervised in the cluster"
    finally:
        events.close()
    what = f"pod {name!r}: {reason}" if name else _why_no_pod(experiment) or reason
    return f"the supervisor of the experiment has not started yet ({what})"


def _why_no_pod(experiment: KubeExperiment) -> str:
    """Return why the Job of the supervisor cannot create a Pod, or ``""`` if it is unknown."""
    job = experiment.scope.object_name(NAME)
    fields = f"involvedObject.kind=Job,involvedObject.name={job},reason=FailedCreate"
    path = f"{NAMESPACES}/{experiment.namespace}/events"
    try:
        events = items_of(experiment.api.call("GET", path, query={"fieldSelector": fields}))
    except ApiError:
        return ""
    text = one_line(str(events[-1].get("message") or "")) if events else ""
    if error_messages.violates_pod_security(text):
        return f"{text}; {error_messages.SECURITY_HINT}"
    return text


# --- changing the experiment ---


def exists(experiment: KubeExperiment) -> bool:
    """Return whether an experiment has a supervisor in the cluster, or had one that has finished.

    A user who may not read the Secret of the supervisor cannot have created one.
    """
    path = f"{collection_path('Secret', experiment.namespace)}/{experiment.scope.object_name(NAME)}"
    try:
        found = experiment.api.find(path)
    except ApiError as exc:
        if exc.status != 403:
            raise
        return False
    return found is not None and _is_of_supervisor(found, experiment.scope)


def can_start_again(experiment: KubeExperiment, options: SupervisorOptions) -> bool:
    """Return whether the image for another Job of the supervisor is known."""
    return options.image is not None or _find_job(experiment) is not None


def hand_over(api: Api, run: SupervisedRun, update: Callable[[Record], Record]) -> None:
    """Store another description of a run for its supervisor, which may be running.

    ``update`` returns the record with which the supervisor continues.
    """
    _permit_recording(api, run)
    name = run.scope.object_name(NAME)
    store = SecretStore(api, run.scope.namespace, name)
    for _ in range(MAX_TRIES):
        # The supervisor can make a decision in the meantime.
        with contextlib.suppress(RecordChanged):
            store.write_run(run, update(store.read()))
            return
    raise changed_too_often(f"secrets/{name}")


def _permit_recording(api: Api, run: SupervisedRun) -> None:
    """Let a supervisor record the resource use if the run requires it now."""
    scope = run.scope
    experiment = KubeExperiment(api, scope)
    usage = _recorded_usage(api, run)
    if usage is None:
        return
    secret = with_run_label(usage_object(scope, usage), scope.run)
    Creation(experiment, scope.run).create(to_resource(secret, scope.namespace))
    path = f"{collection_path('Role', scope.namespace)}/{scope.object_name(NAME)}"
    role = api.find(path)
    # If the Role was deleted, it is created again together with the Job.
    if role is None or any(_METRICS in rule["apiGroups"] for rule in role["rules"]):
        return
    rules = _rules(scope, has_job_sets=_has_job_sets(run), records_usage=True)
    try:
        api.call("PATCH", path, body={"rules": rules}, content_type=MERGE_PATCH)
    except ApiError as exc:
        what = f"let the supervisor of {scope.experiment!r} record the resource use"
        raise missing_right(exc, what, "patch roles", scope) from exc


def _recorded_usage(api: Api, run: SupervisedRun) -> bytes | None:
    """Return the resource use that was recorded until now, or None if it cannot be recorded.

    A user can only grant rights that the user has.
    """
    if not run.policies.record_usage or not may(
        KubeExperiment(api, run.scope), "list", "PodMetrics"
    ):
        return None
    return recorded_content(run)


def await_takeover(
    api: Api, run: SupervisedRun, options: SupervisorOptions, *, is_needed: bool
) -> None:
    """Wait until the supervisor works from the description that `hand_over` has stored.

    A supervisor that does not react is replaced, and one that has finished is started again if
    ``is_needed`` is true. Raises `LaunchFailed` if it cannot be started.
    """
    job = _find_job(KubeExperiment(api, run.scope))
    if not _has_finished(job) and _acknowledges(api, run, ACKNOWLEDGE_SECONDS):
        return
    job = _find_job(KubeExperiment(api, run.scope))
    if not _has_finished(job):
        # The Job creates another Pod, which reads the new description.
        _delete_pods(KubeExperiment(api, run.scope))
    elif is_needed:
        _create_job_again(api, run, options, job)
    else:
        return
    _wait_until_running(KubeExperiment(api, run.scope))
    # A supervisor that starts later reads the new description, too.
    _acknowledges(api, run, START_SECONDS)


def _acknowledges(api: Api, run: SupervisedRun, seconds: float) -> bool:
    """Return whether the supervisor records within ``seconds`` that it has read the description."""
    store = SecretStore(api, run.scope.namespace, run.scope.object_name(NAME))
    deadline = time.monotonic() + seconds
    while store.read().revision < run.revision:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _has_job_sets(run: SupervisedRun) -> bool:
    return any(unit.job_set for unit in run.roster)


def _find_job(experiment: KubeExperiment) -> Object | None:
    return experiment.api.find(
        f"{collection_path('Job', experiment.namespace)}/{experiment.scope.object_name(NAME)}"
    )


def _has_finished(job: Object | None) -> bool:
    """Return whether a Job creates no more Pods."""
    if job is None or "deletionTimestamp" in job["metadata"]:
        return True
    return parse_job({**job, "kind": "Job"}).result is not None


def _create_job_again(
    api: Api, run: SupervisedRun, options: SupervisorOptions, job: Object | None
) -> None:
    """Replace the Job of a supervisor that has finished."""
    scope = run.scope
    experiment = KubeExperiment(api, scope)
    if options.image is None and job is not None:
        options = _options_of(job)
    options = replace(options, limits=_required_limits(experiment))
    if job is not None:
        path = collection_path("Job", scope.namespace)
        uid = job["metadata"]["uid"]
        delete_uid(api, f"{path}/{scope.object_name(NAME)}", uid)
        query = {"fieldSelector": f"metadata.name={scope.object_name(NAME)}"}
        wait_deleted.until_gone(api, path, query, {uid})
    _delete_pods(experiment)
    _, *others = render(
        scope,
        b"",
        options,
        has_job_sets=_has_job_sets(run),
        usage=_recorded_usage(api, run),
    )
    creation = Creation(experiment, scope.run)
    for body in others:
        creation.create(to_resource(with_run_label(body, scope.run), scope.namespace))


def _options_of(job: Object) -> SupervisorOptions:
    """Return the options with which a supervisor's Job is created as before. Pure."""
    template = job["spec"]["template"]
    (container,) = template["spec"]["containers"]
    labels = template["metadata"].get("labels") or {}
    return SupervisorOptions(
        image=container["image"],
        command=tuple(container["command"][:-2]),
        labels={key: value for key, value in labels.items() if not _is_label_of_job(key)},
        cluster=RenderOptions(pod_yml={"spec": template["spec"]}),
    )


def _is_label_of_job(key: str) -> bool:
    """Return whether the controller of a Job has set a label of its Pods."""
    return key.startswith("batch.kubernetes.io/") or key in ("controller-uid", "job-name")


def _required_limits(experiment: KubeExperiment) -> dict[str, str]:
    """Return the limits without which a quota refuses a Pod. They are unknown without the right to
    list quotas.
    """
    try:
        answer = experiment.api.call("GET", f"{NAMESPACES}/{experiment.namespace}/resourcequotas")
    except ApiError:
        return {}
    hard = {key for quota in items_of(answer) for key in quota.get("spec", {}).get("hard") or ()}
    return {key: value for key, value in _LIMITS.items() if f"limits.{key}" in hard}


# --- deleting ---


def delete(experiment: KubeExperiment) -> None:
    """Delete the supervisor's objects in a shared namespace, and wait until its Pods are gone."""
    name = experiment.scope.object_name(NAME)
    for kind in _KINDS:
        path = f"{collection_path(kind, experiment.namespace)}/{name}"
        try:
            found = experiment.api.find(path)
            if found is None or not _is_of_supervisor(found, experiment.scope):
                if kind == "Secret":
                    return
                continue
            delete_uid(experiment.api, path, found["metadata"]["uid"])
        except ApiError as exc:
            # A user without this permission cannot have created the object.
            if exc.status != 403:
                raise
            if kind == "Secret":
                return
    _delete_pods(experiment)


def _is_of_supervisor(body: Object, scope: Scope) -> bool:
    labels = labels_of(body)
    is_supervisor = labels.get(MANAGED_BY) == SYMPHONY and (
        labels.get(SUPERVISOR) == scope.experiment
    )
    if scope.run and labels.get(RUN) != scope.run:
        return False
    return is_supervisor or is_managed(body, scope.experiment)


def _delete_pods(experiment: KubeExperiment) -> None:
    path = collection_path("Pod", experiment.namespace)
    query = {"labelSelector": _selector(experiment.scope)}
    pods = items_of(experiment.api.call("GET", path, query=query, accept=ACCEPT_METADATA_LIST))
    uids = {}
    for pod in pods:
        uids[pod["metadata"]["uid"]] = pod["metadata"]["name"]
    for uid, name in uids.items():
        delete_uid(experiment.api, f"{path}/{name}", uid, grace_seconds=0)
    wait_deleted.until_gone(experiment.api, path, query, set(uids))


# --- in the supervisor's Pod ---


class SecretStore:
    """The record of a supervisor in an annotation of its Secret.

    The server rejects a change if another supervisor has changed the Secret since it was read.
    """

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._path = f"{collection_path('Secret', namespace)}/{name}"
        self._version = ""

    def load(self) -> tuple[SupervisedRun, Object]:
        """Return the run, and an owner reference to the Secret. Raises `RunGone`."""
        secret = self._find()
        metadata = secret["metadata"]
        owner = {
            "apiVersion": "v1",
            "kind": "Secret",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        return decode_run(base64.b64decode(secret["data"][RUN_KEY])), owner

    def current_run(self, run: SupervisedRun) -> SupervisedRun:
        """Return the run that is stored in the Secret. Raises `RunGone`."""
        del run
        return self.load()[0]

    def still_exists(self, run: SupervisedRun) -> bool:
        """Return whether the Secret exists, which is deleted before the Pods. Raises `RunGone`.

        The account and the role of the supervisor are deleted together with it.
        """
        del run
        try:
            self._find()
        except ApiError as exc:
            if exc.status not in (401, 403):
                raise
            return False
        return True

    def is_abandoned(self, run: SupervisedRun, failing_seconds: float) -> bool:
        """Return False, because the supervisor is deleted together with the experiment."""
        del run, failing_seconds
        return False

    def read(self) -> Record:
        """Return the record. Raises `RunGone` if the Secret does not exist."""
        metadata = self._find()["metadata"]
        self._version = metadata["resourceVersion"]
        text = (metadata.get("annotations") or {}).get(RECORD, "")
        return decode_record(codec.unpack(text) if text else "")

    def write(self, record: Record) -> None:
        """Replace the record. Raises `RecordChanged` or `RunGone`."""
        self._patch(record, {})

    def open_usage(self, run: SupervisedRun) -> UsageInSecret:
        """Return the samples in the Secret for the resource use. Raises `BackendError`."""
        # The directory is removed together with the container of the supervisor.
        return UsageInSecret(
            KubeExperiment(self._api, run.scope), Path(tempfile.mkdtemp(prefix="symphony-"))
        )

    def write_run(self, run: SupervisedRun, record: Record) -> None:
        """Replace the description of the run and the record in one step.

        Raises `RecordChanged` or `RunGone`.
        """
        content = base64.b64encode(encode_run(run)).decode()
        self._patch(record, {"data": {RUN_KEY: content}})

    def _patch(self, record: Record, fields: Object) -> None:
        patch = {
            **fields,
            "metadata": {
                "resourceVersion": self._version,
                "annotations": {RECORD: codec.pack(encode_record(record))},
            },
        }
        try:
            answer = self._api.call(
                "PATCH", self._path, body=patch, content_type=MERGE_PATCH, accept=ACCEPT_METADATA
            )
        except ApiError as exc:
            if exc.status == 404:
                raise RunGone from exc
            if exc.status == 409:
                raise RecordChanged from exc
            raise
        self._version = answer["metadata"]["resourceVersion"]

    def _find(self) -> dict[str, Any]:
        secret = self._api.find(self._path)
        if secret is None or "deletionTimestamp" in secret["metadata"]:
            raise RunGone
        return secret
