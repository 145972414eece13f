"""Who is joined with whom in an experiment that runs: from its Pods, its roster and its Services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.names import env_name
from symphony.plan.addresses import PREFIX
from symphony.plan.encryption_keys import variable
from symphony.plan.topology import Service, Topology, of_status
from symphony.status import ExperimentStatus
from symphony_kube.access import find_pod
from symphony_kube.api import labels
from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import collection_path, items_of
from symphony_kube.status import experiments as looking

if TYPE_CHECKING:
    from symphony_kube.api.client import Api
    from symphony_kube.api.labels import Scope
    from symphony_kube.render.roster import Roster

Object = Mapping[str, Any]


def look(api: Api, scope: Scope) -> Topology:
    """The topology of an experiment. Raises `NotFound` without it.

    Where its Pods were deleted by hand, and its roster with them, nobody knows who connects to what.
    """
    observer, found = looking.observed(api, scope)
    status = looking.status_of(api, scope, observer)
    try:
        services = api.call(
            "GET",
            collection_path("Service", scope.namespace),
            query={"labelSelector": scope.selector},
        )
    except ApiError as exc:
        raise find_pod.refused(
            exc, f"cannot list the services of {scope.experiment!r}", "list services", scope
        ) from exc
    return topology(status, observer.units, items_of(services), _environment(found))


def topology(
    status: ExperimentStatus,
    roster: Roster,
    services: Iterable[Object],
    environment: Mapping[str, str],
) -> Topology:
    """The topology of what these objects make up; ``environment`` is that of any of its containers. Pure."""
    members = {
        service: name
        for unit in roster
        for name, served in unit.serves.items()
        for service in served
    }
    found = [_service(body, members, environment) for body in services]
    # The API lists by name; addresses stand in the environment in the order of the description.
    place = {name: number for number, name in enumerate(environment)}
    found.sort(key=lambda one: place.get(f"{PREFIX}{env_name(one.name)}_ADDR", len(place)))
    return of_status(
        status,
        services=found,
        connects={name: services for unit in roster for name, services in unit.connects.items()},
        starts_after={unit.name: unit.starts_after for unit in roster},
    )


def _service(body: Object, members: Mapping[str, str], environment: Mapping[str, str]) -> Service:
    marks, spec = body["metadata"]["labels"], body["spec"]
    name = marks.get(labels.SERVICE, body["metadata"]["name"])
    return Service(
        name=name,
        owners=(members.get(name, marks.get(labels.UNIT, "")),),
        port=spec["ports"][0]["port"],
        exposed=spec.get("type") in ("LoadBalancer", "NodePort"),
        encrypted=variable(name) in environment,
    )


def _environment(found: Iterable[Object]) -> dict[str, str]:
    for pod in found:
        return {
            item["name"]: item.get("value") or ""
            for item in pod["spec"]["containers"][0].get("env") or ()
        }
    return {}
