"""Describe one process in detail, using its Pod and the Pod's events."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from symphony.process_details import ProcessDetails, ProcessEvent
from symphony.status import ProcessStatus
from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import items_of
from symphony_kube.render import container_scripts
from symphony_kube.render.container_scripts import SHELL
from symphony_kube.render.sync import START_SCRIPT
from symphony_kube.render.text import escape
from symphony_kube.status.container_environment import listed_variables, read_shared_variables
from symphony_kube.status.event_sources.event_times import last_time
from symphony_kube.status.find_pod import find_container, pod_path

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]


def describe_in_detail(experiment: KubeExperiment, status: ProcessStatus) -> ProcessDetails:
    """Return the details of the process whose status is given.

    The API server keeps events for one hour by default. The details contain no events if the user
    is not allowed to list them.
    """
    ref = find_container(experiment, status.name, status.group)
    pod = None if ref is None else experiment.api.find(pod_path(experiment.scope, ref.pod))
    if pod is None:
        return ProcessDetails(status=status)
    shared = read_shared_variables(experiment, [pod])
    return process_details(status, pod, _list_events(experiment, pod), shared)


def process_details(
    status: ProcessStatus,
    pod: Object,
    events: tuple[ProcessEvent, ...] = (),
    shared: Mapping[str, str] = MappingProxyType({}),
) -> ProcessDetails:
    """Return a process's details, which are read from its Pod. Pure.

    ``shared`` contains the variables that its container has and does not list.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    container = next(item for item in spec["containers"] if item["name"] == status.name)
    argv = [*(container.get("command") or ()), *(container.get("args") or ())]
    facts = {
        "command": shlex.join(_program_of(argv)),
        "folder": container.get("workingDir"),
        "image": container.get("image"),
        "pod": f"{metadata['namespace']}/{metadata['name']}",
        "node": spec.get("nodeName"),
        "address": (pod.get("status") or {}).get("podIP"),
    }
    return ProcessDetails(
        status=status,
        facts={key: value for key, value in facts.items() if value},
        resources=_resources(container.get("resources") or {}),
        addresses=_addresses({**shared, **listed_variables(container)}),
        events=events,
    )


def _program_of(argv: list[str]) -> list[str]:
    """Return the command of a container without the scripts that start its program."""
    # The number of words before the program, by the script.
    lengths = {escape(container_scripts.script("first_process")): 4, escape(START_SCRIPT): 5}
    if argv[:2] == [SHELL, "-c"]:
        argv = argv[lengths.get(argv[2], 0) :]
    if argv[:3] == [SHELL, "-c", escape(container_scripts.RUN_LINE)]:
        argv = ["sh", "-c", *argv[4:]]
    return argv


def _addresses(variables: Mapping[str, str]) -> dict[str, str]:
    """Return each service's address, which is read from the variable ``SYMPH_<SERVICE>_ADDR``."""
    addresses = {}
    for name, address in variables.items():
        if name.startswith("SYMPH_") and name.endswith("_ADDR"):
            service = name.removeprefix("SYMPH_").removesuffix("_ADDR")
            addresses[service.lower().replace("_", "-")] = address
    return addresses


def _resources(resources: Object) -> dict[str, str]:
    """Return each resource's request and limit, for example ``{"cpu": "1, at most 2"}``."""
    requests = resources.get("requests") or {}
    limits = resources.get("limits") or {}
    amounts = {}
    for name in dict.fromkeys([*requests, *limits]):
        request, limit = requests.get(name), limits.get(name)
        if request is None or request == limit:
            amounts[name] = str(limit)
        elif limit is None:
            amounts[name] = str(request)
        else:
            amounts[name] = f"{request}, at most {limit}"
    return amounts


def _list_events(experiment: KubeExperiment, pod: Object) -> tuple[ProcessEvent, ...]:
    path = f"/api/v1/namespaces/{experiment.namespace}/events"
    selector = f"involvedObject.uid={pod['metadata']['uid']}"
    try:
        answer = experiment.api.call("GET", path, query={"fieldSelector": selector})
    except ApiError as exc:
        if exc.status != 403:
            raise
        return ()
    return in_order(map(to_process_event, items_of(answer)))


def in_order(events: Iterable[ProcessEvent]) -> tuple[ProcessEvent, ...]:
    """Return events in chronological order. Those without a time come first. Pure."""
    return tuple(sorted(events, key=lambda event: event.at or 0.0))


def to_process_event(item: Object) -> ProcessEvent:
    """Return an event of Kubernetes as an event of a process. Pure."""
    count = int(item.get("count") or 1)
    message = " ".join(str(item.get("message") or "").split())
    repeated = f" ({count} times)" if count > 1 else ""
    text = f"{item.get('reason') or 'note'}: {message}{repeated}"
    return ProcessEvent(at=last_time(item) or None, text=text)
