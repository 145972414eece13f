"""The children of the supervisor of ``polite``. Only the supervisor imports this module."""

from __future__ import annotations

import os

from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.children import ExitCallback
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.local_children import LocalChildren

NICENESS = 10


class PoliteChildren(LocalChildren):
    """Local processes that inherit the low priority of the supervisor."""

    def __init__(self, loop: EventLoop, run: RunDirectory, on_exit: ExitCallback) -> None:
        super().__init__(loop, run, on_exit)
        os.nice(NICENESS - os.nice(0))
