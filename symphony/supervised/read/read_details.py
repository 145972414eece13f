"""A process's details and an experiment's topology, from the manifest, the status and the events.

All functions are pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from symphony.plan.resolution.encryption_keys import variable
from symphony.plan.state import Event
from symphony.plan.topology import Service, Topology, of_status, with_merged_replicas
from symphony.process_details import ProcessDetails, ProcessEvent
from symphony.status import ExperimentStatus, ProcessStatus, background_reason
from symphony.supervised.processes.spec import GPU_VARIABLE


def process_details(
    manifest: Mapping[str, Any], status: ProcessStatus, events: Iterable[Event], log: Path
) -> ProcessDetails:
    """Return the details of one process. ``events`` are the events of the whole experiment."""
    spec = next(item for item in manifest["processes"] if item["name"] == status.name)
    own_events = [event for event in events if event.get("process") == status.name]
    return ProcessDetails(
        status=status,
        facts={"command": shlex.join(spec["argv"]), "folder": spec["cwd"], "log": str(log)},
        resources=_resources(spec),
        addresses=manifest["services"],
        events=tuple(
            ProcessEvent(at=event["at"], text=_EVENT_TEXTS[event["event"]](event))
            for event in own_events
            if event["event"] in _EVENT_TEXTS
        ),
    )


def _resources(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the number of GPUs that a process has leased, and their identifiers."""
    if not spec["gpus"]:
        return {}
    return {"gpu": str(spec["gpus"]), "gpu devices": spec["env"].get(GPU_VARIABLE, "")}


def _exited_text(event: Event) -> str:
    code = event["code"]
    return _with_reason("exited" if code is None else f"exited with code {code}", event)


def _with_reason(text: str, event: Event) -> str:
    reason = event.get("reason")
    return f"{text}: {reason}" if reason else text


def _terminating_text(event: Event) -> str:
    seconds = max(0.0, event["kill_at"] - event["at"])
    grace = f", grace period {seconds:.3g} s" if seconds else ", without a grace period"
    return f"{'restart' if event.get('restarts') else 'stop'} requested{grace}"


_EVENT_TEXTS: dict[str, Callable[[Event], str]] = {
    "waiting": lambda event: str(event["reason"]),
    "started": lambda event: f"started as process {event['pid']}",
    "start-failed": lambda event: _with_reason("not started", event),
    "ready": lambda _: "ready",
    "not-ready": lambda event: str(event["reason"]),
    "unhealthy": lambda event: str(event["reason"]),
    "exited": _exited_text,
    "never": lambda event: _with_reason("will not start", event),
    "terminating": _terminating_text,
    "start-requested": lambda _: "start requested",
    "background": lambda event: background_reason(event["program"], event["running"]),
    "signaled": lambda event: f"received {event['signal']} on request",
}


def topology(manifest: Mapping[str, Any], status: ExperimentStatus) -> Topology:
    """Return the topology of a launched experiment.

    The owner of a service is the process whose start releases the hold on the service's port. If
    there are several such processes, the owner is their group.
    """
    specs = manifest["processes"]
    services = [_service(name, address, manifest) for name, address in manifest["services"].items()]
    return of_status(
        status,
        services=with_merged_replicas(services, manifest["env"]),
        connects={spec["name"]: spec.get("connects", ()) for spec in specs},
        starts_after={spec["group"] or spec["name"]: spec["starts_after"] for spec in specs},
    )


def _service(name: str, address: str, manifest: Mapping[str, Any]) -> Service:
    port = int(address.rpartition(":")[2])
    servers = [spec for spec in manifest["processes"] if port in spec["releases"]]
    owner = servers[0]["name"] if len(servers) == 1 else servers[0]["group"]
    return Service(
        name=name,
        owners=(owner,),
        port=port,
        exposed=name in manifest["exposed"],
        encrypted=variable(name) in manifest["env"],
    )
