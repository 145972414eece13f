"""Read the topology of a launched experiment from its Pods, its roster and its Services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.plan.resolution.addresses import PREFIX
from symphony.plan.resolution.encryption_keys import variable
from symphony.plan.topology import Service, Topology, of_status, with_merged_replicas
from symphony.status import ExperimentStatus
from symphony.support.names import service_env_name
from symphony_kube.api import labels
from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import collection_path, items_of
from symphony_kube.status import experiments
from symphony_kube.status.container_environment import listed_variables, read_shared_variables
from symphony_kube.status.permission_errors import missing_right

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.render.roster import Roster

Object = Mapping[str, Any]


def describe_topology(experiment: KubeExperiment) -> Topology:
    """Return the topology of an experiment. Raises `NotFound` if the experiment does not exist.

    If a user has deleted the first Pod, the connections between processes are unknown, because that
    Pod contains the roster.
    """
    state, pods = experiments.observe_once(experiment)
    status = experiments.current_status(experiment, state)
    return find_topology(experiment, status, state.units, pods)


def find_topology(
    experiment: KubeExperiment,
    status: ExperimentStatus,
    roster: Roster,
    pods: Sequence[dict[str, Any]],
) -> Topology:
    """Return the topology of an experiment whose Pods are known, and list only its Services."""
    path = collection_path("Service", experiment.namespace)
    try:
        services = experiment.api.call("GET", path, query={"labelSelector": experiment.selector})
    except ApiError as exc:
        action = f"list the services of {experiment.name!r}"
        raise missing_right(exc, action, "list services", experiment.scope) from exc
    variables = read_shared_variables(experiment, pods)
    if pods:
        # The environments of all containers contain the same service addresses.
        variables.update(listed_variables(pods[0]["spec"]["containers"][0]))
    return build_topology(status, roster, items_of(services), variables)


def build_topology(
    status: ExperimentStatus,
    roster: Roster,
    services: Iterable[Object],
    environment: Mapping[str, str],
) -> Topology:
    """Return the topology of an experiment without accessing the cluster.

    ``environment`` is the environment of any container in the experiment.
    """
    group_members = {}
    connects = {}
    for unit in roster:
        connects.update(unit.connects)
        for member, member_services in unit.serves.items():
            group_members.update(dict.fromkeys(member_services, member))
    found = [_service(service, group_members, environment) for service in services]
    # The API sorts Services by name, whereas the variables that a container lists contain the
    # addresses in declaration order.
    positions = {name: position for position, name in enumerate(environment)}

    def declaration_order(service: Service) -> int:
        return positions.get(f"{PREFIX}{service_env_name(service.name)}_ADDR", len(positions))

    found.sort(key=declaration_order)
    return of_status(
        status,
        services=with_merged_replicas(found, environment),
        connects=connects,
        starts_after={unit.name: unit.starts_after for unit in roster},
    )


def _service(
    service: Object, group_members: Mapping[str, str], environment: Mapping[str, str]
) -> Service:
    metadata, spec = service["metadata"], service["spec"]
    name = metadata["labels"].get(labels.SERVICE, metadata["name"])
    owner = group_members.get(name, metadata["labels"].get(labels.UNIT, ""))
    return Service(
        name=name,
        owners=(owner,),
        port=spec["ports"][0]["port"],
        exposed=spec.get("type") in ("LoadBalancer", "NodePort"),
        encrypted=variable(name) in environment,
    )
