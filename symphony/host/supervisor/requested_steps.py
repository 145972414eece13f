"""The steps of requests: stopping and starting processes on request, and changing the experiment.

`symphony.host.supervisor.control` determines their order.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.host.supervisor.children import Child, JoinableTerminal
from symphony.host.supervisor.ends import Ends
from symphony.host.supervisor.starts import Starts
from symphony.host.supervisor.supervised_process import (
    ProcessTable,
    RequestedStop,
    SupervisedProcess,
)
from symphony.host.supervisor.supervision import Supervision
from symphony.host.supervisor.usage_on_demand import UsageOnDemand

if TYPE_CHECKING:
    import socket

    from symphony.host.supervisor.change import Change
    from symphony.host.supervisor.record import Record
    from symphony.plan.state import RunState


class RequestedSteps:
    """The steps of the requests to one supervisor.

    ``stop`` stops the whole experiment.
    """

    def __init__(
        self,
        supervision: Supervision,
        ends: Ends,
        starts: Starts,
        usage: UsageOnDemand,
        stop: Callable[[], None],
    ) -> None:
        self._supervision = supervision
        self._loop = supervision.loop
        self._executor = supervision.executor
        self._ends = ends
        self._starts = starts
        self._usage = usage
        self.record: Record = supervision.record
        self.processes: ProcessTable = supervision.processes
        self.stop = stop

    @property
    def state(self) -> RunState:
        """The state of the experiment."""
        return self.record.state

    # --- stopping ---

    def announce_stop(self, name: str, *, restarts: bool) -> None:
        """Note that a process will be stopped, because its own restart policy applies no more."""
        process = self.processes[name]
        previous = process.requested_stop
        kill_time = math.inf if previous is None else previous.kill_time
        process.requested_stop = RequestedStop(kill_time, restarts)

    def request_stop(self, name: str, grace: float | None, *, restarts: bool) -> None:
        """Stop a process, which will be started again if ``restarts`` is true.

        ``grace`` is the grace period in seconds, or None for that of the process. If the process is
        already being stopped, its grace period can only become shorter. When no process of its
        group is running any more, `Control.handle_gone` is called.
        """
        process = self.processes[name]
        seconds = process.spec.grace if grace is None else grace
        kill_time = time.monotonic() + seconds
        previous = process.requested_stop
        track = self.state.tracks.get(name) or self.state.leaving.get(name)
        recorded = None if track is None else track.kill_at
        if previous is not None:
            kill_time = min(kill_time, previous.kill_time)
        if recorded is not None:
            # A supervisor that was killed had begun to stop the process.
            kill_time = min(kill_time, time.monotonic() + recorded - time.time())
        stop = RequestedStop(kill_time, restarts)
        process.requested_stop = stop
        child, program = process.child, process.identity()
        if child is not None and program is not None:
            kill_at = time.time() + max(0.0, kill_time - time.monotonic())
            self.record.add("terminating", name, kill_at=kill_at, restarts=restarts)
            remaining = max(0.0, kill_time - time.monotonic())
            self._executor.begin_stop(process, program, remaining)
            self._loop.after(remaining, lambda: self._kill_stopped(process, stop, child))
        elif process.leftovers is not None:
            remaining = max(0.0, kill_time - time.monotonic())
            self._executor.begin_stop(process, process.leftovers, remaining)

    def _kill_stopped(self, process: SupervisedProcess, stop: RequestedStop, child: Child) -> None:
        if process.requested_stop is stop:
            self._executor.kill(process, child)

    def stop_strays_of(self, names: Collection[str], kill_time: float) -> bool:
        """Stop the descendants of exited processes; see `Strays.stop_those_of`."""
        return self._supervision.strays.stop_those_of(names, kill_time)

    def stop_pending(self, name: str) -> None:
        """Record that a process that waits for its start or restart is stopped."""
        self._starts.stop_pending(name)

    def send_signal(
        self, names: Sequence[str], number: signal.Signals, *, force: bool
    ) -> Mapping[str, str]:
        """Send a signal to the programs of running processes that handle it.

        Return why it cannot be sent to processes; see `ProcessHost.send_signals`.
        """
        problems = self._executor.send_signal(names, number, force=force)
        if not problems:
            for name in names:
                self.record.add("signaled", name, signal=number.name)
        return problems

    # --- starting ---

    def start_again(self, names: Sequence[str]) -> None:
        """Start processes that are not running, as soon as their start conditions are met."""
        self._starts.start_again(names)

    def cancel_starts(self, names: Iterable[str]) -> None:
        """Do not delay the starts of processes any more, because `start_again` is not called."""
        self._starts.cancel_starts(names)

    def waits_for_leftovers(self, name: str) -> bool:
        """Return whether a process waits until programs of its previous execution have exited."""
        return self._starts.waits_for_leftovers(name)

    def lease_gpus(self, name: str) -> bool:
        """Lease the GPUs of a process again. Return False if another experiment has leased them."""
        return self._supervision.resources.lease_gpus(self.processes[name].spec)

    # --- changing the experiment ---

    def prepare_change(self, request: Mapping[str, Any]) -> Change:
        """Check that a change is possible; see `symphony.host.supervisor.change`."""
        from symphony.host.supervisor.change import prepare

        supervision = self._supervision
        specs = self.processes.specs
        return prepare(supervision.directory, request, self.state, specs, supervision.host)

    def begin_change(
        self, change: Change, request: Mapping[str, Any], descriptors: list[int]
    ) -> int:
        """Replace the description of the experiment, and return the number of the request.

        Raises RequestRefused if a resource is missing. In this case, nothing is changed. The caller
        then stops the removed and restarted processes, and starts processes again with
        `start_again`.
        """
        from symphony.host.run import change_directory
        from symphony.host.supervisor.change import take_resources

        supervision, processes = self._supervision, self.processes
        directory, resources = supervision.directory, supervision.resources
        take_resources(change, request, descriptors, resources.gpus, supervision.host)
        change_directory.commit(directory, change.event["directory"])
        deadline = supervision.policies.deadline
        supervision.policies = change.policies
        processes.change(change.specs, change.old_specs, change.removed)
        self._executor.change(change.manifest["env"])
        resources.holds.update(change.holds)
        resources.gpus.update(change.gpus)
        for name in (*change.removed, *change.restarted):
            processes[name].deadline = None
            processes[name].is_overdue = False
        self._delay((*change.added, *change.restarted))
        self.record.add_change(change.event)
        number = self.state.request_count
        change_directory.finish(directory, change.manifest)
        self.record.set_processes(len(processes.present))
        self._executor.prepare_children(change.manifest["env"])
        if supervision.policies.deadline != deadline:
            self._loop.post(self._ends.check_deadline)
        self.apply_record_usage()
        # Other start conditions and policies can have an immediate effect.
        self._loop.post(lambda: self._starts.start_or_decide(processes.present))
        return number

    def _delay(self, names: Iterable[str]) -> None:
        for name in names:
            self.processes.present[name].is_delayed = True

    def resume_change(self, to_start: Iterable[str]) -> Change:
        """Return the latest change, which a killed supervisor has begun.

        ``to_start`` contains the processes that it has not started yet.
        """
        from symphony.host.supervisor.change import resume

        self._delay(to_start)
        return resume(self._supervision.directory, self.processes.specs, self.processes.old_specs)

    def end_change(self, change: Change) -> None:
        """Release the resources of the removed processes, which have exited."""
        for name in change.removed:
            self.processes.leaving.pop(name, None)
            self._executor.remove(name)
        self._supervision.resources.close_address_holds(change.old_addresses)
        change.close()
        self._supervision.host.release_addresses(change.old_addresses)
        self._loop.post(self._ends.finish_if_all_ended)

    # --- clients that observe the experiment ---

    def terminal(self, name: str) -> JoinableTerminal | None:
        """Return the terminal of a running process, or None if it has none."""
        return self._executor.terminal(name)

    def show_usage(self, client: socket.socket) -> None:
        """Send samples of the resource use to a client until it closes the connection."""
        self._usage.show(client)

    def apply_record_usage(self) -> None:
        """Begin or stop to record the resource use, as the policies require."""
        self._usage.set_recording(self._supervision.policies.record_usage)
