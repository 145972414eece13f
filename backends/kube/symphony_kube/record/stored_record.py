"""The record of an experiment in the Secret with its description.

The first Pod or Job has a copy of the record, for users who may read only Pods. This object can be
removed by the deletion of its node, an eviction, the time to live of a Job or a user.

Version 0.1 stored some of the entries as annotations of the Secret.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from symphony_kube.api.compare_and_swap import compare_and_swap
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import DESCRIPTION, HOLDER, Scope
from symphony_kube.api.resources import collection_path, is_in_scope, parse_time
from symphony_kube.record.copies import StoredRecord
from symphony_kube.record.encoded_record import NO_RECORD, EncodedRecord, record_in
from symphony_kube.record.ending import decode_ending
from symphony_kube.render import codec

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]

KEY = "record"
# The version of the format. Fields can be added without another version.
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """The stored data: the entries of `EncodedRecord`, and the version of the format."""

    version: int
    roster: str = ""
    policies: str = ""
    changes: str = ""
    problems: str = ""
    ending: str = ""


def encode_stored(record: EncodedRecord) -> bytes:
    """Encode a record. The result is compressed."""
    return codec.compress(codec.to_text({"version": VERSION, **asdict(record)}))


def decode_stored(data: bytes) -> EncodedRecord:
    """Decode a record. Raises ValueError if it is damaged or has another version."""
    fields = asdict(codec.build(_Content, codec.from_text(codec.decompress(data))))
    version = fields.pop("version")
    if version != VERSION:
        raise ValueError(f"not valid: version {version} instead of {VERSION}")
    return EncodedRecord(**fields)


def record_in_secret(secret: Object) -> EncodedRecord:
    """Return the record in a Secret. Raises ValueError if it is damaged."""
    in_annotations = record_in(secret["metadata"].get("annotations") or {})
    data = (secret.get("data") or {}).get(KEY)
    if data is None:
        return in_annotations
    record = decode_stored(base64.b64decode(data, validate=True))
    if codec.revision_of(in_annotations.roster) > codec.revision_of(record.roster):
        # Version 0.1 has changed the experiment.
        return merge(record, in_annotations)
    return record


def fields_with(record: EncodedRecord, found: Object | None = None) -> dict[str, Any]:
    """Return the fields of a Secret that contain a record.

    The annotations of version 0.1 are removed from ``found``, the present Secret.
    """
    data = base64.b64encode(encode_stored(record)).decode()
    annotations: dict[str, None] = {}
    if found is not None:
        earlier = record_in(found["metadata"].get("annotations") or {})
        annotations = dict.fromkeys(earlier.annotations())
    return {"metadata": {"annotations": annotations}, "data": {KEY: data}}


def merge(record: EncodedRecord, entries: EncodedRecord) -> EncodedRecord:
    """Return ``record`` with the entries that ``entries`` has.

    The first decision about the end of the experiment is the valid one.
    """
    new = {name: text for name, text in asdict(entries).items() if text}
    if decode_ending(record.ending) is not None:
        new.pop("ending", None)
    return replace(record, **new)


def secret_path(scope: Scope) -> str:
    """Return the path of the Secret."""
    name = scope.object_name(DESCRIPTION, "Secret")
    return f"{collection_path('Secret', scope.namespace)}/{name}"


def read_stored_record(experiment: KubeExperiment) -> StoredRecord | None:
    """Return the stored record of an experiment.

    Return None if there is none, if it is being deleted, or if the user may not read it.
    """
    try:
        secret = experiment.api.find(secret_path(experiment.scope))
    except ApiError as exc:
        if exc.status != 403:
            raise
        return None
    if secret is None or not _belongs_to(secret, experiment.scope):
        return None
    try:
        record = record_in_secret(secret)
    except ValueError:
        return None
    if not record.roster:
        return None
    metadata = secret["metadata"]
    return StoredRecord(
        record=record,
        created=parse_time(metadata.get("creationTimestamp")),
        is_changing=HOLDER in (metadata.get("annotations") or {}),
    )


def store_entries(experiment: KubeExperiment, entries: EncodedRecord) -> EncodedRecord | None:
    """Add entries to the stored record, and return the record.

    Return None if there is none, or if the user may not change it: only the copy has the entries.
    """
    stored: EncodedRecord | None = None

    def change(secret: Object) -> Object | None:
        nonlocal stored
        stored = None
        if not _belongs_to(secret, experiment.scope):
            return None
        try:
            record = record_in_secret(secret)
        except ValueError:
            return None
        if record == NO_RECORD:
            return None
        stored = merge(record, entries)
        return {} if stored == record else fields_with(stored, secret)

    try:
        secret = compare_and_swap(experiment.api, secret_path(experiment.scope), change)
    except ApiError as exc:
        if exc.status not in (403, 404):
            raise
        return None
    return None if secret is None else stored


def _belongs_to(secret: Object, scope: Scope) -> bool:
    if "deletionTimestamp" in secret["metadata"]:
        return False
    return is_in_scope(secret, scope)
