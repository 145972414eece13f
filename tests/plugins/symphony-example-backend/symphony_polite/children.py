"""How the supervisor of ``polite`` starts processes. Only the supervisor imports this."""

from __future__ import annotations

import os

from symphony.host.processes.children import Ended
from symphony.host.run.directory import RunDirectory
from symphony.host.supervisor.event_loop import Loop
from symphony_local.children import LocalChildren

NICENESS = 10


class PoliteChildren(LocalChildren):
    """Plain children of a supervisor that has lowered its own priority: they inherit it."""

    def __init__(self, loop: Loop, run: RunDirectory, ended: Ended) -> None:
        super().__init__(loop, run, ended)
        os.nice(NICENESS - os.nice(0))
