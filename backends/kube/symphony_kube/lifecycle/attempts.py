"""Stop the current attempt of a unit, and replace it by the next one.

All steps can be repeated, by any client or supervisor. A request is an annotation of the Pod or Job
that it concerns, and is changed only if the object has not changed in the meantime. The object is
kept until the experiment is deleted, so a client that is killed loses nothing.

A Pod is stopped by its active deadline. Its node then sends TERM to the processes and, after the
grace period, KILL. The Pod remains with its status and its logs. A rank in a JobSet is stopped by
the active deadline of its Job, because the JobSet restarts a Job that fails for another reason. The
Pod is deleted, and the JobSet cannot be started again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony.status import ReasonCode
from symphony_kube.api.client import MERGE_PATCH
from symphony_kube.api.compare_and_swap import compare_and_swap
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import (
    ATTEMPT,
    CONTROL,
    MANIFEST,
    POD_GROUP,
    QUEUE,
    RANK_OF,
    REMOVED_UNIT,
    REPLACED_UNIT,
    RUN,
    UNIT,
)
from symphony_kube.api.resources import collection_path, plural_name, to_resource
from symphony_kube.lifecycle.create import Creation, delete_uid
from symphony_kube.render.attempt_names import attempt_name
from symphony_kube.render.pod_parts.deadline import SHORTEST_DEADLINE_SECONDS, with_new_deadline
from symphony_kube.state.control_state import (
    Attempt,
    Control,
    decode_control,
    decode_manifest,
    encode,
    encode_manifest,
)
from symphony_kube.state.job_status import JobStatus
from symphony_kube.state.pod_status import PodStatus
from symphony_kube.state.unit_status import UnitStatus
from symphony_kube.status.permission_errors import missing_right

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]

# A larger manifest is not kept, because all annotations of an object together have at most 256 KiB.
MAX_MANIFEST_CHARS = 128 << 10
# A longer list of the units of a command is not recorded, for the same reason.
MAX_OTHERS_CHARS = 64 << 10


def with_manifest(body: Object) -> dict[str, Any]:
    """Return a Pod or Job with its own manifest as an annotation. Pure.

    The next attempt is created from this annotation. A JobSet is returned unchanged, because only
    its controller starts its ranks again.
    """
    if body["kind"] == "JobSet":
        return dict(body)
    text = encode_manifest(body)
    if len(text) > MAX_MANIFEST_CHARS:
        return dict(body)
    return annotated(body, {MANIFEST: text})


def annotated(body: Object, annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return an object with more annotations. Pure."""
    metadata = body["metadata"]
    merged = {**(metadata.get("annotations") or {}), **annotations}
    return {**body, "metadata": {**metadata, "annotations": merged}}


def next_attempt(manifest: Object, attempt: Attempt) -> dict[str, Any]:
    """Return the Pod or Job of an attempt, which differs from the manifest in its name. Pure.

    A Pod keeps its host name.
    """
    base = manifest["metadata"]["name"]
    name = attempt_name(base, attempt.number)
    body = with_attempt(annotated(manifest, {MANIFEST: encode_manifest(manifest)}), attempt)
    spec = body["spec"]
    if body["kind"] != "Job" and not spec.get("hostNetwork"):
        spec = {"hostname": base, **spec}
    metadata = {**body["metadata"], "name": name}
    labels = metadata.get("labels") or {}
    if POD_GROUP in labels:
        # Each attempt of a unit of ranks waits for its own admission.
        group = attempt_name(labels[POD_GROUP], attempt.number)
        metadata["labels"] = {**labels, POD_GROUP: group}
    return {**body, "metadata": metadata, "spec": spec}


def stop_requested(control: Control, now: float) -> Control:
    """Return requests to stop a unit, and not to start it again. Pure."""
    return replace(control, stop=control.stop or now, start=0.0, reason="", code="", in_row=0)


def with_attempt(body: Object, attempt: Attempt) -> dict[str, Any]:
    """Return a Pod, a JobSet, or a Job and the template of its Pods, with an attempt. Pure."""
    body = annotated(body, {ATTEMPT: encode(attempt)})
    if body["kind"] != "Job":
        return body
    template = annotated(body["spec"]["template"], {ATTEMPT: encode(attempt)})
    return {**body, "spec": {**body["spec"], "template": template}}


def request(
    experiment: KubeExperiment,
    unit: UnitStatus,
    change: Callable[[Control], Control],
    manifest: Object | None = None,
) -> Control | None:
    """Change the requests for a unit's latest attempt, and stop the attempt if this is requested.

    If ``manifest`` is not None, the next attempt is created from it. Return the requests, or None
    if the attempt does not exist any more or has been replaced.
    """
    found = _update(experiment, unit, lambda body: _change_control(body, change, manifest))
    if found is None:
        return None
    control = _control_of(found)
    if control.stop and unit.job is not None:
        stop_pods_of_job(experiment, unit)
    return control


def _change_control(
    body: Object, change: Callable[[Control], Control], manifest: Object | None
) -> dict[str, Any] | None:
    before = _control_of(body)
    if before.replaced:
        return None
    control = change(before)
    annotations = {CONTROL: encode(control)}
    if manifest is not None:
        annotations[MANIFEST] = encode_manifest(manifest)
    if control == before and manifest is None and body["kind"] == "JobSet":
        # Another rank has already recorded the request.
        return {}
    metadata: dict[str, Any] = {"annotations": annotations}
    if not control.stop:
        return {"metadata": metadata}
    if body["kind"] == "JobSet" and body["spec"].get("suspend"):
        # Kueue must not start a JobSet that is stopped while it waits for quota.
        metadata["labels"] = {QUEUE: None}
    return {"metadata": metadata, "spec": _stopping_fields(body)}


def _stopping_fields(body: Object) -> dict[str, Any]:
    if body["kind"] == "JobSet":
        return {}
    if body["kind"] == "Job":
        # The Job must not create another Pod. It must not disappear with its logs.
        fields: dict[str, Any] = {"backoffLimit": 0, "ttlSecondsAfterFinished": None}
        if not body.get("status", {}).get("active"):
            fields["parallelism"] = 0
        return fields
    return {"activeDeadlineSeconds": SHORTEST_DEADLINE_SECONDS}


def stop_pods_of_job(experiment: KubeExperiment, unit: UnitStatus) -> None:
    """Stop the Pods of a unit that belong to a Job. Pods that do not exist are not an error.

    The Job or JobSet may have created another Pod after the request to stop it.
    """
    for pod in unit.pods:
        if pod.has_finished or pod.is_stopped:
            continue
        if unit.job is None or unit.job.kind == "Job":
            _set_deadline(experiment, "Pod", pod.name)
        elif pod.deadline is None:
            _set_deadline(experiment, "Job", pod.job)


def _set_deadline(experiment: KubeExperiment, kind: str, name: str) -> None:
    """Let the active deadline of a Pod or Job pass. An object that does not exist is no error."""
    patch = {"spec": {"activeDeadlineSeconds": SHORTEST_DEADLINE_SECONDS}}
    path = f"{collection_path(kind, experiment.namespace)}/{name}"
    try:
        experiment.api.call("PATCH", path, body=patch, content_type=MERGE_PATCH)
    except ApiError as exc:
        if exc.status != 404:
            right = f"patch {plural_name(kind)}"
            raise missing_right(exc, f"stop {name!r}", right, experiment.scope) from exc


def replace_attempt(
    experiment: KubeExperiment, unit: UnitStatus, *, deadline: float | None, round: int = 0
) -> None:
    """Create the next attempt of a unit. If it has already been created, do nothing.

    The current attempt must have ended. ``deadline`` is the time at which the experiment is
    stopped, in seconds since the epoch, or None. ``round`` is the number of times that the
    experiment has been restarted. Raises `BackendError`.
    """
    old = _update(experiment, unit, partial(_mark_replaced, now=experiment.api.now()))
    if old is None:
        return
    control = _control_of(old)
    annotations = old["metadata"].get("annotations") or {}
    manifest = decode_manifest(annotations.get(MANIFEST, ""))
    retries, in_row = unit.attempt.retries + 1 if control.in_row else 0, control.in_row
    is_lost = control.code == ReasonCode.DISRUPTED.value
    if is_lost or control.code == ReasonCode.UNSCHEDULABLE.value:
        # The restart policy has not caused this restart.
        retries, in_row = unit.attempt.retries, unit.attempt.in_row
    attempt = Attempt(
        number=unit.attempt.number + 1,
        restarts=unit.restarts,
        retries=retries,
        in_row=in_row,
        round=max(round, unit.attempt.round),
        revision=max(control.revision, unit.attempt.revision),
        lost=control.reason if is_lost else "",
    )
    body = next_attempt(manifest, attempt)
    seconds = None if deadline is None else max(1.0, deadline - experiment.api.now())
    body = with_new_deadline(body, seconds)
    owners = [
        owner
        for owner in old["metadata"].get("ownerReferences") or ()
        if owner.get("kind") != "Job"
    ]
    if owners:
        body = {**body, "metadata": {**body["metadata"], "ownerReferences": owners}}
    run_id = manifest["metadata"]["labels"].get(RUN, "")
    Creation(experiment, run_id).create(to_resource(body, experiment.namespace))
    _remove_pending(experiment, unit)


def _mark_replaced(body: Object, now: float) -> dict[str, Any]:
    """Return the patch with which Services no longer select an object, and with which it counts as
    replaced.
    """
    control = _control_of(body)
    changed = replace(control, replaced=now)
    labels = body["metadata"].get("labels") or {}
    name = labels.get(UNIT) or labels.get(REPLACED_UNIT)
    return {
        "metadata": {
            "annotations": {CONTROL: encode(changed)},
            "labels": {UNIT: None, RANK_OF: None, REPLACED_UNIT: name},
        }
    }


def _remove_pending(experiment: KubeExperiment, unit: UnitStatus) -> None:
    """Delete the Pods of a replaced attempt that have no node, and therefore no logs."""
    path = collection_path("Pod", experiment.namespace)
    for pod in unit.pods:
        if not pod.node and unit.job is None:
            delete_uid(experiment.api, f"{path}/{pod.name}", pod.uid, grace_seconds=0)


def mark_removed(experiment: KubeExperiment, item: PodStatus | JobStatus) -> None:
    """Mark a Pod or Job of a stopped unit as removed, or delete it if it has no logs.

    An object that does not exist is not an error.
    """
    kind = "Job" if isinstance(item, JobStatus) else "Pod"
    path = f"{collection_path(kind, experiment.namespace)}/{item.name}"
    if isinstance(item, PodStatus) and not item.node:
        delete_uid(experiment.api, path, item.uid, grace_seconds=0)
        return
    marks = {UNIT: None, RANK_OF: None, REPLACED_UNIT: None, REMOVED_UNIT: item.unit}
    try:
        experiment.api.call(
            "PATCH", path, body={"metadata": {"labels": marks}}, content_type=MERGE_PATCH
        )
    except ApiError as exc:
        if exc.status != 404:
            action, right = f"remove {item.name!r}", f"patch {kind.lower()}s"
            raise missing_right(exc, action, right, experiment.scope) from exc


def annotate(experiment: KubeExperiment, unit: UnitStatus, annotations: Mapping[str, str]) -> bool:
    """Annotate a unit's latest attempt and the manifest of the next one.

    Return whether the attempt exists.
    """

    def change(body: Object) -> dict[str, Any]:
        present = (body["metadata"].get("annotations") or {}).get(MANIFEST, "")
        added = dict(annotations)
        if present:
            added[MANIFEST] = encode_manifest(annotated(decode_manifest(present), annotations))
        return {"metadata": {"annotations": added}}

    return _update(experiment, unit, change) is not None


def _update(
    experiment: KubeExperiment,
    unit: UnitStatus,
    change: Callable[[Object], Mapping[str, Any] | None],
) -> dict[str, Any] | None:
    """Patch the object of a unit's latest attempt, and return the object.

    ``change`` returns the patch, an empty patch if none is necessary, or None if the object must
    not be changed. The patch is applied to the version of the object that ``change`` received.
    Return None if the object does not exist or must not be changed.
    """
    if not unit.exists:
        return None
    kind = "Pod" if unit.job is None else unit.job.kind
    current = unit.job or unit.pods[-1]
    path = f"{collection_path(kind, experiment.namespace)}/{current.name}"

    def change_same(body: Object) -> Object | None:
        is_same = body["metadata"]["uid"] == current.uid
        return change({"kind": kind, **body}) if is_same else None

    try:
        found = compare_and_swap(experiment.api, path, change_same)
    except ApiError as exc:
        action, right = f"stop or start {current.name!r}", f"get and patch {plural_name(kind)}"
        raise missing_right(exc, action, right, experiment.scope) from exc
    return None if found is None else {"kind": kind, **found}


def _control_of(body: Object) -> Control:
    return decode_control((body["metadata"].get("annotations") or {}).get(CONTROL))


def check_manifests(units: Mapping[str, UnitStatus]) -> None:
    """Raise `BackendError` if a unit cannot be started again."""
    for name, unit in units.items():
        current = unit.job or (unit.pods[-1] if unit.pods else None)
        if current is None:
            raise BackendError(
                f"{name!r} cannot be started, because its Pod was deleted; launch the experiment "
                "again"
            )
        if not current.has_manifest:
            raise BackendError(
                f"{name!r} cannot be started again, because its manifest was not recorded: it is "
                "too large, or kubectl or an earlier version of symphony has created its Pod; "
                "launch the experiment again"
            )
