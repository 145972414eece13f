"""How the supervisor of ``polite`` starts processes. Only the supervisor imports this."""

from __future__ import annotations

import os

from symphony.host.run.directory import RunDirectory
from symphony.host.supervisor.children import ExitCallback
from symphony.host.supervisor.event_loop import EventLoop
from symphony_local.children import LocalChildren

NICENESS = 10


class PoliteChildren(LocalChildren):
    """Plain children of a supervisor that has lowered its own priority: they inherit it."""

    def __init__(self, loop: EventLoop, run: RunDirectory, on_exit: ExitCallback) -> None:
        super().__init__(loop, run, on_exit)
        os.nice(NICENESS - os.nice(0))
