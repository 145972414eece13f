"""Do what requests require at once: signals, terminals, usage, and the beginning of a change.

`symphony.plan.decide` continues the requests that are recorded: to stop, start and restart
processes, and to change the experiment.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.plan import requests
from symphony.plan.requests import Accepted
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.children import JoinableTerminal
from symphony.supervised.supervisor.execution.executor import Executor
from symphony.supervised.supervisor.execution.held_resources import HeldResources
from symphony.supervised.supervisor.execution.supervised_process import ProcessTable
from symphony.supervised.supervisor.live_record import Record
from symphony.supervised.supervisor.process_host import ProcessHost
from symphony.supervised.supervisor.serving.usage_on_demand import UsageOnDemand
from symphony.supervised.supervisor.wishes import Wishes

if TYPE_CHECKING:
    import socket

    from symphony.plan.state import RunState
    from symphony.supervised.supervisor.serving.prepare_change import Change


class RequestedSteps:
    """The steps of the requests to one supervisor.

    All methods that check a request raise `requests.Refused` if it cannot be done now.
    """

    def __init__(
        self,
        run: RunDirectory,
        record: Record,
        processes: ProcessTable,
        executor: Executor,
        resources: HeldResources,
        host: ProcessHost,
        wishes: Wishes,
        usage: UsageOnDemand,
    ) -> None:
        self._run = run
        self.record = record
        self.processes = processes
        self._executor = executor
        self._resources = resources
        self._host = host
        self._wishes = wishes
        self._usage = usage
        # The change that is in progress.
        self._change: Change | None = None

    def accept(self, kind: str, names: Sequence[str], grace: float | None) -> Accepted:
        """Record a request that is accepted; see `symphony.plan.requests`."""
        now = self._executor.now()
        accepted = requests.accept(self._wishes.present, self.state, kind, names, grace, now)
        for event in accepted.events:
            self.record.add_event(event)
        return accepted

    def finish(self) -> None:
        """Let an experiment without running processes finish."""
        for event in requests.finish(self.state, self._executor.now()):
            self.record.add_event(event)

    def check_attach(self, names: Sequence[str]) -> list[str]:
        """Return the names of processes whose terminals can be joined."""
        requests.refuse_while_stopping(self.state)
        return requests.known_names(self._wishes.present, names)

    @property
    def state(self) -> RunState:
        """The state of the experiment."""
        return self.record.state

    def send_signal(
        self, names: Sequence[str], number: signal.Signals, *, force: bool
    ) -> Mapping[str, str]:
        """Send a signal to the programs of running processes that handle it.

        Return why it cannot be sent to processes; see `ProcessHost.send_signals`.
        """
        wanted = requests.check_signal(self._wishes.present, self.state, names)
        problems = self._executor.send_signal(wanted, number, force=force)
        if not problems:
            for name in wanted:
                self.record.add("signaled", name, signal=number.name)
        return problems

    def terminal(self, name: str) -> JoinableTerminal | None:
        """Return the terminal of a running process, or None if it has none."""
        return self._executor.terminal(name)

    def show_usage(self, client: socket.socket) -> None:
        """Send samples of the resource use to a client until it closes the connection."""
        self._usage.show(client)

    def apply_record_usage(self) -> None:
        """Begin or stop recording the resource use, as the policies require."""
        self._usage.set_recording(self._wishes.policies.record_usage)

    # --- changing the experiment ---

    def prepare_change(self, request: Mapping[str, Any]) -> Change:
        """Check that a change is possible.

        See `symphony.supervised.supervisor.serving.prepare_change`.
        """
        from symphony.supervised.supervisor.serving.prepare_change import prepare

        requests.check_change(self.state, self.state.revision + 1, ())
        change = prepare(self._run, request, self.state, self.processes.specs, self._host)
        names = [*change.added, *change.removed, *change.restarted]
        requests.check_change(self.state, change.event["revision"], names)
        return change

    def begin_change(
        self, change: Change, request: Mapping[str, Any], descriptors: list[int]
    ) -> int:
        """Replace the description of the experiment, and return the number of the request.

        Raises RequestRefused if a resource is missing. In this case, nothing is changed. What
        follows from the new description is decided when the experiment advances next.
        """
        from symphony.supervised.record import change_directory
        from symphony.supervised.supervisor.serving.prepare_change import take_resources

        take_resources(change, request, descriptors, self._resources.gpus, self._host)
        change_directory.commit(self._run, change.event["directory"])
        self._change = change
        self.processes.change(change.specs, change.old_specs, change.removed)
        self._executor.change(change.manifest["env"])
        self._resources.holds.update(change.holds)
        self._resources.gpus.update(change.gpus)
        self.record.add_change(change.event)
        number = self.state.request_count
        self._wishes.change(change.policies, change.event)
        change_directory.finish(self._run, change.manifest)
        self.record.set_processes(len(self.processes.present))
        self._executor.starter.prepare_children(change.manifest["env"])
        self.apply_record_usage()
        return number

    def resume_change(self) -> None:
        """Continue the change that a killed supervisor has begun, if there is one."""
        if not self.state.is_changing:
            return
        from symphony.supervised.supervisor.serving.prepare_change import resume

        specs = self.processes.specs
        self._change = resume(self._run, specs, self.processes.old_specs)
        leaving = self.processes.leaving
        self.processes.restore_leaving([n for n in self._change.removed if n not in leaving])

    def end_change(self) -> None:
        """Release the resources of the removed processes, which have exited."""
        change, self._change = self._change, None
        if change is None:
            return
        for name in change.removed:
            # Those that were running are removed already.
            if name in self.processes.leaving:
                self._executor.remove(name)
        self._resources.close_address_holds(change.old_addresses)
        change.close()
        self._host.release_addresses(change.old_addresses)
