"""Why a Pod that is being set up does not get on: only the events that its node writes tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony_kube.status import reasons as causes
from symphony_kube.status.pod_status import CREATING, seconds

if TYPE_CHECKING:
    from symphony_kube.api.client import Api
    from symphony_kube.api.labels import Scope

Object = Mapping[str, Any]

# How long a Pod may be set up before it is asked what it waits for, in seconds.
SLOW = 5.0


def explained(
    api: Api, scope: Scope, status: ExperimentStatus, pods: Iterable[Object], *, now: float
) -> ExperimentStatus:
    """``status`` with the reason of processes whose Pods are being set up for long.

    One call where there is such a Pod, else none; without the right to list events the status is as it was.
    """
    slow = _slow(status, pods, now)
    if not slow:
        return status
    whose = f"uid={next(iter(slow))}" if len(slow) == 1 else "kind=Pod"
    query = {"fieldSelector": f"involvedObject.{whose}"}
    try:
        events = (
            api.call("GET", f"/api/v1/namespaces/{scope.namespace}/events", query=query).get(
                "items"
            )
            or []
        )
    except BackendError:  # what is known without them is not less true
        return status
    reasons = {
        name: why for uid, names in slow.items() if (why := reason(uid, events)) for name in names
    }
    return replace(status, processes=tuple(_with(process, reasons) for process in status))


def setting_up(status: ExperimentStatus) -> bool:
    """Whether there is a process whose Pod is being set up."""
    return any(_is_set_up(process) for process in status)


def _is_set_up(process: ProcessStatus) -> bool:
    return process.state is State.PENDING and process.reason == CREATING


def _slow(status: ExperimentStatus, pods: Iterable[Object], now: float) -> dict[str, list[str]]:
    """By uid, the processes in Pods that are being set up for long."""
    creating = {process.name for process in status if _is_set_up(process)}
    found = {}
    for pod in pods if creating else ():
        names = [item["name"] for item in pod["spec"]["containers"] if item["name"] in creating]
        since = seconds(
            (pod.get("status") or {}).get("startTime") or pod["metadata"].get("creationTimestamp")
        )
        if names and since is not None and now - since > SLOW:
            found[pod["metadata"]["uid"]] = names
    return found


def _with(process: ProcessStatus, reasons: Mapping[str, str]) -> ProcessStatus:
    why = reasons.get(process.name)
    return replace(process, reason=why) if why else process


def reason(uid: str, events: Iterable[Object]) -> str:
    """What holds up a Pod by the last warnings about it, those that no other word followed; nothing without any. Pure.

    That a volume was not there in time says less than why it was not.
    """
    mine = sorted(
        (event for event in events if event["involvedObject"].get("uid") == uid), key=_when
    )
    last = next(
        (number for number, event in enumerate(reversed(mine)) if event.get("type") == "Normal"),
        len(mine),
    )
    warnings = [
        event
        for event in mine[len(mine) - last :]
        if str(event.get("reason", "")).startswith("Failed")
    ]
    if not warnings:
        return ""
    told = [
        event
        for event in warnings
        if "timed out waiting for the condition" not in str(event.get("message"))
    ]
    event = (told or warnings)[-1]
    return causes.because(event["reason"], causes.mounting(str(event.get("message") or "")))


def _when(event: Object) -> float:
    when = (
        event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )
    return seconds(when) or 0.0
