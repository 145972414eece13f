"""Write entries of the record to the objects that every reader of the status reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symphony_kube.api.client import ACCEPT_METADATA, MERGE_PATCH
from symphony_kube.api.compare_and_swap import compare_and_swap
from symphony_kube.api.resources import collection_path
from symphony_kube.record.encoded_record import EncodedRecord, record_in
from symphony_kube.record.stored_record import merge, store_entries
from symphony_kube.render.roster import Roster, roster_unit
from symphony_kube.state.unit_status import UnitStatus

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]


def publish(
    experiment: KubeExperiment,
    roster: Roster,
    statuses: Mapping[str, UnitStatus],
    entries: EncodedRecord,
) -> None:
    """Add entries to the stored record, and to its copy in the object with the roster.

    ``statuses`` contains the units that exist. Raises `ApiError` if the copy cannot be changed.
    """
    stored = store_entries(experiment, entries)
    unit = roster_unit(roster)
    kind, name = "Job" if unit.job else "Pod", experiment.scope.object_name(unit.name)
    # A change can have replaced a Pod by a Job.
    status = statuses.get(unit.name)
    if status is not None and status.job is not None:
        kind, name = status.job.kind, status.job.name
    elif status is not None and status.pods:
        kind, name = "Pod", status.pods[-1].name
    path = f"{collection_path(kind, experiment.namespace)}/{name}"
    if entries.ending:
        valid_ending = "" if stored is None else stored.ending
        compare_and_swap(experiment.api, path, lambda body: _patch_of(body, entries, valid_ending))
        return
    # Only the supervisor writes the other entries.
    patch = {"metadata": {"annotations": entries.annotations()}}
    experiment.api.call("PATCH", path, body=patch, content_type=MERGE_PATCH, accept=ACCEPT_METADATA)


def _patch_of(body: Object, entries: EncodedRecord, valid_ending: str) -> Object:
    """Return the patch that adds entries to a copy of the record.

    ``valid_ending`` is that of the stored record, or ``""`` if it is not known. Programs that end
    the experiment at the same time can reach the copy in another order than the stored record.
    """
    record = record_in(body["metadata"].get("annotations") or {})
    merged = merge(record, entries)
    if valid_ending:
        merged = replace(merged, ending=valid_ending)
    if merged == record:
        return {}
    return {"metadata": {"annotations": merged.annotations()}}
