"""The processes of a killed supervisor, which are not children of its replacement."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from symphony.plan.state import Track
from symphony.status import State
from symphony.supervised.processes.exit_status import ExitRecord, exit_code
from symphony.supervised.processes.identity import ProcessId, is_alive
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.capture.output_pipes import OutputPipes
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.process_handles import AdoptedChild, open_pidfd

# The interval at which a process is polled if no pidfd is available.
POLL_SECONDS = 0.5
# How long an exit code may take to become available, and how often it is read; see
# `symphony.supervised.processes.exit_status`.
EXIT_CODE_SECONDS, EXIT_CODE_POLL_SECONDS = 1.0, 0.01


def find_processes(
    run: RunDirectory, processes: Iterable[ProcessSpec], tracks: Mapping[str, Track]
) -> dict[str, ProcessId]:
    """Return the running processes of a run by their names.

    A process can also have exited in the meantime. ``tracks`` contains what was recorded.
    """
    found: dict[str, ProcessId] = {}
    pending: list[str] = []
    for spec in processes:
        track = tracks[spec.name]
        if track.pid is not None and track.birth is not None:
            found[spec.name] = ProcessId(track.pid, track.birth)
        elif track.state is State.PENDING:
            pending.append(spec.name)
    found.update(_find_unrecorded(run, pending, tracks))
    return found


def _find_unrecorded(
    run: RunDirectory, names: Sequence[str], tracks: Mapping[str, Track]
) -> dict[str, ProcessId]:
    """Return the processes that the supervisor had started, but not recorded, when it was
    killed.
    """
    run_id = run.run_id() if names else None
    if run_id is None:
        return {}
    from symphony.supervised.processes.membership import find_session_leaders

    leaders = find_session_leaders(run_id)
    # A session that was started before the last exit belongs to a descendant that has exited
    # its parent's session.
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = os.sysconf("SC_CLK_TCK")
    return {
        name: leaders[name]
        for name in names
        if name in leaders
        and boot + (leaders[name].birth + 1) / ticks >= (tracks[name].ended or 0.0)
    }


class AdoptedChildren:
    """The processes of a killed supervisor.

    When the output of a process that has exited is in its log, ``on_exit`` is called with its exit
    code, or None if the code is not known.
    """

    def __init__(
        self,
        loop: EventLoop,
        run: RunDirectory,
        output: OutputPipes,
        on_exit: Callable[[AdoptedChild, int | None], None],
    ) -> None:
        self._loop = loop
        self._output = output
        self._on_exit = on_exit
        self._exit_record = ExitRecord(run.exits)

    def watch(self, child: AdoptedChild) -> None:
        """Watch for the exit of a process, which may have exited already."""
        process = ProcessId(child.pid, child.birth)
        child.pidfd = open_pidfd(child.pid)
        if child.pidfd is not None and is_alive(process):
            self._loop.watch(child.pidfd, lambda: self._handle_exit(child))
        elif child.pidfd is None and is_alive(process):
            self._poll(child)
        else:
            if child.pidfd is not None:
                os.close(child.pidfd)
                child.pidfd = None
            code = self._exit_code(child)
            self._output.drain(child.name, lambda: self._report(child, code))

    def _poll(self, child: AdoptedChild) -> None:
        """Report the exit of a process for which no pidfd is available."""
        if is_alive(ProcessId(child.pid, child.birth)):
            self._loop.after(POLL_SECONDS, lambda: self._poll(child))
        else:
            self._report(child)

    def _handle_exit(self, child: AdoptedChild) -> None:
        if child.pidfd is not None:
            self._loop.unwatch(child.pidfd)
        deadline = time.monotonic() + EXIT_CODE_SECONDS
        self._output.drain(child.name, lambda: self._report_when_known(child, deadline))

    def _report_when_known(self, child: AdoptedChild, deadline: float) -> None:
        """Report an exit when the exit code is known, at the latest at ``deadline``."""
        code = self._exit_code(child)
        if code is None and time.monotonic() < deadline:
            self._loop.after(
                EXIT_CODE_POLL_SECONDS, lambda: self._report_when_known(child, deadline)
            )
            return
        pidfd, child.pidfd = child.pidfd, None
        if pidfd is not None:
            os.close(pidfd)
        self._report(child, code)

    def _report(self, child: AdoptedChild, code: int | None = None) -> None:
        if code is None:
            code = self._exit_code(child)
        self._on_exit(child, code)

    def _exit_code(self, child: AdoptedChild) -> int | None:
        """Return the exit code of a child that has exited, or None if it is not known."""
        process = ProcessId(child.pid, child.birth)
        # The program that has inherited the child may not have collected its status yet. A guardian
        # records the status before it collects it.
        code = exit_code(process, child.pidfd)
        return self._exit_record.code(process) if code is None else code
