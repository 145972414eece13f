"""The machines on which a supervisor's processes run.

The backend's `Children` start processes and report their exits. Everything else that happens to a
process takes place on the machine on which it runs: its process group receives signals, what it has
left behind is found and stopped, the growth of its log is recorded, and its readiness is tested.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from symphony.supervised.processes.identity import ProcessId, is_alive
from symphony.supervised.processes.process_groups import signal_group
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.note import NoteWriter
from symphony.supervised.supervisor.capture.log_times import LogTimes
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.execution.probes import Probe, make_probe
from symphony.supervised.supervisor.execution.stop_command import run_stop_command

if TYPE_CHECKING:
    from symphony.line_search import SearchProcess
    from symphony.supervised.processes.membership import RunProcesses
    from symphony.supervised.processes.stop_record import StopRecord
    from symphony.supervised.supervisor.execution.stopper import StopOrder, Stopper, Timers
    from symphony.supervised.supervisor.execution.strays import Strays
    from symphony.supervised.usage.sampler import Devices, UsageSampler
    from symphony.usage import ExperimentUsage

Leaders = Mapping[str, ProcessId]


class LogRecorder(Protocol):
    """An object that records the growth of logs.

    See `symphony.supervised.supervisor.capture.log_times`.
    """

    def set_limits(self, limits: Mapping[str, int]) -> None:
        """Replace the maximum sizes of the logs."""

    def watch(self, processes: Collection[str]) -> None:
        """Start recording the growth of the processes' logs."""

    def pause(self, processes: Collection[str]) -> None:
        """Do not watch the logs of processes for a short time, because most of them exit."""

    def record(self, process: str) -> None:
        """Record the length of a log now."""

    def close(self) -> None:
        """Record the final length of every log, and stop watching."""


class LeftProgram(Protocol):
    """A program that a process has left running outside of its process group, such as a daemon."""

    @property
    def process(self) -> ProcessId:
        """The identity of the program."""

    @property
    def program(self) -> str:
        """The name of the program."""

    def watch(self, loop: EventLoop, on_exit: Callable[[], None]) -> None:
        """Call ``on_exit`` in the event loop when the program has exited.

        If the system cannot report this, it is not called.
        """


class ProcessHost(Protocol):
    """The machines on which the processes of one run are running.

    Each process has a process group of its own, whose number is the pid of the process. ``name`` is
    the name of the process, and ``leaders`` maps the names of the running processes to their
    identities.
    """

    @property
    def is_remote(self) -> bool:
        """True if the processes run on other machines, which belong to the experiment alone.

        GPUs of such machines need no leases, and the machines read secrets themselves.
        """

    def reserve_addresses(
        self, addresses: Collection[str], accepted: Collection[int]
    ) -> Mapping[str, str]:
        """Reserve the ports of new addresses ``host:port`` until their processes start.

        Return the reasons why addresses are unavailable. In this case, nothing is reserved. A port
        that has closed connections counts as unavailable, unless it is in ``accepted``.
        """

    def release_addresses(self, addresses: Collection[str]) -> None:
        """Release the ports of addresses that no service has any more."""

    def replace_port(
        self, address: str, port_range: tuple[int, int]
    ) -> tuple[int, Mapping[int, int]] | None:
        """Reserve another port for an address whose server will start again, and release its own.

        Return the new port, and the holds of this machine, or None if the port remains; see
        `leases.better_port`.
        """

    def signal_group(self, name: str, group: int, number: int) -> bool:
        """Send a signal to the process group of a process. Return False if it has no members."""

    def begin_stop(
        self,
        loop: EventLoop,
        spec: ProcessSpec,
        process: ProcessId,
        order: StopOrder,
        env: Mapping[str, str],
        on_problem: Callable[[str], None],
    ) -> None:
        """Begin to stop a process and all programs that belong to it; see `stopper.Stopper`.

        If the process is being stopped already, its grace period can become shorter. ``env`` is the
        initial environment of the process, in which a command that stops it runs. ``on_problem`` is
        called in the event loop with a message if this command fails.
        """

    def is_stopping(self, name: str) -> bool:
        """Return whether programs of a process that is being stopped may be running."""

    def was_asked_to_exit(self, process: ProcessId) -> bool:
        """Return whether a supervisor that was killed has asked a process to exit.

        It has to be called before the stop is continued.
        """

    def handle_exit(self, name: str, process: ProcessId) -> bool | None:
        """Handle the exit of a process. Return whether programs of it may be running, or None if
        it was not being stopped.
        """

    def is_group_of_run(self, group: int, leaders: Leaders) -> bool:
        """Return whether a process group exists and contains a process of the run."""

    def send_signals(
        self, processes: Leaders, number: signal.Signals, *, force: bool
    ) -> Mapping[str, str]:
        """Send a signal to processes; see `symphony.supervised.processes.signaling`.

        Return the reasons why the signal cannot be sent to processes. In this case, nothing is
        sent.
        """

    def is_running(self, name: str, process: ProcessId) -> bool:
        """Return whether a process is running."""

    def stop_strays(
        self,
        leaders: Leaders,
        *,
        kill: bool,
        owners: Collection[str] | None = None,
        spares_commands: bool = False,
    ) -> bool:
        """Stop the run's processes that are in none of the leaders' process groups.

        Send SIGTERM once to each process or, if ``kill`` is true, SIGKILL. With ``owners``, stop
        only the descendants of the processes with these names. With ``spares_commands``, do not
        stop the commands that users run in the environments of processes. Return whether there were
        any.
        """

    def find_strays(self, leaders: Leaders, names: Collection[str]) -> Mapping[str, LeftProgram]:
        """Return the oldest of the programs of each process that `stop_strays` stops if it spares
        commands.

        ``names`` contains the processes in which the caller is interested. A program whose process
        is not known is ignored.
        """

    def has_descendants(self, name: str, leaders: Leaders) -> bool:
        """Return whether a process may have descendants that are running."""

    def sample_usage(
        self, leaders: Leaders, devices: Devices, on_sample: Callable[[ExperimentUsage], None]
    ) -> None:
        """Sample the resource use of the running processes, now or soon.

        ``devices`` maps the names of processes to their GPUs. ``on_sample`` is called with the
        sample in the event loop. It is not called if the processes cannot be reached.
        """

    def record_logs(
        self,
        loop: EventLoop,
        run: RunDirectory,
        limits: Mapping[str, int],
        notes: NoteWriter,
    ) -> LogRecorder:
        """Return an object that records the growth of the logs.

        ``limits`` maps process names to the maximum sizes of their logs in bytes.
        """

    def make_probe(
        self,
        spec: ProcessSpec,
        process: ProcessId,
        log: Path,
        log_start: int,
        env: Mapping[str, str],
        search_process: SearchProcess | None,
        *,
        setting: str,
    ) -> Probe:
        """Return the probe for the setting of a process; see `probes.make_probe`."""


class ThisHost:
    """The machine of the supervisor; see `ProcessHost`.

    ``on_stopped`` is called with the name of a process when all programs of a process that was
    being stopped have exited. ``record_path`` is the path of the record of the programs that were
    asked to exit; see `symphony.supervised.processes.stop_record`. If it is None, nothing is
    recorded. If ``observes_exits`` is false, `handle_exit` is not called. No process of the run was
    created before ``since``; see `RunProcesses`.
    """

    def __init__(
        self,
        run_id: str,
        on_stopped: Callable[[str], None] = lambda _: None,
        *,
        record_path: Path | None = None,
        observes_exits: bool = True,
        since: float = 0.0,
    ) -> None:
        self._run_id = run_id
        self._since = since
        self._on_stopped = on_stopped
        self._record_path = record_path
        self._observes_exits = observes_exits
        # Most experiments are not stopped, so the module is imported later.
        self._stopper: Stopper | None = None

    @property
    def is_remote(self) -> bool:
        """False; see `ProcessHost`."""
        return False

    def reserve_addresses(
        self, addresses: Collection[str], accepted: Collection[int]
    ) -> Mapping[str, str]:
        """Do nothing: the program that changes the experiment reserves ports of its machine."""
        del addresses, accepted
        return {}

    def release_addresses(self, addresses: Collection[str]) -> None:
        """Release the ports of addresses; see `ProcessHost`."""
        from symphony.supervised.resources.leases import close_port_sockets

        for address in addresses:
            close_port_sockets(port_of(address))

    def replace_port(
        self, address: str, port_range: tuple[int, int]
    ) -> tuple[int, Mapping[int, int]] | None:
        """Reserve another port for an address; see `ProcessHost`."""
        from symphony.supervised.resources.leases import PortLeases, better_port

        leases = PortLeases()
        port = better_port(leases, port_of(address), port_range)
        if port is None:
            return None
        self.release_addresses([address])
        # The lease remains until this process exits.
        return port, leases.holds

    @functools.cached_property
    def _record(self) -> StopRecord | None:
        if self._record_path is None:
            return None
        from symphony.supervised.processes.stop_record import StopRecord

        return StopRecord(str(self._record_path))

    @functools.cached_property
    def _processes(self) -> RunProcesses:
        from symphony.supervised.processes.membership import RunProcesses

        return RunProcesses(self._run_id, since=self._since)

    def has_processes(self, leaders: Leaders) -> bool:
        """Return whether processes of the run are running. They are found again later even if
        their leaders have exited.
        """
        return bool(self._processes.find(leaders.values()))

    def signal_group(self, name: str, group: int, number: int) -> bool:
        """Send a signal to a process group; see `ProcessHost`."""
        del name
        return signal_group(group, number)

    def begin_stop(
        self,
        loop: Timers,
        spec: ProcessSpec,
        process: ProcessId,
        order: StopOrder,
        env: Mapping[str, str],
        on_problem: Callable[[str], None],
    ) -> None:
        """Begin to stop a process; see `ProcessHost`."""
        if self._stopper is None:
            from symphony.supervised.supervisor.execution.stopper import Stopper

            self._stopper = Stopper(
                loop,
                on_done=self._on_stopped,
                record=self._record,
                is_notified=self._observes_exits,
            )
        run_command = None
        if order.command:
            run_command = functools.partial(run_stop_command, spec, order, env)
        self._stopper.begin(spec.name, process, order, run_command, on_problem)

    def is_stopping(self, name: str) -> bool:
        """Return whether a process is being stopped; see `ProcessHost`."""
        return self._stopper is not None and self._stopper.is_active(name)

    def was_asked_to_exit(self, process: ProcessId) -> bool:
        """Return whether a process was asked to exit; see `ProcessHost`."""
        return self._record is not None and self._record.has_previous(process.pid)

    def handle_exit(self, name: str, process: ProcessId) -> bool | None:
        """Handle the exit of a process; see `ProcessHost`."""
        return None if self._stopper is None else self._stopper.handle_exit(name, process)

    def is_group_of_run(self, group: int, leaders: Leaders) -> bool:
        """Return whether a process group belongs to the run; see `ProcessHost`."""
        if not signal_group(group, 0):
            return False
        from symphony.supervised.supervisor.execution.strays import process_group

        found = self._processes.find(leaders.values())
        return any(process_group(process.pid) == group for process in found)

    def send_signals(
        self, processes: Leaders, number: signal.Signals, *, force: bool
    ) -> Mapping[str, str]:
        """Send a signal to processes; see `ProcessHost`."""
        from symphony.supervised.processes.signaling import send_signals

        return send_signals(processes, number, force=force)

    def is_running(self, name: str, process: ProcessId) -> bool:
        """Return whether a process is running; see `ProcessHost`."""
        del name
        return is_alive(process)

    def stop_strays(
        self,
        leaders: Leaders,
        *,
        kill: bool,
        owners: Collection[str] | None = None,
        spares_commands: bool = False,
    ) -> bool:
        """Stop processes that have left their process groups; see `ProcessHost`."""
        stopped = set() if self._stopper is None else self._stopper.programs()
        return self._strays.stop(
            leaders,
            kill=kill,
            owners=owners,
            spares_commands=spares_commands,
            stopped=stopped,
        )

    def find_strays(self, leaders: Leaders, names: Collection[str]) -> Mapping[str, LeftProgram]:
        """Return programs that have left their process groups; see `ProcessHost`."""
        return self._strays.find(leaders, names)

    @functools.cached_property
    def _strays(self) -> Strays:
        from symphony.supervised.supervisor.execution.strays import Strays

        return Strays(self._processes, self._record)

    def has_descendants(self, name: str, leaders: Leaders) -> bool:
        """Return whether a process may have running descendants; see `ProcessHost`."""
        from symphony.supervised.processes.membership import owner_names

        running = self._processes.find(leaders.values())
        return bool(owner_names(running, leaders) & {name, None})

    @functools.cached_property
    def _sampler(self) -> UsageSampler:
        from symphony.supervised.usage.sampler import UsageSampler

        return UsageSampler(self._run_id)

    def sample_usage(
        self, leaders: Leaders, devices: Devices, on_sample: Callable[[ExperimentUsage], None]
    ) -> None:
        """Sample the resource use; see `ProcessHost`."""
        on_sample(self._sampler.sample(leaders, devices))

    def record_logs(
        self,
        loop: EventLoop,
        run: RunDirectory,
        limits: Mapping[str, int],
        notes: NoteWriter,
    ) -> LogTimes:
        """Return an object that records the growth of the logs; see `ProcessHost`."""
        return LogTimes(loop, run, limits, notes)

    def make_probe(
        self,
        spec: ProcessSpec,
        process: ProcessId,
        log: Path,
        log_start: int,
        env: Mapping[str, str],
        search_process: SearchProcess | None,
        *,
        setting: str,
    ) -> Probe:
        """Return the probe for the setting of a process; see `ProcessHost`."""
        find = functools.partial(self.find_other_server, spec.name, process)
        return make_probe(spec, log, log_start, env, search_process, find, setting=setting)

    def find_other_server(self, name: str, process: ProcessId, host: str, port: int) -> str:
        """Return which other program serves a port of a process; see `port_owner.other_server`."""
        from symphony.supervised.processes.port_owner import other_server

        return other_server(host, port, process, self._run_id, name)


def port_of(address: str) -> int:
    """Return the port of an address ``host:port``."""
    return int(address.rpartition(":")[2])
