"""Send a signal to the programs of a process that handle it."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.process_groups import send_signal
from symphony.supervised.processes.program_table import (
    ProgramTable,
    is_fatal,
    programs_of,
    read_masks,
)
from symphony.supervised.processes.signal_rule import Forest, Program, choose
from symphony.support.signal_effects import SIGNALS_FOR_ALL


def send_signals(
    leaders: Mapping[str, ProcessId], number: signal.Signals, *, force: bool, dry_run: bool = False
) -> dict[str, str]:
    """Send a signal to the programs of processes that handle it.

    ``leaders`` maps the names of the processes to the processes that symphony has started. If no
    program of a process handles the signal, all of its programs receive it. If it would end them,
    it is only sent with ``force``. Return why the signal cannot be sent to processes. In this case,
    or with ``dry_run``, nothing is sent.
    """
    table = ProgramTable()
    problems: dict[str, str] = {}
    receivers: list[Program] = []
    for name, leader in leaders.items():
        forest = Forest(programs_of(table.members(leader), number, reads_single=True))
        root = forest.programs.get(leader.pid)
        if root is None or root.process != leader:
            problems[name] = "it is not running"
            continue
        found = _receivers(forest, root, number)
        masks = [read_masks(program.process.pid) for program in forest.programs.values()]
        would_end = not found and any(is_fatal(item, number) for item in masks)
        if would_end and number not in SIGNALS_FOR_ALL and not force:
            problems[name] = (
                f"it does not handle {number.name}, which would end it; use force to send it"
            )
        receivers += found or forest.in_order(forest.roots)
    if not problems and not dry_run:
        for program in receivers:
            send_signal(program.process, number)
    return problems


def _receivers(forest: Forest, root: Program, number: signal.Signals) -> list[Program]:
    """Return the programs that handle the signal, or an empty list for a signal for all."""
    return [] if number in SIGNALS_FOR_ALL else choose(forest, [root]).receivers
