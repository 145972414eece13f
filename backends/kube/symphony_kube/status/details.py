"""What is known of one process: from its Pod, and from what Kubernetes noted of that."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symphony.cluster.matching import find_status
from symphony.process_details import ProcessDetails, ProcessEvent
from symphony.status import ProcessStatus
from symphony_kube.access import find_pod
from symphony_kube.api.errors import ApiError
from symphony_kube.status import experiments
from symphony_kube.status.pod_status import seconds

if TYPE_CHECKING:
    from symphony_kube.api.client import Api
    from symphony_kube.api.labels import Scope

Object = Mapping[str, Any]


def explain(api: Api, scope: Scope, process: str, group: str | None) -> ProcessDetails:
    """The details of a process. Raises `NotFound` where there is none of that name and group.

    Events are what the server still keeps of them, an hour's by default; without the right to list them there
    are none.
    """
    status = find_status(experiments.describe(api, scope), process, group)
    place = find_pod.find(api, scope, process, group)
    pod = None if place is None else api.find(find_pod.path(scope, place.pod))
    if pod is None:
        return ProcessDetails(status=status)
    return details(status, pod, _events(api, scope, pod))


def details(
    status: ProcessStatus, pod: Object, events: tuple[ProcessEvent, ...] = ()
) -> ProcessDetails:
    """What a Pod tells of one of its processes. Pure."""
    spec = pod["spec"]
    container = next(item for item in spec["containers"] if item["name"] == status.name)
    env = {item["name"]: str(item.get("value") or "") for item in container.get("env") or ()}
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    facts = {
        "command": shlex.join(words),
        "folder": container.get("workingDir"),
        "image": container.get("image"),
        "pod": f"{pod['metadata']['namespace']}/{pod['metadata']['name']}",
        "node": spec.get("nodeName"),
        "address": (pod.get("status") or {}).get("podIP"),
    }
    return ProcessDetails(
        status=status,
        facts={key: value for key, value in facts.items() if value},
        resources=_resources(container.get("resources") or {}),
        addresses={
            name.removeprefix("SYMPH_").removesuffix("_ADDR").lower().replace("_", "-"): value
            for name, value in env.items()
            if name.startswith("SYMPH_") and name.endswith("_ADDR")
        },
        events=events,
    )


def _resources(given: Object) -> dict[str, str]:
    """What is asked for and what is the most, of each resource: ``{"cpu": "1, at most 2"}``."""
    asked, most = given.get("requests") or {}, given.get("limits") or {}
    return {
        name: _amount(asked.get(name), most.get(name)) for name in dict.fromkeys([*asked, *most])
    }


def _amount(asked: object, most: object) -> str:
    if asked is None or asked == most:
        return str(most)
    return str(asked) if most is None else f"{asked}, at most {most}"


def _events(api: Api, scope: Scope, pod: Object) -> tuple[ProcessEvent, ...]:
    selector = f"involvedObject.uid={pod['metadata']['uid']}"
    try:
        found = api.call(
            "GET", f"/api/v1/namespaces/{scope.namespace}/events", query={"fieldSelector": selector}
        )
    except ApiError as exc:
        if exc.status != 403:
            raise
        return ()
    return tuple(sorted(map(_event, found.get("items") or ()), key=lambda event: event.at or 0.0))


def _event(item: Object) -> ProcessEvent:
    times = int(item.get("count") or 1)
    when = (
        item.get("lastTimestamp")
        or item.get("eventTime")
        or item["metadata"].get("creationTimestamp")
    )
    text = " ".join(str(item.get("message") or "").split())
    often = f" ({times} times)" if times > 1 else ""
    return ProcessEvent(at=seconds(when), text=f"{item.get('reason') or 'note'}: {text}{often}")
