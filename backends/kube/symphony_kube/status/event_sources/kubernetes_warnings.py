"""The warnings of Kubernetes about the Pods and Jobs of an experiment, as its events. Pure.

Kubernetes records its own events as objects, which it deletes after an hour by default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from symphony.events import EventKind, ExperimentEvent
from symphony.status import ReasonCode
from symphony_kube.render.container_scripts import STOP_MARK, STOP_PATH
from symphony_kube.state import reasons
from symphony_kube.status.event_sources.event_times import first_time

Object = Mapping[str, Any]

# Returns the processes to which an object of the cluster belongs. None in the result stands for the
# supervisor. The result is empty if the object does not belong to the experiment.
FindProcesses = Callable[[Object], tuple["str | None", ...]]

# These reasons belong to the steps that every Pod makes, and to the ends of Jobs, which are shown
# as those of their processes. The server omits the events.
_USUAL_REASONS = (
    "Scheduled",
    "Pulling",
    "Pulled",
    "Created",
    "Started",
    "Killing",
    "SuccessfulCreate",
    "SuccessfulDelete",
    "Completed",
    "BackoffLimitExceeded",
)
FIELD_SELECTOR = ",".join(f"reason!={reason}" for reason in _USUAL_REASONS)
# Kubernetes does not report these as warnings.
_PROBLEMS = frozenset({"Preempted", "BackOff", "TaintManagerEviction", "Evicted"})
# The failures of readiness probes are not problems. Processes that are not ready in time are
# reported.
_PROBE_FAILURES = re.compile(r"(Readiness|Startup) probe (failed|errored)")
# The first process of a container can exit before the script that stops the program.
_INTERRUPTED_STOP = "FailedPreStopHook"
_STOP_SCRIPTS = (STOP_MARK, STOP_PATH)
# Newer kubelets do not name the command.
_UNKNOWN_HOOK = "PreStopHook failed"
# These controllers try again at once. Kueue refuses the Pod of a new Job, and the Job of a new
# JobSet, that it does not know yet, and JobSet creates a Job that it has just created.
_PASSING = {
    "FailedCreate": re.compile(r'.*webhook "mpod\.kb\.io" denied the request: .*not found'),
    "JobCreationFailed": re.compile(
        r'.* already exists$|.*webhook "mjob\.kb\.io" denied the request: .*not found'
    ),
}
_COMBINED = "(combined from similar events): "
_CONTAINER = re.compile(r"spec\.containers\{(.+)\}")
# The number of events of unknown objects that are kept, because their Pods may be observed later.
MAX_UNMATCHED = 1000

_CODES = {
    "FailedScheduling": ReasonCode.UNSCHEDULABLE,
    "FailedMount": ReasonCode.MOUNT_FAILED,
    "FailedAttachVolume": ReasonCode.MOUNT_FAILED,
    "FailedMapVolume": ReasonCode.MOUNT_FAILED,
    "FailedCreate": ReasonCode.NOT_PERMITTED,
    "ErrImagePull": ReasonCode.IMAGE_UNAVAILABLE,
    "InspectFailed": ReasonCode.IMAGE_UNAVAILABLE,
    "Evicted": ReasonCode.EVICTED,
    "Preempted": ReasonCode.EVICTED,
    "TaintManagerEviction": ReasonCode.EVICTED,
}


class KubernetesWarnings:
    """The warnings that have not been shown yet.

    Each message is shown once for each object and reason, however often Kubernetes repeats it.
    """

    def __init__(self) -> None:
        self._shown: set[tuple[str, str, str]] = set()
        self._new: dict[tuple[str, str, str], Object] = {}

    def add(self, events: Iterable[Object]) -> None:
        """Add events of Kubernetes. Those that are not problems are ignored."""
        for event in events:
            key = _key(event)
            if _is_problem(event) and key not in self._shown:
                self._new.setdefault(key, event)
        while len(self._new) > MAX_UNMATCHED:
            self._new.pop(next(iter(self._new)))

    def take(self, find_processes: FindProcesses) -> list[ExperimentEvent]:
        """Return the new warnings about the objects for which ``find_processes`` returns processes.

        The others remain.
        """
        events = []
        for key, event in list(self._new.items()):
            processes = find_processes(event)
            if not processes:
                continue
            del self._new[key]
            self._shown.add(key)
            events += _to_events(event, processes)
        return events


def _key(event: Object) -> tuple[str, str, str]:
    return str(event["involvedObject"].get("uid")), str(event.get("reason")), _message(event)


def _message(event: Object) -> str:
    text = " ".join(str(event.get("message") or "").split())
    return text.removeprefix(_COMBINED)


def _is_problem(event: Object) -> bool:
    if event["involvedObject"].get("kind") not in ("Pod", "Job", "JobSet"):
        return False
    if _PROBE_FAILURES.match(_message(event)):
        return False
    passing = _PASSING.get(str(event.get("reason")))
    if passing is not None and passing.match(_message(event)):
        return False
    if event.get("reason") == _INTERRUPTED_STOP:
        message = _message(event)
        is_own = any(text in message for text in _STOP_SCRIPTS)
        return not is_own and message != _UNKNOWN_HOOK
    return event.get("type") == "Warning" or event.get("reason") in _PROBLEMS


def _to_events(event: Object, processes: Iterable[str | None]) -> list[ExperimentEvent]:
    if event["involvedObject"].get("kind") == "JobSet":
        # A JobSet has many ranks, and none of them is the subject.
        name = event["involvedObject"].get("name")
        return [_warning(event, None, f"JobSet {name}: {_text(event)}")]
    container = _CONTAINER.fullmatch(str(event["involvedObject"].get("fieldPath") or ""))
    named = [name for name in processes if container is None or name in (container[1], None)]
    text = _text(event)
    events = []
    for name in named:
        events.append(_warning(event, name, f"supervisor: {text}" if name is None else text))
    return events


def _warning(event: Object, process: str | None, text: str) -> ExperimentEvent:
    return ExperimentEvent(
        at=first_time(event),
        kind=EventKind.WARNING,
        process=process,
        reason_code=_reason_code(event),
        text=text,
    )


def _text(event: Object) -> str:
    reason, message = str(event.get("reason") or "Warning"), _message(event)
    if reason == "FailedScheduling":
        return reasons.unschedulable(message)
    return reasons.with_message(reason, message)


def _reason_code(event: Object) -> ReasonCode | None:
    reason = str(event.get("reason"))
    if reason in ("Failed", "BackOff") and "image" in _message(event).lower():
        return ReasonCode.IMAGE_UNAVAILABLE
    return _CODES.get(reason)
