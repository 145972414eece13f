"""Recorded histories of objects, as an experiment of symphony; see ``histories/README.md``."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from symphony_kube.api import labels
from symphony_kube.api.resources import parse_time
from symphony_kube.record.copies import StoredRecord
from symphony_kube.record.encoded_record import EncodedRecord
from symphony_kube.render.roster import Roster, Unit, encode_roster
from symphony_kube.state.observe import ExperimentState
from symphony_kube.state.observed_objects import JOB_SETS, JOBS, PODS

DIRECTORY = Path(__file__).with_name("histories")
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in DIRECTORY.glob("*.jsonl.gz"))
_TIMES = ("creationTimestamp", "lastTransitionTime", "startedAt", "finishedAt")


@dataclass(frozen=True)
class Change:
    """A change to an object. ``at`` is the time in seconds since the epoch."""

    at: float
    kind: str
    event: str
    body: dict[str, Any]

    @property
    def uid(self) -> str:
        return self.body["metadata"]["uid"]


@dataclass(frozen=True)
class History:
    """All changes of a recording, and the units of the experiment."""

    changes: tuple[Change, ...]
    roster: Roster

    @property
    def end(self) -> float:
        """A time at which nothing changes any more, in seconds since the epoch."""
        return self.changes[-1].at + 100

    def observer(self) -> ExperimentState:
        """Return an observer that knows the units, but no objects."""
        observer = ExperimentState("e")
        record = EncodedRecord(roster=encode_roster(self.roster))
        # The objects were created one after the other.
        stored = StoredRecord(record=record, created=self.changes[0].at, is_changing=True)
        observer.record.use_stored(stored)
        return observer


@cache
def read_history(name: str) -> History:
    """Return a recording as if symphony had created its objects.

    Each Pod and each Job without an owner is a unit, and each Pod of a JobSet is a rank.
    """
    with gzip.open(DIRECTORY / f"{name}.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for line in file]
    specs: dict[str, Any] = {}
    for line in lines:
        body = line["object"]
        uid = body["metadata"]["uid"]
        specs[uid] = body.setdefault("spec", specs.get(uid))
    # The times in objects are whole seconds.
    began = max(time - line["at"] for line in lines for time in _times_in(line["object"]))
    units: dict[str, Unit] = {}
    changes = []
    for line in lines:
        body = copy.deepcopy(line["object"])
        for unit in _adopt(line["resource"], body):
            units.setdefault(unit.name, unit)
        changes.append(Change(began + line["at"], line["resource"], line["type"], body))
    return History(tuple(changes), tuple(units.values()))


def _times_in(value: Any, key: str = "") -> Iterator[float]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _times_in(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _times_in(inner)
    elif key in _TIMES and parse_time(value) is not None:
        yield parse_time(value)


def _adopt(kind: str, body: dict[str, Any]) -> list[Unit]:
    """Add the labels and names to an object with which symphony would create it.

    Return its units, except for the Pods and Jobs that a controller has created.
    """
    metadata = body["metadata"]
    own_labels = metadata.setdefault("labels", {})
    name = metadata["name"]
    if kind == JOB_SETS:
        return _adopt_job_set(body)
    job_set = own_labels.get("jobset.sigs.k8s.io/jobset-name")
    if job_set and kind == JOBS:
        return []
    if job_set:
        job = int(own_labels["jobset.sigs.k8s.io/job-index"])
        index = int(own_labels["batch.kubernetes.io/job-completion-index"])
        unit = f"{job_set}-{job * 2 + index}"
    else:
        unit = own_labels.get("batch.kubernetes.io/job-name", name)
    own_labels[labels.UNIT] = unit
    spec = body["spec"] if kind == PODS else body["spec"]["template"]["spec"]
    processes = _rename_containers(unit, spec, body.get("status") or {})
    if job_set:
        return []
    is_job = unit != name or kind == JOBS
    return [Unit(name=unit, group=len(processes) > 1, processes=processes, job=is_job)]


def _adopt_job_set(body: dict[str, Any]) -> list[Unit]:
    name = body["metadata"]["name"]
    (replicated,) = body["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    jobs, units = [], []
    for number in range(replicated["replicas"] * job["completions"]):
        rank = f"{name}-{number}"
        template = copy.deepcopy(job)
        _rename_containers(rank, template["template"]["spec"], {})
        jobs.append(
            {
                "name": f"rank-{number}",
                "template": {"metadata": {"labels": {labels.UNIT: rank}}, "spec": template},
            }
        )
        units.append(Unit(name=rank, processes=(rank,), job_set=name))
    body["spec"] = {**body["spec"], "replicatedJobs": jobs}
    return units


def _rename_containers(unit: str, spec: Any, status: Any) -> tuple[str, ...]:
    """Give the containers of a unit the names of processes. Return these names."""
    containers = spec["containers"]
    names = {}
    for container in containers:
        original = container["name"].rpartition(".")[2]
        names[original] = unit if len(containers) == 1 else f"{unit}-{original}"
    spec["containers"] = [
        {**container, "name": names.get(container["name"], container["name"])}
        for container in containers
    ]
    for container in status.get("containerStatuses") or ():
        container["name"] = names[container["name"]]
    return tuple(names.values())


class Objects:
    """The objects that exist after some changes, and the uids of those that existed earlier."""

    def __init__(self) -> None:
        self.current: dict[str, Change] = {}
        self.deleted: dict[str, Change] = {}

    def apply(self, change: Change) -> None:
        """Apply a change."""
        if change.event == "DELETED":
            self.current.pop(change.uid, None)
            self.deleted[change.uid] = change
        else:
            self.current[change.uid] = change

    def list(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind, as the API lists them."""
        return [change.body for change in self.current.values() if change.kind == kind]


def list_into(observer: ExperimentState, objects: Objects) -> None:
    """List all objects again, as a watch does that the server has ended."""
    for kind in (PODS, JOBS, JOB_SETS):
        observer.replace(kind, objects.list(kind))


def apply_all(observer: ExperimentState, changes: Iterable[Change]) -> None:
    """Apply changes to an observer."""
    for change in changes:
        observer.apply(change.kind, change.event, change.body)
