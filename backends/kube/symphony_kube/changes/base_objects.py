"""Update the Services of an experiment, and the Secrets and ConfigMaps of its files.

Each step can be repeated, so a change that was interrupted can be continued.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony.plan.changes import Snapshot
from symphony_kube.api import error_messages
from symphony_kube.api.client import ACCEPT_METADATA, MERGE_PATCH
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import CODE, CONFIGS, KEYS, SERVICE
from symphony_kube.api.listing import list_all
from symphony_kube.api.resources import (
    collection_path,
    is_managed,
    labels_of,
    to_resource,
    with_run_label,
)
from symphony_kube.changes.service_drift import service_patch
from symphony_kube.lifecycle import delete
from symphony_kube.lifecycle.create import Creation, NameTaken, in_parallel
from symphony_kube.lifecycle.description import Description, NewDescription
from symphony_kube.render.file_objects.code_volumes import mounted_code
from symphony_kube.render.shared_variables import environment_name
from symphony_kube.render.stop_script import scripts_name
from symphony_kube.state.pod_status import FINISHED_PHASES
from symphony_kube.status.permission_errors import missing_right

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]


class BaseObjectsUpdate:
    """The update of the objects that the Pods of an experiment refer to, as one change requires it.

    ``running`` is the description of the running experiment, and ``new`` the new one.
    """

    def __init__(
        self,
        experiment: KubeExperiment,
        running: Description,
        new: NewDescription,
        creation: Creation,
    ) -> None:
        self._experiment = experiment
        self._running = running
        self._new = new
        self._creation = creation

    def put(self) -> None:
        """Create or update the Services, and the Secrets and ConfigMaps of files."""
        scope = self._experiment.scope
        keys = scope.object_name(KEYS, "Secret")
        old, new = self._running.snapshot, self._new.snapshot
        files_differ = old.secrets != new.secrets or _files(old) != _files(new)
        files_differ |= _configs(old) != _configs(new)
        keys_differ = _encryption_keys(old) != _encryption_keys(new)
        # The objects can have been stored in part by a change that was not completed.
        puts_files = files_differ or self._running.is_unfinished
        puts_keys = keys_differ or self._running.is_unfinished
        bodies = []
        for body in self._new.manifest.base_objects:
            kind, name = body["kind"], body["metadata"]["name"]
            is_put = puts_keys if name == keys else puts_files
            is_put = is_put or name in (environment_name(scope), scripts_name(scope))
            if CODE in labels_of(body):
                is_put = not self._has_code(labels_of(body)[CODE])
            if kind == "Service" or (kind != "Namespace" and is_put):
                bodies.append(with_run_label(body, self._running.run_id))
        in_parallel(self._put, bodies, threads=self._experiment.api.connections)

    def delete_services(self) -> None:
        """Delete the Services that the new description does not contain."""
        delete.delete_selected(self._experiment, ("Service",), self._is_removed_service)

    def delete_unused_files(self) -> None:
        """Delete the Secrets and ConfigMaps with code and files that no process has any more."""
        self._delete_code()
        self._delete_configs()

    def _has_code(self, digest: str) -> bool:
        """Return whether the running experiment has the code with a digest already."""
        return not self._running.is_unfinished and digest in _codes(self._running.snapshot)

    def _put(self, body: Object) -> None:
        resource = to_resource(body, self._experiment.namespace)
        try:
            # If the launch or an earlier change has created the object, it is returned as it is.
            found = self._creation.create(resource)
        except NameTaken as exc:
            if exc.found is None or not is_managed(exc.found, self._experiment.name):
                text = error_messages.name_taken(
                    resource.kind, resource.name, self._experiment.scope, exc.found
                )
                raise BackendError(text) from exc
            found = exc.found
        if CODE in labels_of(body):
            # An earlier change, which was not completed, has stored the same code.
            return
        is_keys = resource.name == self._experiment.scope.object_name(KEYS, "Secret")
        patch = _missing_data(body, found) if is_keys else _patch_of(body, found)
        if patch is None:
            return
        try:
            self._experiment.api.call(
                "PATCH",
                resource.path,
                body=patch,
                content_type=MERGE_PATCH,
                accept=ACCEPT_METADATA,
            )
        except ApiError as exc:
            right = f"patch {resource.kind.lower()}s"
            raise missing_right(exc, f"change {resource}", right, self._experiment.scope) from exc

    def _delete_code(self) -> None:
        """Delete the Secrets with code that no process has any more."""
        codes = _codes(self._new.snapshot)
        if _codes(self._running.snapshot) <= codes and not self._running.is_unfinished:
            return

        # A Pod whose processes were restarted in place still mounts the earlier code.
        codes |= self._mounted_codes()

        def is_unused(labels: Mapping[str, str]) -> bool:
            return CODE in labels and labels[CODE] not in codes

        # A user who may not list Secrets keeps them until the experiment is deleted.
        with contextlib.suppress(ApiError):
            delete.delete_selected(self._experiment, ("Secret",), is_unused)

    def _delete_configs(self) -> None:
        """Delete the ConfigMaps with configuration files that no process has any more."""
        is_same = _configs(self._running.snapshot) == _configs(self._new.snapshot)
        if is_same and not self._running.is_unfinished:
            return
        digests = {labels_of(body).get(CONFIGS) for body in self._new.manifest.base_objects}

        def is_unused(labels: Mapping[str, str]) -> bool:
            return CONFIGS in labels and labels[CONFIGS] not in digests

        # A user who may not list ConfigMaps keeps them until the experiment is deleted.
        with contextlib.suppress(ApiError):
            delete.delete_selected(self._experiment, ("ConfigMap",), is_unused)

    def _mounted_codes(self) -> set[str]:
        """Return the digests of the code in the volumes of running Pods."""
        path = collection_path("Pod", self._experiment.namespace)
        query = {"labelSelector": self._experiment.scope.present_selector}
        digests: set[str] = set()
        for of_pod in list_all(self._experiment.api, path, _code_in_use, query=query).items:
            digests |= of_pod
        return digests

    def _is_removed_service(self, labels: Mapping[str, str]) -> bool:
        services = {
            labels_of(body)[SERVICE]
            for body in self._new.manifest.base_objects
            if SERVICE in labels_of(body)
        }
        return SERVICE in labels and labels[SERVICE] not in services


def _codes(snapshot: Snapshot) -> set[str]:
    """Return the digests of the code of all processes."""
    codes = {process.settings.get("code") for process in snapshot.processes.values()}
    return {code for code in codes if code is not None}


def _encryption_keys(snapshot: Snapshot) -> set[str]:
    keys: set[str] = set()
    for process in snapshot.processes.values():
        keys.update(process.settings.get("encrypted", ()))
    return keys


def _files(snapshot: Snapshot) -> dict[str, Any]:
    return {name: process.settings.get("files") for name, process in snapshot.processes.items()}


def _configs(snapshot: Snapshot) -> dict[str, Any]:
    return {name: process.settings.get("configs") for name, process in snapshot.processes.items()}


def _missing_data(body: Object, found: Object) -> dict[str, Any] | None:
    """Return the patch that adds missing values to a Secret, or None if there are none.

    Processes that are not restarted have the present encryption keys.
    """
    present = found.get("data") or {}
    missing = {key: value for key, value in body["data"].items() if key not in present}
    return {"data": missing} if missing else None


def _patch_of(body: Object, found: Object) -> dict[str, Any] | None:
    """Return the patch that makes an object equal to ``body``, or None if it is equal."""
    if body["kind"] == "Service":
        return service_patch(body, found)
    patch: dict[str, Any] = {}
    for key in ("data", "binaryData"):
        content, present = body.get(key) or {}, found.get(key) or {}
        if content != present:
            patch[key] = {**dict.fromkeys(present), **content}
    return patch or None


def _code_in_use(pod: Object) -> set[str]:
    """Return the digests of the code in the volumes of a Pod that can still run."""
    if pod["status"].get("phase") in FINISHED_PHASES:
        return set()
    return mounted_code(pod)
