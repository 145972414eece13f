"""The last results of probes, from the events that kubelets record. Pure.

A kubelet records an event with the reason ``Unhealthy`` for a probe that has failed, and counts the
repetitions of the same message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from symphony.status import ExperimentStatus, ProcessStatus, ReasonCode, State, not_ready_reason
from symphony.support.escapes import last_line
from symphony_kube.state.ip_families import refusal_hint

Object = Mapping[str, Any]

READINESS, STARTUP, LIVENESS = "readinessProbe", "startupProbe", "livenessProbe"
# A process that is not ready for a shorter time than this usually becomes ready soon.
SLOW_READY_SECONDS = 1.5
MAX_CHARACTERS = 200

_FAILURE = re.compile(
    r"(Readiness|Startup|Liveness) probe (?:failed|errored(?: and resulted in \w+ state)?): ?(.*)",
    re.DOTALL,
)
# The fields of a container with its probes.
_FIELDS = {"Readiness": READINESS, "Startup": STARTUP, "Liveness": LIVENESS}
_CONTAINER = re.compile(r"spec\.containers\{(.+)\}")
_STATUS = re.compile(r"HTTP probe failed with statuscode: ([0-9]+)")
_REFUSED = re.compile(r"dial tcp (\S+): connect: connection refused")
_TIMEOUT = re.compile(r"context deadline exceeded|i/o timeout|Client\.Timeout")
# The command is quoted, and followed by the limit if the kubelet knows it.
_COMMAND_TIMEOUT = re.compile(
    r'command (?:timed out: )?".*" timed out(?: after (?P<seconds>[0-9.]+)s)?\s*', re.DOTALL
)


def awaits_results(status: ExperimentStatus, now: float) -> bool:
    """Return whether a process has been running and not ready for longer than usual.

    ``now`` is in seconds since the epoch.
    """
    return any(_is_slow(process, now) for process in status)


def awaits_result(process: ProcessStatus) -> bool:
    """Return whether a process is running and not ready, for no other known reason."""
    if process.state is not State.RUNNING or process.ready or process.started is None:
        return False
    return process.reason_code in (None, ReasonCode.NOT_READY)


def _is_slow(process: ProcessStatus, now: float) -> bool:
    has_run = 0.0 if process.started is None else now - process.started
    return awaits_result(process) and has_run > SLOW_READY_SECONDS


def with_results(
    status: ExperimentStatus, pods: Iterable[Object], events: Iterable[Object], now: float
) -> ExperimentStatus:
    """Return ``status`` with the last results of the probes of processes that are not ready.

    ``events`` contains the events of the Pods of the experiment, and possibly others, in the order
    of their last occurrences.
    """
    slow = {process.name for process in status if _is_slow(process, now)}
    if not slow:
        return status
    results = _results(slow, pods, events)
    processes = [_with_result(process, results.get(process.name, "")) for process in status]
    return replace(status, processes=tuple(processes))


def _results(names: set[str], pods: Iterable[Object], events: Iterable[Object]) -> dict[str, str]:
    containers = {
        (pod["metadata"].get("uid"), container["name"]): (pod, container)
        for pod in pods
        for container in pod["spec"]["containers"]
        if container["name"] in names
    }
    results: dict[str, str] = {}
    for event in events:
        failure = parse_failure(event)
        if failure is None or failure.probe == LIVENESS:
            continue
        found = containers.get((failure.uid, failure.container))
        if found is not None:
            results[failure.container] = probe_result(failure, *found)
    return results


class ProbeFailure(NamedTuple):
    """A failed probe of a container.

    ``probe`` is the field of the container that contains the probe, ``uid`` is that of the Pod, and
    ``message`` is the message of the kubelet without its beginning.
    """

    probe: str
    uid: str
    container: str
    message: str


def parse_failure(event: Object) -> ProbeFailure | None:
    """Return the failed probe that an event of Kubernetes reports, or None if it reports none."""
    involved = event["involvedObject"]
    field = _CONTAINER.fullmatch(str(involved.get("fieldPath") or ""))
    failure = _FAILURE.match(str(event.get("message") or ""))
    if event.get("reason") != "Unhealthy" or field is None or failure is None:
        return None
    return ProbeFailure(_FIELDS[failure[1]], str(involved.get("uid")), field[1], failure[2])


def probe_result(failure: ProbeFailure, pod: Object, container: Object) -> str:
    """Return the result of a probe in the words of all backends.

    See `ProcessStatus.test_result`.
    """
    message = failure.message
    probe = container.get(failure.probe) or {}
    http = probe.get("httpGet")
    url = ""
    if http is not None:
        host = (pod.get("status") or {}).get("podIP") or pod["metadata"]["name"]
        url = f"http://{host}:{http.get('port')}{http.get('path', '/')}"
    status, refused = _STATUS.search(message), _REFUSED.search(message)
    if status is not None:
        return f"HTTP {status[1]} from {url}" if url else f"HTTP {status[1]}"
    if refused is not None:
        hint = refusal_hint(refused[1], pod, container)
        result = f"connection refused at {refused[1]}"
        return f"{result}; {hint}" if hint else result
    if "exec" not in probe and _TIMEOUT.search(message):
        return f"no response from {url}" if url else "no connection"
    line = last_line(message, MAX_CHARACTERS)
    if "exec" not in probe:
        return line
    too_slow = _COMMAND_TIMEOUT.fullmatch(message)
    if too_slow is not None:
        seconds = too_slow["seconds"] or probe.get("timeoutSeconds", 1)
        return f"the command takes longer than {seconds} s"
    return f"the command failed: {line}" if line else "the command failed"


def _with_result(process: ProcessStatus, result: str) -> ProcessStatus:
    if not result:
        return process
    if process.not_ready_in_time:
        reason, code = f"{process.reason}: {result}", process.reason_code
    else:
        reason, code = not_ready_reason(result, None), ReasonCode.NOT_READY_YET
    return replace(process, reason=reason, reason_code=code, test_result=result)
