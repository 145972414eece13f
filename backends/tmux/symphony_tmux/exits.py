"""Determine how processes in windows exited, and when all of their output is in their logs.

When a process has exited, its keeper reports the exit and writes a mark to its terminal. When the
mark is in the log, the keeper exits too. After that, tmux is queried for the state of the keeper's
pane.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from symphony.supervised.processes.identity import birth_time
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony_tmux.gates import Gates
from symphony_tmux.keeper import mark
from symphony_tmux.render import Pane
from symphony_tmux.tmux_commands import Answer
from symphony_tmux.windows import SERVER_GONE, SERVER_SILENT, SESSION_CLOSED, Windows

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.002, 0.05
TIMEOUT_SECONDS = 5.0
# If a mark has not arrived after this number of seconds, the terminal may have been stopped with
# Ctrl-S.
UNFREEZE_AFTER_SECONDS = 1.0
# The maximum distance, in bytes, between the mark and the end of a log. Other processes can write
# to the log after the mark.
_MARK_DISTANCE_BYTES = 1 << 20

CLOSED = "its window was closed"
MISSED = "tmux did not report its exit"
RESPAWNED = "its window was respawned"


@dataclass(slots=True)
class TmuxChild:
    """A process in a window, from its start until its exit is reported.

    ``keeper`` is the pid of the parent process, which is the window's initial process.
    """

    name: str
    pid: int
    birth: float
    pane: str
    keeper: int
    handle: int | None = None


class ProcessExit:
    """The information that is known so far about a process's exit.

    ``code`` is the exit code of the process, or None if it is unknown.
    """

    def __init__(self, child: TmuxChild, code: int | None, log: str) -> None:
        self.child = child
        self.code = code
        self.reason = ""
        self.known = False
        self.read = code is None  # A keeper that does not report an exit code leaves no mark.
        self.waited = 0.0
        self.unfrozen = False
        self._log = log
        self._offset: int | None = None

    @property
    def timed_out(self) -> bool:
        """True if the time limit has passed."""
        return self.waited >= TIMEOUT_SECONDS

    def update(self, pane: Pane | None, answer: Answer) -> None:
        """Update the information from the pane's state as reported by tmux.

        If tmux reported no pane, use the error in ``answer``.
        """
        if self.code is not None:
            self.known = (
                pane is None or pane.dead or pane.pid != self.child.keeper or self.timed_out
            )
        elif pane is None:
            self.known, self.reason = True, _missing_pane_reason(answer)
        elif pane.pid != self.child.keeper:
            self.known, self.reason = True, RESPAWNED
        elif pane.dead and pane.code is not None:
            self.known, self.code = True, pane.code
        elif self.timed_out:
            self.known, self.code = True, pane.code
            self.reason = MISSED if pane.code is None else ""

    def is_marked(self) -> bool:
        """Return True if the keeper's mark is in the log, or if the log cannot be read."""
        try:
            return self._find_mark(mark(self.child.keeper).encode())
        except OSError:
            return True

    def _find_mark(self, wanted: bytes) -> bool:
        log = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if self._offset is None:
                self._offset = max(0, os.fstat(log).st_size - _MARK_DISTANCE_BYTES)
            while block := os.pread(log, _MARK_DISTANCE_BYTES, self._offset):
                if wanted in block:
                    return True
                self._offset += max(0, len(block) - len(wanted))
                if len(block) < _MARK_DISTANCE_BYTES:
                    return False
            return False
        finally:
            os.close(log)


class PendingExits:
    """The exits about which information is still missing.

    ``on_known`` is called with each exit when all information about it is known.
    """

    def __init__(
        self,
        loop: EventLoop,
        windows: Windows,
        gates: Gates,
        on_known: Callable[[ProcessExit], None],
    ) -> None:
        self._loop = loop
        self._windows = windows
        self._gates = gates
        self._on_known = on_known
        self._all: dict[str, ProcessExit] = {}
        self._pause = FIRST_PAUSE_SECONDS
        self._check_scheduled = False
        # Whether other programs of a process are still being stopped. They may use its terminal.
        self.is_needed: Callable[[str], bool] = lambda _: False

    def add(self, child: TmuxChild, code: int | None, *, logged: bool) -> None:
        """Begin to determine how a process exited.

        ``code`` is the exit code, or None if the keeper did not report one.
        """
        if child.name in self._all:
            return
        pending = self._all[child.name] = ProcessExit(
            child, code, str(self._windows.session.run.log(child.name))
        )
        if not pending.read and not logged:
            self._release(pending)
        self._pause = FIRST_PAUSE_SECONDS
        self._check_soon()

    def _release(self, pending: ProcessExit) -> None:
        pending.read = True
        self._pause = FIRST_PAUSE_SECONDS
        self._gates.release(pending.child.name)

    def _check_soon(self) -> None:
        if not self._check_scheduled:
            self._check_scheduled = True
            self._loop.after(self._pause, self._check)

    def _check(self) -> None:
        """Release keepers whose marks have arrived, and report the exits that are known.

        tmux is queried once for all keepers that have exited.
        """
        self._check_scheduled = False
        try:
            self._check_all()
        finally:
            # If tmux cannot be started, for example because the user's limit on processes has been
            # reached, the next check tries again.
            if self._all:
                for pending in self._all.values():
                    if not self.is_needed(pending.child.name):
                        pending.waited += self._pause
                self._pause = min(self._pause * 1.5, LONGEST_PAUSE_SECONDS)
                self._check_soon()

    def _check_all(self) -> None:
        for pending in self._all.values():
            if not pending.read and not self.is_needed(pending.child.name):
                self._check_mark(pending)
        unknown = [
            pending
            for pending in self._all.values()
            if pending.read and (_keeper_exited(pending.child) or pending.timed_out)
        ]
        if unknown:
            panes, answer = self._windows.query_panes()
            for pending in unknown:
                pending.update(panes.get(pending.child.pane), answer)
        for pending in unknown:
            if pending.known:
                del self._all[pending.child.name]
                self._on_known(pending)

    def _check_mark(self, pending: ProcessExit) -> None:
        if (
            pending.is_marked()
            or pending.timed_out
            or _keeper_exited(pending.child)
            or self._windows.sink(pending.child.name) is None
        ):
            self._release(pending)
        elif pending.waited >= UNFREEZE_AFTER_SECONDS and not pending.unfrozen:
            pending.unfrozen = True
            if not self._windows.unfreeze(pending.child.pane):
                # tmux does not respond, and one attempt for each window would take too long.
                for other in self._all.values():
                    if not other.read:
                        self._release(other)


def _keeper_exited(child: TmuxChild) -> bool:
    """Return whether the keeper has exited."""
    return birth_time(child.keeper) is None


def _missing_pane_reason(answer: Answer) -> str:
    if answer.timed_out:
        return SERVER_SILENT
    if answer.no_server:
        return SERVER_GONE
    return SESSION_CLOSED if answer.error else CLOSED
