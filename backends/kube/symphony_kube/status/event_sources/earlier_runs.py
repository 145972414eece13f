"""The events of earlier executions of processes, from the Pods that still exist. Pure.

A Pod's status describes the current and the previous execution of each container. A Job keeps the
Pods of its earlier attempts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from symphony.events import EXIT_KINDS, EventKind, ExperimentEvent, exit_text, start_text
from symphony.status import ExperimentStatus, ProcessStatus, ReasonCode
from symphony_kube.api.resources import parse_time
from symphony_kube.state import reasons
from symphony_kube.state.pod_parser import find_unhealthy_end
from symphony_kube.state.pod_status import UnhealthyEnd
from symphony_kube.status.event_sources.health_results import HealthResults

Object = Mapping[str, Any]


class _Execution(NamedTuple):
    """An execution of a container that has ended. A time that Kubernetes does not know is None.

    ``is_latest`` is true if the container was not started again. ``unhealthy_end`` is its
    end if it was stopped because it was unhealthy, or None.
    """

    process: str
    is_latest: bool
    started: float | None
    ended: float | None
    terminated: Object
    unhealthy_end: UnhealthyEnd | None


def earlier_events(
    pods: Iterable[Object],
    status: ExperimentStatus,
    known: Iterable[ExperimentEvent],
    results: HealthResults,
) -> list[ExperimentEvent]:
    """Return the events of earlier executions of processes, in chronological order.

    ``known`` contains the events that explain ``status``. They are omitted. If Kubernetes has not
    kept all executions of a process, an event reports how often it was started before. ``results``
    are those of the tests of unhealthy processes.
    """
    known_of: dict[str | None, list[ExperimentEvent]] = defaultdict(list)
    for event in known:
        known_of[event.process].append(event)
    executions: dict[str, list[_Execution]] = defaultdict(list)
    for pod in pods:
        for execution in _executions(pod):
            executions[execution.process].append(execution)
    events: list[ExperimentEvent] = []
    for process in status:
        name = process.name
        earlier = _without_known(executions[name], known_of[name])
        events += _events_of_process(process, earlier, known_of[name], results)
    return sorted(events, key=lambda event: event.at)


def _executions(pod: Object) -> Iterator[_Execution]:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        latest, previous = container.get("state") or {}, container.get("lastState") or {}
        is_waiting = not ("running" in latest or "terminated" in latest)
        for state, is_latest in ((previous, is_waiting), (latest, True)):
            terminated = state.get("terminated")
            # A program that could not start has neither a start time nor an exit code.
            if terminated and terminated.get("reason") not in reasons.START_FAILURE_REASONS:
                started = parse_time(terminated.get("startedAt"))
                ended = parse_time(terminated.get("finishedAt"))
                if started is not None or ended is not None:
                    name = container["name"]
                    end = find_unhealthy_end(pod, name, terminated)
                    yield _Execution(name, is_latest, started, ended, terminated, end)


def has_unhealthy_execution(pod: Object) -> bool:
    """Return whether a process of a Pod has exited because it was unhealthy."""
    return any(execution.unhealthy_end is not None for execution in _executions(pod))


def _without_known(
    executions: Iterable[_Execution], known: Iterable[ExperimentEvent]
) -> list[_Execution]:
    """Return the executions that ``known`` does not describe."""
    starts = {event.at for event in known if event.kind is EventKind.STARTED}
    exits = {event.at for event in known if event.kind in EXIT_KINDS}
    return [
        execution
        for execution in executions
        if not (execution.is_latest and execution.started in starts)
        and execution.ended not in exits
    ]


def _events_of_process(
    process: ProcessStatus,
    earlier: Iterable[_Execution],
    known: Iterable[ExperimentEvent],
    results: HealthResults,
) -> list[ExperimentEvent]:
    """Return the events of the earlier executions of a process, in chronological order."""

    def event(at: float, kind: EventKind, text: str) -> ExperimentEvent:
        return ExperimentEvent(at=at, kind=kind, process=process.name, text=text)

    newest_first: list[ExperimentEvent] = []
    # The number of executions before those of the events so far.
    remaining = process.restarts
    for execution in sorted(earlier, key=_time, reverse=True):
        if execution.ended is not None:
            if execution.unhealthy_end is None:
                newest_first.append(_exit_event(execution, execution.ended))
            else:
                newest_first += unhealthy_events(process.name, execution.unhealthy_end, results)[
                    ::-1
                ]
        remaining = max(0, remaining - 1)
        if execution.started is not None:
            newest_first.append(event(execution.started, EventKind.STARTED, start_text(remaining)))
    events = newest_first[::-1]
    starts = [each.at for each in (*events, *known) if each.kind is EventKind.STARTED]
    # A program that could not start is restarted, too.
    if remaining and starts:
        events.insert(0, event(min(starts), EventKind.CHANGED, _gap_text(remaining)))
    return events


def _time(execution: _Execution) -> float:
    return execution.started or execution.ended or 0.0


def unhealthy_events(
    process: str, end: UnhealthyEnd, results: HealthResults
) -> list[ExperimentEvent]:
    """Return the events for a process that has failed because it was unhealthy, and its exit."""
    reason, last_test = results.describe(process, end)
    texts = {
        EventKind.UNHEALTHY: (last_test, reason),
        EventKind.EXITED: (end.ended, exit_text(end.exit_code, reason)),
    }
    return [
        ExperimentEvent(
            at=at, kind=kind, process=process, reason_code=ReasonCode.UNHEALTHY, text=text
        )
        for kind, (at, text) in texts.items()
    ]


def _exit_event(execution: _Execution, ended: float) -> ExperimentEvent:
    code = execution.terminated.get("exitCode")
    is_out_of_memory = execution.terminated.get("reason") == "OOMKilled"
    return ExperimentEvent(
        at=ended,
        kind=EventKind.EXITED,
        process=execution.process,
        reason_code=ReasonCode.OUT_OF_MEMORY if is_out_of_memory else ReasonCode.EXITED,
        text=exit_text(code, "out of memory") if is_out_of_memory else exit_text(code),
    )


def _gap_text(number: int) -> str:
    times = "once" if number == 1 else f"{number} times"
    return f"was started {times} before, which Kubernetes has not kept"
