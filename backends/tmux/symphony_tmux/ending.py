"""Learning how processes in windows ended, and that all they wrote is in their logs.

A keeper reports the end of its process, waits until its mark is in the log, and ends too. Then tmux is asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from symphony.host.processes.identity import birth_time
from symphony.host.supervisor.event_loop import EventLoop
from symphony_tmux.client import Answer
from symphony_tmux.gates import Gates
from symphony_tmux.keeper import mark
from symphony_tmux.render import Pane
from symphony_tmux.windows import SERVER_GONE, SERVER_SILENT, SESSION_CLOSED, Windows

SOON, LATER = 0.002, 0.05
PATIENCE = 5.0
# A mark that has not come after so long may wait behind a Ctrl-S.
UNFREEZE = 1.0
# So far back in a log is the mark at most when it is first looked for: others may write behind it.
_BACK = 1 << 20

CLOSED = "its window was closed by hand"
MISSED = "tmux missed its end"
RESPAWNED = "its window was respawned by hand"


@dataclass(slots=True)
class TmuxChild:
    """A process in a window, whose end has not been told. ``keeper`` is its parent, and the window's own process."""

    name: str
    pid: int
    birth: float
    pane: str
    keeper: int
    handle: int | None = None


class End:
    """The end of a process, of which not all is known yet. ``code`` is what its keeper reported."""

    def __init__(self, child: TmuxChild, code: int | None, log: str) -> None:
        self.child = child
        self.code = code
        self.reason = ""
        self.known = False
        self.read = code is None  # a keeper that does not report leaves no mark
        self.waited = 0.0
        self.unfrozen = False
        self._log = log
        self._from: int | None = None

    @property
    def late(self) -> bool:
        """Whether this was waited for long enough."""
        return self.waited >= PATIENCE

    def learn(self, pane: Pane | None, answer: Answer) -> None:
        """Take in what tmux says of the pane."""
        if self.code is not None:
            self.known = pane is None or pane.dead or pane.pid != self.child.keeper or self.late
        elif pane is None:
            self.known, self.reason = True, _why_gone(answer)
        elif pane.pid != self.child.keeper:
            self.known, self.reason = True, RESPAWNED
        elif pane.dead and pane.code is not None:
            self.known, self.code = True, pane.code
        elif self.late:
            self.known, self.code = True, pane.code
            self.reason = MISSED if pane.code is None else ""

    def is_marked(self) -> bool:
        """Whether the keeper's mark is in the log."""
        wanted = mark(self.child.keeper).encode()
        try:
            log = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            if self._from is None:
                self._from = max(0, os.fstat(log).st_size - _BACK)
            while block := os.pread(log, _BACK, self._from):
                if wanted in block:
                    return True
                self._from += max(0, len(block) - len(wanted))
                if len(block) < _BACK:
                    return False
            return False
        finally:
            os.close(log)


class Ends:
    """The ends that are on their way. ``told`` is called with each of which all is known."""

    def __init__(
        self, loop: EventLoop, windows: Windows, gates: Gates, told: Callable[[End], None]
    ) -> None:
        self._loop = loop
        self._windows = windows
        self._gates = gates
        self._told = told
        self._all: dict[str, End] = {}
        self._pause = SOON
        self._looking = False

    def begin(self, child: TmuxChild, code: int | None, *, logged: bool) -> None:
        """A process has ended, with that exit code where its keeper reported it."""
        if child.name in self._all:
            return
        end = self._all[child.name] = End(
            child, code, str(self._windows.session.run.log(child.name))
        )
        if not end.read and not logged:
            self._release(end)
        self._pause = SOON
        self._look_soon()

    def _release(self, end: End) -> None:
        end.read = True
        self._pause = SOON
        self._gates.release(end.child.name)

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            self._loop.after(self._pause, self._look)

    def _look(self) -> None:
        """Let keepers go whose mark has come; ask tmux once for all that went; tell of those of which all is known."""
        self._looking = False
        for end in self._all.values():
            if not end.read:
                self._look_for_mark(end)
        unknown = [end for end in self._all.values() if end.read and (_gone(end.child) or end.late)]
        if unknown:
            here, answer = self._windows.look()
            for end in unknown:
                end.learn(here.get(end.child.pane), answer)
        for end in unknown:
            if end.known:
                del self._all[end.child.name]
                self._told(end)
        if self._all:
            for end in self._all.values():
                end.waited += self._pause
            self._pause = min(self._pause * 1.5, LATER)
            self._look_soon()

    def _look_for_mark(self, end: End) -> None:
        if (
            end.is_marked()
            or end.late
            or _gone(end.child)
            or self._windows.sink(end.child.name) is None
        ):
            self._release(end)
        elif end.waited >= UNFREEZE and not end.unfrozen:
            end.unfrozen = True
            if not self._windows.unfreeze(
                end.child.pane
            ):  # tmux hangs: to ask it for each would take long
                for other in self._all.values():
                    if not other.read:
                        self._release(other)


def _gone(child: TmuxChild) -> bool:
    """Whether the keeper has ended."""
    return birth_time(child.keeper) is None


def _why_gone(answer: Answer) -> str:
    if answer.late:
        return SERVER_SILENT
    if answer.no_server:
        return SERVER_GONE
    return SESSION_CLOSED if answer.error else CLOSED
