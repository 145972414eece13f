"""The last tests of processes that were stopped because they were unhealthy. Pure.

The status of a Pod only shows that its node has stopped a process; see
`symphony_kube.state.pod_parser`. The events of kubelets show the results of the tests. Kubernetes
deletes them after an hour by default, and a kubelet omits events if there are many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from symphony.status import ExperimentStatus, ProcessStatus, ReasonCode, unhealthy_reason
from symphony_kube.state.pod_status import UnhealthyEnd
from symphony_kube.status.event_sources.event_times import first_time, last_time
from symphony_kube.status.event_sources.probe_results import LIVENESS, parse_failure, probe_result

Object = Mapping[str, Any]

# The reason of such a process without the result of a test begins with this word.
_WORD = unhealthy_reason("", 1)


class _Failure(NamedTuple):
    """Failed tests with the same result. The times are seconds since the epoch."""

    first: float
    last: float
    result: str


class HealthResults:
    """The failed tests of processes, from the events of their Pods."""

    def __init__(self, pods: Iterable[Object], events: Iterable[Object]) -> None:
        containers = {
            (str(pod["metadata"].get("uid")), container["name"]): (pod, container)
            for pod in pods
            for container in pod["spec"]["containers"]
        }
        self._failures: dict[str, list[_Failure]] = defaultdict(list)
        for event in events:
            failure = parse_failure(event)
            if failure is None or failure.probe != LIVENESS:
                continue
            found = containers.get((failure.uid, failure.container))
            if found is not None:
                result = probe_result(failure, *found)
                times = first_time(event), last_time(event)
                self._failures[failure.container].append(_Failure(*times, result))

    def explain(self, status: ExperimentStatus) -> ExperimentStatus:
        """Return ``status`` with the results of the last tests in the reasons."""
        processes = []
        for process in status:
            if awaits_result(process):
                last = self._last(process.name, process.started, process.ended)
                process = replace(process, reason=_with_result(process.reason, last))
            processes.append(process)
        return replace(status, processes=tuple(processes))

    def describe(self, process: str, end: UnhealthyEnd) -> tuple[str, float]:
        """Return the reason for the end of a process, and the time of its last test, or the time of
        the end if that is not known.
        """
        last = self._last(process, end.started, end.ended)
        reason = _with_result(unhealthy_reason("", end.failed_tests), last)
        return reason, end.ended if last is None else min(last.last, end.ended)

    def _last(self, process: str, started: float | None, ended: float | None) -> _Failure | None:
        """Return the last failed tests of an execution, or None if they are not known."""
        failures = []
        for failure in self._failures[process]:
            is_later = ended is not None and failure.first > ended
            is_earlier = started is not None and failure.last < started
            if not is_later and not is_earlier:
                failures.append(failure)
        # An event with several repetitions can have its last one in a later execution.
        return max(failures, key=lambda item: min(item.last, ended or item.last), default=None)


def _with_result(reason: str, last: _Failure | None) -> str:
    """Return the reason of an unhealthy process with the result of its last test if it is known."""
    if last is None:
        return reason
    # The plain reason ends with the number of the tests, or with the word.
    return reason.replace(_WORD, unhealthy_reason(last.result, 1), 1)


def awaits_results(status: ExperimentStatus) -> bool:
    """Return whether a process was stopped because it was unhealthy."""
    return any(map(awaits_result, status))


def awaits_result(process: ProcessStatus) -> bool:
    """Return whether a process was stopped because it was unhealthy, for an unknown result."""
    is_unhealthy = process.reason_code in (ReasonCode.UNHEALTHY, ReasonCode.BACKING_OFF)
    return is_unhealthy and _WORD in process.reason and f"{_WORD}: " not in process.reason
