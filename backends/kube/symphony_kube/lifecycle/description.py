"""The description of a running experiment: a Secret with which a changed experiment is compared.

The Secret also contains the record of the experiment, and shows which command is changing the
experiment, so that two commands do not change it at the same time. All changes of the Secret are
made to the version that was read last. If a supervisor or a command has added to the record in the
meantime, the Secret is read again.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError, NotFound
from symphony.plan.changes import ADDED, Snapshot
from symphony_kube.api.client import ACCEPT_METADATA, MERGE_PATCH
from symphony_kube.api.compare_and_swap import MAX_TRIES, changed_too_often
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import DELETING, DESCRIPTION, HOLDER, Scope
from symphony_kube.api.resources import is_in_scope, is_managed
from symphony_kube.record.encoded_record import NO_RECORD, EncodedRecord
from symphony_kube.record.stored_record import (
    encode_stored,
    fields_with,
    merge,
    record_in_secret,
    secret_path,
)
from symphony_kube.render import codec
from symphony_kube.render.file_objects.files import MAX_OBJECT_BYTES
from symphony_kube.status.permission_errors import missing_right

if TYPE_CHECKING:
    from symphony.code.snapshot import CodeArchives
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.lifecycle.supervisor.in_cluster import SupervisorOptions
    from symphony_kube.render.manifest import KubeManifest

Object = Mapping[str, Any]

_KEY = "description"
# A command that changes an experiment renews its claim at this interval. If it has not done so for
# the longer time, it has been killed.
RENEW_SECONDS = 4.0
CLAIM_SECONDS = 15.0
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The description of a running experiment.

    * ``snapshot``: the values with which a new description is compared.
    * ``record``: the description of the launch; see `symphony.archive.run_record.launch_record`.
    * ``run_id`` and ``run_name``: the label and the annotation of the objects of the run.
    * ``launched``: the time of the launch in seconds since the epoch.
    * ``host``: the machine on which the supervisor runs if it does not run in the cluster.
    * ``jobs_only``: whether a Job is created for every Pod.
    * ``options``: the options of the cluster with which the experiment was launched or changed.
    * ``revision``: the number of changes since the launch.
    * ``pending``: the processes that an unfinished change concerns, each with its action and its
      group. Empty if the latest change is complete.
    * ``previous_policies``: the rules for the end of the experiment before an unfinished change, or
      None if the latest change is complete.
    * ``follows``: whether a supervisor on another machine notices that the experiment has changed.
      Earlier versions do not.
    """

    snapshot: Snapshot
    record: Mapping[str, Any]
    run_id: str
    run_name: str = ""
    launched: float
    host: str = field(default_factory=socket.gethostname)
    jobs_only: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 0
    pending: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    previous_policies: Mapping[str, Any] | None = None
    follows: bool = True

    @property
    def ports(self) -> dict[str, int]:
        """The ports of the services."""
        services = self.snapshot.services.items()
        return {name: int(str(address[0]).rpartition(":")[2]) for name, address in services}

    @property
    def is_unfinished(self) -> bool:
        """True if the latest change was not completed."""
        return bool(self.pending) or self.previous_policies is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDescription:
    """The new description of an experiment: its objects, its snapshot, its launch record, the
    options of the cluster, and the archives of its code.

    ``supervisor`` determines where the experiment is supervised if it had no supervisor before.
    """

    manifest: KubeManifest
    snapshot: Snapshot
    record: Mapping[str, Any]
    jobs_only: bool
    supervisor: SupervisorOptions
    options: Mapping[str, Any]
    archives: CodeArchives = field(default_factory=dict)


def encode_description(description: Description) -> bytes:
    """Encode a description. The result is compressed."""
    content = {
        "snapshot": description.snapshot.to_dict(),
        "record": dict(description.record),
        "run_id": description.run_id,
        "run_name": description.run_name,
        "launched": description.launched,
        "host": description.host,
        "jobs_only": description.jobs_only,
        "options": dict(description.options),
        "revision": description.revision,
        "pending": {name: list(item) for name, item in description.pending.items()},
        "previous_policies": description.previous_policies,
        "follows": description.follows,
    }
    return codec.compress(codec.to_text(content))


def decode_description(data: bytes) -> Description:
    """Decode a description. Raises ValueError if it is damaged or too large."""
    try:
        content = codec.from_text(codec.decompress(data))
        return Description(
            **{
                "follows": False,
                **content,
                "snapshot": Snapshot.from_dict(content["snapshot"]),
                "pending": {
                    name: (str(action), group)
                    for name, (action, group) in content["pending"].items()
                },
            }
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"not the description of an experiment: {exc}") from exc


def as_stored(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot as it is after it was stored, in which tuples are lists."""
    return Snapshot.from_dict(codec.from_text(codec.to_text(snapshot.to_dict())))


def description_object(
    description: Description, scope: Scope, record: EncodedRecord
) -> dict[str, Any]:
    """Return the Secret that contains a description and a record.

    If both together are too large, it contains only the record.
    """
    fields = fields_with(record)
    data = {**fields["data"], **_description_data(description, record)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": scope.object_name(DESCRIPTION, "Secret"),
            "namespace": scope.namespace,
            "labels": scope.labels,
        },
        "type": "Opaque",
        "data": data,
    }


def launching_object(
    description: Description, scope: Scope, record: EncodedRecord
) -> dict[str, Any]:
    """Return the Secret for an experiment that is being launched.

    The launch is a change that adds all processes. If it is interrupted, `up` continues it. Call
    `complete_launch` at its end. `symphony_kube.record.stored_record` reads ``record``, which is
    that of the experiment's first unit, if this unit no longer exists.
    """
    processes = description.snapshot.processes.items()
    pending = {name: (ADDED, process.group) for name, process in processes}
    body = description_object(replace(description, pending=pending), scope, record)
    body["metadata"]["annotations"] = {HOLDER: _new_holder(0)}
    return body


def _description_data(description: Description, record: EncodedRecord) -> dict[str, str]:
    """Return the part of the Secret's data that contains a description, unless it is too large."""
    encoded = encode_description(description)
    if len(encoded) + len(encode_stored(record)) > MAX_OBJECT_BYTES:
        return {}
    return {_KEY: base64.b64encode(encoded).decode()}


def complete_launch(
    experiment: KubeExperiment, description: Description, created: Mapping[str, Any]
) -> None:
    """Record that a launch is complete. ``created`` is the created Secret.

    If another command has changed the experiment in the meantime, or if the user may not change
    Secrets, do nothing.
    """
    store = DescriptionStore(experiment)
    with contextlib.suppress(BackendError, ValueError, DescriptionChanged):
        store.complete_launch(created, description)


class DescriptionChanged(Exception):
    """Raised if another command has changed the description since it was read."""


class DescriptionStore:
    """The description of an experiment in the cluster."""

    def __init__(self, experiment: KubeExperiment) -> None:
        self._experiment = experiment
        self._path = secret_path(experiment.scope)
        self._lock = threading.Lock()
        # The Secret as it was read last, with the version and the holder of the latest change.
        self._secret: Object = {"metadata": {}}
        self._version = ""
        self._holder = ""
        self._is_lost = False
        # True if a command was deleting the experiment when the description was read last.
        self.is_deleting = False

    def read(self) -> Description | None:
        """Return the description, or None if there is none that can be used."""
        secret = self._find()
        if secret is None:
            return None
        try:
            return decode_description(base64.b64decode((secret.get("data") or {})[_KEY]))
        except (ValueError, KeyError):
            return None

    def write(
        self,
        description: Description,
        record: EncodedRecord = NO_RECORD,
    ) -> None:
        """Replace the description that was read or written last, and the entries of the record that
        ``record`` has.

        Raises BackendError if the description is too large, or if another command has changed it.
        """

        def change(secret: Object) -> Object:
            merged = self._merged(secret, record)
            data = _description_data(description, merged)
            if not data:
                raise BackendError(
                    f"experiment {self._experiment.name!r} is too large to be changed while it is "
                    "running: its description has more than 1 MiB; launch it again with force"
                )
            fields = fields_with(merged, secret)
            # A deletion that was not completed does not continue.
            annotations = {DELETING: None, **fields["metadata"]["annotations"]}
            return {"metadata": {"annotations": annotations}, "data": {**fields["data"], **data}}

        with self._lock:
            self._change_or_lose(change)

    def mark_deleting(self) -> None:
        """Record that the experiment is being deleted, so that a supervisor on another machine does
        not start its processes again.

        If there is no description, or the user may not change it, do nothing. If the scope is
        limited to a launch, the description of another launch is not changed.
        """
        metadata: dict[str, Any] = {"annotations": {DELETING: "true"}}
        with contextlib.suppress(ApiError):
            if self._experiment.scope.run:
                secret = self._experiment.api.find(self._path)
                if secret is None or not is_in_scope(secret, self._experiment.scope):
                    return
                # The server refuses to change another object that has the name by now.
                metadata["uid"] = secret["metadata"]["uid"]
            self._experiment.api.call(
                "PATCH",
                self._path,
                body={"metadata": metadata},
                content_type=MERGE_PATCH,
                accept=ACCEPT_METADATA,
            )

    def complete_launch(self, created: Object, description: Description) -> None:
        """Replace the description in a created Secret, which no command claims any more.

        Raises `DescriptionChanged` if another command has changed it.
        """
        self._note(created)

        def change(secret: Object) -> Object:
            data = _description_data(description, record_in_secret(secret))
            return {**_holder_patch(None), "data": data}

        self._change(change)

    def check_claim(self) -> None:
        """Raise BackendError if another command has taken over the change."""
        if self._is_lost:
            raise BackendError(
                f"another command changes experiment {self._experiment.name!r}; run the command "
                "again when it is done"
            )

    @contextlib.contextmanager
    def claimed(self) -> Iterator[Description]:
        """Exclude other commands that change the experiment, and return its description.

        Wait while another command changes the experiment. Raises NotFound if the experiment was
        deleted.
        """
        description = self._claim()
        stopped = threading.Event()
        thread = threading.Thread(target=self._renew, args=(stopped,), daemon=True, name="claim")
        thread.start()
        try:
            yield description
        finally:
            stopped.set()
            thread.join()
            # A command that has lost its claim knows the version of the one that has it now.
            if not self._is_lost:
                with contextlib.suppress(BackendError, DescriptionChanged):
                    self._change(lambda _: _holder_patch(None))

    def _claim(self) -> Description:
        unchanged_since, holder = time.monotonic(), ""
        own = _new_holder(0)
        while True:
            description = self.read()
            if description is None:
                raise NotFound(
                    f"experiment {self._experiment.name!r} was deleted or replaced; run the "
                    "command again"
                )
            if self._holder == own:
                # The answer to the patch was lost.
                return description
            now = time.monotonic()
            if self._holder != holder:
                unchanged_since, holder = now, self._holder
            is_free = not self._holder or _has_exited(self._holder)
            if is_free or now - unchanged_since > CLAIM_SECONDS:
                with contextlib.suppress(DescriptionChanged):
                    self._patch(_holder_patch(own))
                    return description
            else:
                time.sleep(_PAUSE_SECONDS)

    def _renew(self, stopped: threading.Event) -> None:
        count = 0
        while not stopped.wait(RENEW_SECONDS):
            count += 1
            with self._lock, contextlib.suppress(BackendError):
                self._change_or_lose(partial(_renewal, count))

    def _change_or_lose(self, change: Callable[[Object], Object]) -> None:
        self.check_claim()
        try:
            self._change(change)
        except DescriptionChanged:
            self._is_lost = True
            self.check_claim()

    def _change(self, change: Callable[[Object], Object]) -> None:
        """Patch the Secret with the patch that ``change`` returns for its present contents.

        Raises `DescriptionChanged` if another command has claimed the Secret, or deletes the
        experiment.
        """
        for _ in range(MAX_TRIES):
            patch = change(self._secret)
            with contextlib.suppress(DescriptionChanged):
                self._patch(patch)
                return
            # If the answer to the patch was lost, the Secret has the new holder already.
            own = {self._holder, (patch["metadata"].get("annotations") or {}).get(HOLDER)}
            was_deleting = self.is_deleting
            is_gone = self._find() is None or (self.is_deleting and not was_deleting)
            if is_gone or self._holder not in own:
                raise DescriptionChanged
        raise changed_too_often(self._path)

    def _merged(self, secret: Object, record: EncodedRecord) -> EncodedRecord:
        """Return the record in the Secret with the entries of ``record``."""
        try:
            return merge(record_in_secret(secret), record)
        except ValueError as exc:
            raise BackendError(
                f"the record of experiment {self._experiment.name!r} cannot be read: {exc}; it is "
                "damaged, or a later version of symphony has written it: use that version, or "
                "launch the experiment again with force"
            ) from exc

    def _find(self) -> Object | None:
        """Return the Secret, or None if there is none."""
        try:
            secret = self._experiment.api.find(self._path)
        except ApiError as exc:
            raise self._not_permitted(exc, "get") from exc
        if secret is None or not is_managed(secret, self._experiment.name):
            return None
        self._note(secret)
        return secret

    def _note(self, secret: Object) -> None:
        """Use a version of the Secret for the next change."""
        metadata = secret["metadata"]
        annotations = metadata.get("annotations") or {}
        self._secret = secret
        self._version = metadata["resourceVersion"]
        self._holder = annotations.get(HOLDER, "")
        self.is_deleting = DELETING in annotations or "deletionTimestamp" in metadata

    def _patch(self, patch: Object) -> None:
        metadata = {**patch.get("metadata", {}), "resourceVersion": self._version}
        try:
            answer = self._experiment.api.call(
                "PATCH",
                self._path,
                body={**patch, "metadata": metadata},
                content_type=MERGE_PATCH,
                accept=ACCEPT_METADATA,
            )
        except ApiError as exc:
            if exc.status in (404, 409):
                raise DescriptionChanged from exc
            raise self._not_permitted(exc, "get and patch") from exc
        data = {**self._secret.get("data", {}), **patch.get("data", {})}
        self._note({**answer, "data": data})

    def _not_permitted(self, exc: ApiError, verbs: str) -> ApiError:
        action = f"compare experiment {self._experiment.name!r} with another description"
        return missing_right(exc, action, f"{verbs} secrets", self._experiment.scope)


def _new_holder(count: int) -> str:
    """Return the name of this command, with the number of times that it has renewed its claim.

    Commands in the same process have different names.
    """
    return f"{socket.gethostname()} {os.getpid()} {count} {secrets.token_hex(4)}"


def _renewal(count: int, _: Object) -> Object:
    return _holder_patch(_new_holder(count))


def _holder_patch(holder: str | None) -> Object:
    return {"metadata": {"annotations": {HOLDER: holder}}}


def _has_exited(holder: str) -> bool:
    """Return whether a holder is known to have exited, because it ran on this machine."""
    host, _, rest = holder.partition(" ")
    pid = rest.partition(" ")[0]
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
