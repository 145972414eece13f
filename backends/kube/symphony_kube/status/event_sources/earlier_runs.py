"""The events of earlier executions of containers, which the states of Pods contain.

A Pod's status describes the current and the previous execution of each container.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from symphony.events import EventKind, ExperimentEvent, exit_text, start_text
from symphony.status import ReasonCode
from symphony_kube.api.resources import parse_time

Object = Mapping[str, Any]


def earlier_events(
    pods: Iterable[Object], known: Iterable[ExperimentEvent]
) -> list[ExperimentEvent]:
    """Return the events of the previous execution of each container, in chronological order.

    The events that ``known`` already contains are omitted. Pure.
    """
    seen = {(event.process, event.kind, event.at) for event in known}
    found = [event for pod in pods for event in _events_of_pod(pod)]
    new = [event for event in found if (event.process, event.kind, event.at) not in seen]
    return sorted(new, key=lambda event: event.at)


def _events_of_pod(pod: Object) -> Iterator[ExperimentEvent]:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        terminated = (container.get("lastState") or {}).get("terminated")
        if not terminated:
            continue
        started = parse_time(terminated.get("startedAt"))
        ended = parse_time(terminated.get("finishedAt"))
        if started is not None:
            # The execution before the latest one was the start with this number of restarts.
            restarts = max(0, int(container.get("restartCount") or 0) - 1)
            yield ExperimentEvent(
                at=started,
                kind=EventKind.STARTED,
                process=container["name"],
                text=start_text(restarts),
            )
        if ended is not None:
            is_out_of_memory = terminated.get("reason") == "OOMKilled"
            yield ExperimentEvent(
                at=ended,
                kind=EventKind.EXITED,
                process=container["name"],
                reason_code=ReasonCode.OUT_OF_MEMORY if is_out_of_memory else ReasonCode.EXITED,
                text=_exit_text(terminated, is_out_of_memory=is_out_of_memory),
            )


def _exit_text(terminated: Object, *, is_out_of_memory: bool) -> str:
    code = terminated.get("exitCode")
    return exit_text(code, "out of memory") if is_out_of_memory else exit_text(code)
