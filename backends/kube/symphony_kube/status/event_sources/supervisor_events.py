"""The exits and restarts of an experiment's supervisor in the cluster, from its Pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from symphony.events import EventKind, ExperimentEvent, exit_text
from symphony_kube.api.resources import parse_time
from symphony_kube.state import reasons

Object = Mapping[str, Any]

# Returns the last line of the log of a Pod's container, or ``""``. The second argument is true for
# the previous execution of the container.
ReadLastLine = Callable[[Object, bool], str]


class SupervisorEvents:
    """The exits and restarts of a supervisor, each of which is reported once.

    The exit of a supervisor that has finished its work is not reported. ``uids`` contains the UIDs
    of the Pods that have been observed.
    """

    def __init__(self, read_last_line: ReadLastLine) -> None:
        self._read_last_line = read_last_line
        self._reported: set[tuple[str, str, str]] = set()
        self._first_uid = ""
        self.uids: set[str] = set()

    def add(self, pods: Iterable[Object]) -> list[ExperimentEvent]:
        """Return the events that the present states of Pods add."""
        events: list[ExperimentEvent] = []
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
            uid = str(pod["metadata"].get("uid"))
            self.uids.add(uid)
            self._first_uid = self._first_uid or uid
            for container in (pod.get("status") or {}).get("containerStatuses") or ():
                events += self._exits(uid, pod, container)
                events += self._starts(uid, container)
        return events

    def _exits(self, uid: str, pod: Object, container: Object) -> Iterator[ExperimentEvent]:
        for field, is_previous in (("lastState", True), ("state", False)):
            terminated = (container.get(field) or {}).get("terminated") or {}
            ended = parse_time(terminated.get("finishedAt"))
            if not terminated.get("exitCode") or ended is None:
                continue
            if not self._is_new(uid, "exit", str(terminated.get("startedAt"))):
                continue
            text = f"supervisor {exit_text(terminated['exitCode'])}"
            line = reasons.shorten(self._read_last_line(pod, is_previous))
            if line:
                text = f"{text}: {line}"
            yield ExperimentEvent(at=ended, kind=EventKind.WARNING, text=text)

    def _starts(self, uid: str, container: Object) -> Iterator[ExperimentEvent]:
        running = (container.get("state") or {}).get("running") or {}
        started = parse_time(running.get("startedAt"))
        restarts = int(container.get("restartCount") or 0)
        if started is None or (not restarts and uid == self._first_uid):
            return
        if self._is_new(uid, "start", str(running["startedAt"])):
            yield ExperimentEvent(
                at=started, kind=EventKind.CHANGED, text="supervisor started again"
            )

    def _is_new(self, uid: str, kind: str, time: str) -> bool:
        key = (uid, kind, time)
        is_new = key not in self._reported
        self._reported.add(key)
        return is_new
