"""The places in which supervisors store the recorded resource use of a run.

A supervisor on the launching machine writes to the record of the run. A supervisor in the cluster
stores the same file, with a smaller limit, in a Secret, because its Pod can be replaced.
"""

from __future__ import annotations

import base64
import math
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.archive import archive
from symphony.archive.archived_usage import USAGE_FILE, UsageLog
from symphony.archive.run_record import RECORD_FILE, is_run_name
from symphony.errors import BackendError
from symphony.model.limits import MAX_BYTES as MAX_READ_BYTES
from symphony.support.replace_file import replace_file
from symphony_kube.api.client import ACCEPT_METADATA, MERGE_PATCH
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import USAGE, Scope
from symphony_kube.api.resources import collection_path, is_in_scope
from symphony_kube.lifecycle.supervisor.run import SupervisedRun
from symphony_kube.render.file_objects.files import MAX_OBJECT_BYTES

if TYPE_CHECKING:
    from symphony.usage import ExperimentUsage
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]

# The limit for the file before its compression. Kubernetes limits a Secret to 1 MiB.
MAX_BYTES = 256 << 10
# The Secret is replaced at most this often, unless the supervisor stops to record.
STORE_SECONDS = 30.0
_KEY = "usage"


def find_record(run: SupervisedRun) -> Path | None:
    """Return the record of an active run on this machine, or None if there is none."""
    # Other users may be able to change the name, which becomes that of a directory.
    if not is_run_name(run.run_name):
        return None
    directory = archive.active_directory() / run.run_name
    return directory if (directory / RECORD_FILE).exists() else None


class UsageInRecord(UsageLog):
    """The samples in the record of a run on this machine."""

    def flush(self) -> None:
        """Do nothing, because each sample is written at once."""


def open_record(run: SupervisedRun) -> UsageInRecord:
    """Return the samples in the record of a run. Raises `BackendError` if there is no record."""
    record = find_record(run)
    if record is None:
        raise BackendError(
            "the resource use is not recorded, because this machine has no record of the run; "
            "change the experiment on the machine that launched it"
        )
    return UsageInRecord(record / USAGE_FILE)


def recorded_content(run: SupervisedRun) -> bytes:
    """Return the samples in the record of a run as the content of a file."""
    record = find_record(run)
    try:
        return b"" if record is None else (record / USAGE_FILE).read_bytes()
    except OSError:
        return b""


# --- the Secret ---


def usage_object(scope: Scope, content: bytes) -> dict[str, Any]:
    """Return the Secret of a run that begins with the samples in ``content``."""
    name = scope.object_name(USAGE, "Secret")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": scope.namespace, "labels": scope.labels},
        "type": "Opaque",
        "data": _encode(content),
    }


def fetch_usage(experiment: KubeExperiment) -> bytes | None:
    """Return the samples in the Secret of a run as the content of a file.

    If the scope contains all runs, it is the run that exists. Return None if there is no such
    Secret, or if the user may not read it.
    """
    try:
        found = experiment.api.find(_path(experiment.scope))
    except ApiError as exc:
        if exc.status != 403:
            raise
        return None
    if found is None or not is_in_scope(found, experiment.scope):
        return None
    return _decode(found)


class UsageInSecret(UsageLog):
    """The samples in the Secret of a run, which the next supervisor continues.

    A supervisor that was replaced, but is still running, finds out that another one has changed the
    Secret. The samples that it has taken since then are dropped, because the other supervisor has
    recorded its own.
    ``directory`` is a directory for a copy of the samples.
    """

    def __init__(self, experiment: KubeExperiment, directory: Path) -> None:
        self._api = experiment.api
        self._secret = _path(experiment.scope)
        self._stored_at = -math.inf
        self._version = ""
        self._file = directory / USAGE_FILE
        self._load()

    def append(self, sample: ExperimentUsage) -> None:
        """Add a sample, and store the samples unless this was done a short time ago.

        Raises `BackendError` or OSError if they cannot be stored. The next call tries again.
        """
        super().append(sample)
        self._is_stored = False
        if time.monotonic() - self._stored_at >= STORE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Store the samples that are not stored yet. Raises `BackendError` or OSError."""
        if self._is_stored:
            return
        self._stored_at = time.monotonic()
        data = _encode(self._file.read_bytes())
        size = len(data[_KEY])
        if size > MAX_OBJECT_BYTES:
            raise BackendError(
                f"the resource use is not stored: it has {size / MAX_OBJECT_BYTES:.2f} MiB, and "
                "the limit of Kubernetes for a Secret is 1 MiB; use fewer processes"
            )
        patch = {"metadata": {"resourceVersion": self._version}, "data": data}
        try:
            answer = self._api.call(
                "PATCH", self._secret, body=patch, content_type=MERGE_PATCH, accept=ACCEPT_METADATA
            )
        except ApiError as exc:
            if exc.status != 409:
                raise
            self._load()
        else:
            self._version = answer["metadata"]["resourceVersion"]
            self._is_stored = True

    def _load(self) -> None:
        """Continue the samples in the Secret."""
        secret = self._api.call("GET", self._secret)
        replace_file(self._file, [_decode(secret)])
        self._version = secret["metadata"]["resourceVersion"]
        self._is_stored = True
        super().__init__(self._file, max_bytes=MAX_BYTES)


def _path(scope: Scope) -> str:
    name = scope.object_name(USAGE, "Secret")
    return f"{collection_path('Secret', scope.namespace)}/{name}"


def _encode(content: bytes) -> dict[str, str]:
    return {_KEY: base64.b64encode(zlib.compress(content, 6)).decode()}


def _decode(secret: Object) -> bytes:
    """Return the content of the file in a Secret. It is empty if the Secret is damaged."""
    try:
        encoded = base64.b64decode((secret.get("data") or {}).get(_KEY, ""))
        return zlib.decompressobj().decompress(encoded, MAX_READ_BYTES)
    except (ValueError, zlib.error):
        return b""
