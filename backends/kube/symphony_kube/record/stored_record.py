"""Read the copy of the record that does not depend on Pods and Jobs.

The record is in annotations of the first Pod or Job of an experiment. A node that is deleted, an
eviction, the time to live of a Job or a user can remove this object. The Secret with the
description of the experiment therefore has the same annotations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony_kube.api.client import ACCEPT_METADATA
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import DESCRIPTION, HOLDER, Scope
from symphony_kube.api.resources import collection_path, is_in_scope
from symphony_kube.record.copies import StoredRecord
from symphony_kube.record.encoded_record import record_in
from symphony_kube.state.pod_status import parse_time

if TYPE_CHECKING:
    from symphony_kube.api.client import Api


def read_stored_record(api: Api, scope: Scope) -> StoredRecord | None:
    """Return the stored record of an experiment.

    Return None if there is none, if it is being deleted, or if the user may not read it. Only the
    metadata of the Secret is read.
    """
    name = scope.object_name(DESCRIPTION, "Secret")
    path = f"{collection_path('Secret', scope.namespace)}/{name}"
    try:
        secret = api.call("GET", path, accept=ACCEPT_METADATA)
    except ApiError as exc:
        if exc.status not in (403, 404):
            raise
        return None
    metadata = secret["metadata"]
    if not is_in_scope(secret, scope) or "deletionTimestamp" in metadata:
        return None
    annotations = metadata.get("annotations") or {}
    record = record_in(annotations)
    if not record.roster:
        return None
    return StoredRecord(
        record=record,
        created=parse_time(metadata.get("creationTimestamp")),
        is_changing=HOLDER in annotations,
    )
