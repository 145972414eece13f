"""The objects that the parts of the executor of one run share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from symphony.plan.state import RunState
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.note import NoteWriter
from symphony.supervised.supervisor.children import Children
from symphony.supervised.supervisor.event_loop import ErrorCallback, EventLoop
from symphony.supervised.supervisor.execution.facts import Facts
from symphony.supervised.supervisor.execution.held_resources import HeldResources
from symphony.supervised.supervisor.execution.supervised_process import ProcessTable
from symphony.supervised.supervisor.process_host import ProcessHost

# The interval at which the executor polls programs whose exit it cannot wait for.
CHECK_INTERVAL_SECONDS = 0.05


class ExecutorContext(NamedTuple):
    """The objects that the parts of an executor share, whose processes are those of ``processes``.

    ``children`` starts them, and ``host`` is the machines on which they run. ``facts`` receives
    what happens, with times of the clock ``now``. ``state`` is the recorded state. ``on_error`` is
    called with unexpected errors that do not prevent other steps.
    """

    run: RunDirectory
    loop: EventLoop
    processes: ProcessTable
    children: Children
    host: ProcessHost
    resources: HeldResources
    notes: NoteWriter
    facts: Facts
    state: RunState
    now: Callable[[], float]
    on_error: ErrorCallback
