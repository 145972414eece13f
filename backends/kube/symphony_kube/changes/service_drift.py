"""Find the Services of an experiment that others have deleted or edited, and how to repair them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symphony.plan.changes import STARTED, UNCHANGED, UPDATED, ProcessChange
from symphony.support.names import join_names
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import SERVICE, UNIT
from symphony_kube.api.resources import collection_path, items_of, labels_of

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.render.manifest import KubeManifest

Object = Mapping[str, Any]

# The fields of a Service that symphony sets and that can change.
_FIELDS = ("type", "selector", "ports", "publishNotReadyAddresses")


def find_drift(
    experiment: KubeExperiment, manifest: KubeManifest, services: Collection[str]
) -> dict[str, list[str]]:
    """Return what is wrong with the Services in the cluster, as words, by the process that serves.

    ``services`` contains the services of the running experiment. A user who may not list Services
    finds nothing.
    """
    wanted = [body for body in manifest.base_objects if labels_of(body).get(SERVICE) in services]
    if not wanted:
        return {}
    path = collection_path("Service", experiment.namespace)
    try:
        found = items_of(
            experiment.api.call("GET", path, query={"labelSelector": experiment.selector})
        )
    except ApiError as exc:
        if exc.status != 403:
            raise
        return {}
    present = {item["metadata"]["name"]: item for item in found}
    drift: dict[str, list[str]] = {}
    for body in wanted:
        problem = _problem(body, present.get(body["metadata"]["name"]))
        if problem:
            drift.setdefault(_server_of(body, manifest), []).append(problem)
    return drift


def with_drift(
    changes: Iterable[ProcessChange], drift: Mapping[str, Collection[str]]
) -> tuple[ProcessChange, ...]:
    """Return changes that repair the Services of processes that are otherwise not changed."""
    result = []
    for change in changes:
        problems = drift.get(change.name, ())
        if problems and change.action in (UNCHANGED, STARTED):
            action = UPDATED if change.action == UNCHANGED else change.action
            change = replace(change, action=action, reasons=(*change.reasons, *problems))
        result.append(change)
    return tuple(result)


def service_patch(body: Object, found: Object) -> dict[str, Any] | None:
    """Return the merge patch that repairs or changes a Service, or None if it is as ``body``."""
    fields = _different_fields(body, found)
    if not fields:
        return None
    spec = {key: body["spec"][key] for key in fields}
    if "selector" in spec:
        # A merge patch keeps the keys that it does not contain.
        spec["selector"] = {
            **dict.fromkeys(found["spec"].get("selector") or ()),
            **spec["selector"],
        }
    labels = {UNIT: body["metadata"]["labels"][UNIT]}
    return {"metadata": {"labels": labels}, "spec": spec}


def _problem(body: Object, found: Object | None) -> str:
    name = body["metadata"]["name"]
    if found is None or "deletionTimestamp" in found["metadata"]:
        return f"its Service {name!r} does not exist"
    fields = _different_fields(body, found)
    return f"its Service {name!r} was edited ({join_names(fields)})" if fields else ""


def _different_fields(body: Object, found: Object) -> list[str]:
    """Return the fields in which a Service differs from the one that symphony creates."""
    wanted, present = body["spec"], found["spec"]
    different = [key for key in _FIELDS if key in wanted and present.get(key) != wanted[key]]
    if _are_ports(wanted.get("ports") or (), present.get("ports") or ()):
        different = [key for key in different if key != "ports"]
    return different


def _are_ports(wanted: Sequence[Object], present: Sequence[Object]) -> bool:
    """Return whether ports have all fields of the wanted ones. The server adds other fields."""
    pairs = zip(wanted, present, strict=False)
    return len(wanted) == len(present) and all(one.items() <= other.items() for one, other in pairs)


def _server_of(body: Object, manifest: KubeManifest) -> str:
    """Return a process that serves a service, or the first one of the group that does."""
    labels = labels_of(body)
    (unit,) = [unit for unit in manifest.roster if unit.name == labels[UNIT]]
    for process, served in unit.serves.items():
        if labels[SERVICE] in served:
            return process
    return unit.processes[0]
