"""Watch for the exits of keepers and of processes whose keepers have exited."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from symphony.supervised.processes.identity import birth_time
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony_tmux.exits import TmuxChild

POLL_SECONDS = 0.2


def open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process exits, or None if none is left."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


class WatchedProcesses:
    """The processes whose exits are observed. ``running`` contains the running children."""

    def __init__(self, loop: EventLoop, running: Mapping[str, TmuxChild]) -> None:
        self._loop = loop
        self._running = running

    def watch(self, child: TmuxChild, pid: int, gone: Callable[[TmuxChild], None]) -> None:
        """Call ``gone`` when a process has exited, to which the child's handle refers.

        ``pid`` is polled if the child has no handle.
        """
        handle = child.handle
        if handle is None:
            self._poll(child, pid, gone)
            return

        def report_exit() -> None:
            self.unwatch(child)
            gone(child)

        self._loop.watch(handle, report_exit)

    def _poll(self, child: TmuxChild, pid: int, gone: Callable[[TmuxChild], None]) -> None:
        if self._running.get(child.name) is not child:
            return
        if birth_time(pid) is not None:
            self._loop.after(POLL_SECONDS, lambda: self._poll(child, pid, gone))
        else:
            gone(child)

    def unwatch(self, child: TmuxChild) -> None:
        """Stop watching, and close the child's handle, if it has one."""
        if child.handle is not None:
            self._loop.unwatch(child.handle)
            self.close(child)

    def close(self, child: TmuxChild) -> None:
        """Close the handle of a child that is not watched."""
        if child.handle is not None:
            os.close(child.handle)
            child.handle = None
