"""The processes of a run that have left the process groups of its processes."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from symphony.supervised.processes.identity import ProcessId, is_alive, program_name
from symphony.supervised.processes.membership import (
    RunProcesses,
    is_command,
    owner_names,
    owners_of,
)
from symphony.supervised.processes.process_groups import send_signal
from symphony.supervised.processes.stop_record import STRAYS, Kind
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.process_handles import open_pidfd

if TYPE_CHECKING:
    from symphony.supervised.processes.stop_record import StopRecord


class Stray(NamedTuple):
    """A program on this machine; see `process_host.LeftProgram`."""

    process: ProcessId
    program: str

    def watch(self, loop: EventLoop, on_exit: Callable[[], None]) -> None:
        """Call ``on_exit`` when the program has exited; see `process_host.LeftProgram`."""
        pidfd = open_pidfd(self.process.pid)
        # If the program has exited meanwhile, another one can have its pid.
        if not is_alive(self.process):
            if pidfd is not None:
                os.close(pidfd)
            loop.post(on_exit)
        elif pidfd is not None:
            loop.watch(pidfd, functools.partial(_handle_exit, loop, pidfd, on_exit))


def _handle_exit(loop: EventLoop, pidfd: int, on_exit: Callable[[], None]) -> None:
    loop.unwatch(pidfd)
    os.close(pidfd)
    on_exit()


class Strays:
    """The strays among ``processes``.

    ``record`` is the record of the programs that were asked to exit, or None.
    """

    def __init__(self, processes: RunProcesses, record: StopRecord | None) -> None:
        self._processes = processes
        self._record = record

    @functools.cached_property
    def _signaled(self) -> set[ProcessId]:
        """The programs that have received the signal."""
        previous = None if self._record is None else self._record.take_previous(STRAYS)
        return set() if previous is None else previous.of(Kind.SIGNALED)

    def stop(
        self,
        leaders: Mapping[str, ProcessId],
        *,
        kill: bool,
        owners: Collection[str] | None,
        spares_commands: bool,
        stopped: Collection[ProcessId],
    ) -> bool:
        """Stop the strays, and return whether there were any; see `ProcessHost.stop_strays`.

        ``stopped`` contains the programs that are being stopped with their processes.
        """
        strays = self._find(leaders, spares_commands=spares_commands)
        if owners is not None:
            wanted = set(owners)
            strays = [stray for stray in strays if owner_names([stray], leaders, owners) & wanted]
        for process in strays:
            if kill:
                send_signal(process, signal.SIGKILL)
            elif process not in self._signaled and process not in stopped:
                self._signaled.add(process)
                if self._record is not None:
                    self._record.add(Kind.SIGNALED, STRAYS, [process])
                send_signal(process, signal.SIGTERM)
        return bool(strays)

    def find(self, leaders: Mapping[str, ProcessId], names: Collection[str]) -> dict[str, Stray]:
        """Return the oldest stray of each process that has some; see `ProcessHost.find_strays`."""
        owners = owners_of(self._find(leaders, spares_commands=True), leaders, names)
        oldest: dict[str, ProcessId] = {}
        for process, name in sorted(owners.items(), key=lambda item: item[0].birth):
            if name is not None:
                oldest.setdefault(name, process)
        return {name: Stray(item, program_name(item.pid)) for name, item in oldest.items()}

    def _find(self, leaders: Mapping[str, ProcessId], *, spares_commands: bool) -> list[ProcessId]:
        groups = {leader.pid for leader in leaders.values()}
        strays = [
            process
            for process in self._processes.find(leaders.values())
            if process.pid not in groups and process_group(process.pid) not in groups
        ]
        if spares_commands:
            return [process for process in strays if not is_command(process)]
        return strays


def process_group(pid: int) -> int:
    """Return the process group ID of a process, or 0 if there is no such process."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
