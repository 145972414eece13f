"""The model of one experiment that the views show: a fold of the updates that a feed sends.

`ExperimentModel` reads no clock and no files, and does not know the backend, so that it can be
tested without them. It is not thread-safe: a view applies all updates in one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from symphony.events import ExperimentEvent
from symphony.plan.topology import Node, Topology, folded, tally
from symphony.status import STATES_BY_ATTENTION, ExperimentStatus, ProcessStatus
from symphony.usage import EVERYTHING, ExperimentUsage
from symphony.views.usage_history import UsageHistory

MAX_EVENTS = 2_000


@dataclass(frozen=True, slots=True)
class StatusSeen:
    """The experiment has this status."""

    status: ExperimentStatus


@dataclass(frozen=True, slots=True)
class TopologySeen:
    """The experiment has this topology."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class EventSeen:
    """An event has happened.

    ``reading`` is the number of times that the events have been read from the beginning. The events
    of a later reading replace those of an earlier one.
    """

    event: ExperimentEvent
    reading: int


@dataclass(frozen=True, slots=True)
class UsageSeen:
    """The processes use these resources."""

    usage: ExperimentUsage


@dataclass(frozen=True, slots=True)
class UsageUnavailable:
    """The backend cannot report the resources that are used, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class OutageSeen:
    """The status can be out of date for this reason, or is up to date if the text is empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The experiment does not exist any more. The text is the message for the user."""

    text: str


Update = StatusSeen | TopologySeen | EventSeen | UsageSeen | UsageUnavailable | OutageSeen | Gone


class NumberedEvent(NamedTuple):
    """An event with its number, which grows by one with each event of the experiment."""

    number: int
    event: ExperimentEvent


@dataclass
class Versions:
    """The versions at which the parts of a model were changed last.

    ``processes`` contains the versions of the statuses of processes, by their names.
    """

    status: int = 0
    topology: int = 0
    events: int = 0
    usage: int = 0
    outage: int = 0
    processes: dict[str, int] = field(default_factory=dict)


class ExperimentModel:
    """The state of one experiment as the views show it.

    ``version`` grows with each change, and `versions` contains the versions at which the parts were
    changed. A view that has shown version n only has to draw the parts with a later version.
    ``run`` grows each time the experiment is launched again; what the model knew about the earlier
    run is then forgotten.

    ``gone`` is a message if the experiment was deleted, and ``outage`` is a message if the status
    can be out of date. ``usage_unavailable`` maps the names of fields of
    `symphony.usage.ProcessUsage`, or `EVERYTHING`, to the reasons why they are not known.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = 0
        self.versions = Versions()
        self.run = 0
        self.status: ExperimentStatus | None = None
        self.topology: Topology | None = None
        self.usage: dict[str, UsageHistory] = {}
        self.usage_unavailable: Mapping[str, str] = {}
        self.outage = ""
        self.gone = ""
        self._events: deque[NumberedEvent] = deque(maxlen=MAX_EVENTS)
        self._next_event = 0
        self._reading = 0
        self._processes: dict[str, ProcessStatus] = {}

    # --- folding ---

    def apply(self, update: Update) -> None:
        """Apply an update from a feed."""
        version = self.version + 1
        if isinstance(update, StatusSeen):
            changed = self._see_status(update.status, version)
        elif isinstance(update, EventSeen):
            changed = self._see_event(update, version)
        elif isinstance(update, UsageSeen):
            changed = self._see_usage(update.usage, version)
        elif isinstance(update, TopologySeen):
            changed = self._see_topology(update.topology, version)
        elif isinstance(update, UsageUnavailable):
            changed = self._see_no_usage(update.reason, version)
        else:
            changed = self._see_message(update, version)
        if changed:
            self.version = version

    def _see_status(self, status: ExperimentStatus, version: int) -> bool:
        previous = self.status
        if previous is not None and not self.gone and status == previous:
            return False
        if previous is not None and (self.gone or status.created != previous.created):
            self._forget_run(version)
        if self.gone:
            self.gone, self.versions.outage = "", version
        self.status, self.versions.status = status, version
        before, self._processes = self._processes, {process.name: process for process in status}
        for name, process in self._processes.items():
            if before.get(name) != process:
                self.versions.processes[name] = version
        for name in before.keys() - self._processes.keys():
            self.versions.processes.pop(name, None)
            self.usage.pop(name, None)
        return True

    def _forget_run(self, version: int) -> None:
        self.run += 1
        self.topology, self.versions.topology = None, version
        self.usage, self.usage_unavailable, self.versions.usage = {}, {}, version
        self._processes, self.versions.processes = {}, {}

    def _see_event(self, update: EventSeen, version: int) -> bool:
        if update.reading < self._reading:
            return False
        if update.reading > self._reading:
            self._events.clear()
            self._reading = update.reading
        self._events.append(NumberedEvent(self._next_event, update.event))
        self._next_event += 1
        self.versions.events = version
        return True

    def _see_usage(self, usage: ExperimentUsage, version: int) -> bool:
        for sample in usage.processes:
            if self.status is not None and sample.process not in self._processes:
                continue
            history = self.usage.setdefault(sample.process, UsageHistory())
            history.add(usage.at, sample)
        self.usage_unavailable = usage.unavailable
        self.versions.usage = version
        return True

    def _see_no_usage(self, reason: str, version: int) -> bool:
        unavailable = {EVERYTHING: reason}
        if self.usage_unavailable == unavailable:
            return False
        self.usage_unavailable, self.versions.usage = unavailable, version
        return True

    def _see_topology(self, topology: Topology, version: int) -> bool:
        if self.topology == topology:
            return False
        self.topology, self.versions.topology = topology, version
        return True

    def _see_message(self, update: OutageSeen | Gone, version: int) -> bool:
        before = self.outage, self.gone
        if isinstance(update, Gone):
            self.gone = update.text
        else:
            self.outage = update.text
        if (self.outage, self.gone) == before:
            return False
        self.versions.outage = version
        return True

    # --- reading ---

    @property
    def first_event(self) -> int:
        """The number of the oldest event that the model contains."""
        return self._events[0].number if self._events else self._next_event

    def events_since(self, number: int = 0) -> list[NumberedEvent]:
        """Return the events with this number or a higher one, from oldest to newest.

        Only the last `MAX_EVENTS` events are kept, and the events of one run.
        """
        return [numbered for numbered in self._events if numbered.number >= number]

    def process(self, name: str) -> ProcessStatus | None:
        """Return the status of a process, or None if there is no such process."""
        return self._processes.get(name)

    def changed_processes(self, version: int) -> list[ProcessStatus]:
        """Return the processes whose statuses have changed after ``version``."""
        versions = self.versions.processes
        return [
            process for name, process in self._processes.items() if versions.get(name, 0) > version
        ]

    def rows(self) -> list[ProcessStatus]:
        """Return the processes, those that need the user's attention first.

        Processes with equal states are in declaration order.
        """
        return sorted(self._processes.values(), key=lambda process: attention(process))

    def counts(self) -> dict[str, int]:
        """Return the number of processes in each state, those that need attention first."""
        states = [process.displayed_state for process in self.rows()]
        return {state: states.count(state) for state in dict.fromkeys(states)}

    def drawn_topology(self) -> Topology | None:
        """Return the topology with similar processes merged, or None if it is not known."""
        return None if self.topology is None else folded(self.topology)

    def states_of(self, node: Node) -> dict[str, int]:
        """Return how many of a node's processes are in each state."""
        states = {name: process.displayed_state for name, process in self._processes.items()}
        return tally(node.processes, states)


def attention(process: ProcessStatus) -> int:
    """Return a sort key: processes that need the user's attention first."""
    if process.failed:
        return 0
    state = process.displayed_state
    return STATES_BY_ATTENTION.index(state) if state in STATES_BY_ATTENTION else 0


def worst_state(states: Sequence[str]) -> str:
    """Return the state that needs the user's attention first, or ``unknown`` if there is none."""
    known = [state for state in STATES_BY_ATTENTION if state in states]
    return known[0] if known else "unknown"
