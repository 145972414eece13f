"""What the parts of one supervisor share."""

from __future__ import annotations

from dataclasses import dataclass

from symphony.host.run.directory import RunDirectory
from symphony.host.run.note import NoteWriter
from symphony.host.supervisor.clock import LaunchClock
from symphony.host.supervisor.event_loop import EventLoop
from symphony.host.supervisor.executor import Executor
from symphony.host.supervisor.held_resources import HeldResources
from symphony.host.supervisor.process_host import ProcessHost
from symphony.host.supervisor.record import Record
from symphony.host.supervisor.strays import Strays
from symphony.host.supervisor.supervised_process import ProcessTable
from symphony.plan.policies import Policies
from symphony.plan.restart_policy import Backoff
from symphony.plan.state import RunState
from symphony.plan.unit_decision import UnitDecision, decide_unit


@dataclass(slots=True, eq=False)
class Supervision:
    """The run that is supervised: its record, its processes, its policies and its executor.

    ``skips_grace`` is true if processes are killed at once.
    """

    directory: RunDirectory
    loop: EventLoop
    notes: NoteWriter
    clock: LaunchClock
    record: Record
    processes: ProcessTable
    resources: HeldResources
    host: ProcessHost
    executor: Executor
    strays: Strays
    policies: Policies
    backoff: Backoff
    skips_grace: bool = False

    @property
    def state(self) -> RunState:
        """The recorded state of the experiment."""
        return self.record.state

    def skip_grace(self) -> None:
        """Kill processes at once from now on."""
        self.skips_grace = self.strays.skips_grace = True

    def is_unit_requested(self, name: str) -> bool:
        """Return whether a request is stopping or starting ranks of the unit of a process."""
        ranks = self.processes.ranks_with(name)
        requests = self.state.requests.values()
        return any(not set(request.names).isdisjoint(ranks) for request in requests)

    def decide_unit(self, name: str) -> UnitDecision | None:
        """Return the decision about the unit of a rank.

        It follows only from the recorded events, so that a new supervisor comes to the same
        decision.
        """
        ranks = self.processes.ranks_with(name)
        if not ranks or self.state.is_stopping_all or self.is_unit_requested(name):
            return None
        return decide_unit({rank: self.state.tracks[rank] for rank in ranks})
