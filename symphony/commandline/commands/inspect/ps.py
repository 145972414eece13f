"""``ps``: show the processes of an experiment."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.commands.lookup.find_run import use_run
from symphony.commandline.commands.lookup.resolve_names import resolve_processes
from symphony.commandline.commands.next_steps import exposed_lines, exposed_services
from symphony.commandline.commands.show_statuses import print_status_note, watch
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_coloured, print_note
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.cluster import WatchedStatuses
    from symphony.commandline.commands.line import Line
    from symphony.commandline.output.refresh_screen import WatchedTable
    from symphony.status import ExperimentStatus, ProcessStatus
    from symphony.support.hidden_values import HiddenValues
    from symphony.usage import ExperimentUsage

COMMAND = Command(aliases=("process", "status"), json="JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    shared_arguments.add_processes(parser)
    shared_arguments.add_run_option(parser)
    parser.add_argument(
        "--usage",
        action="store_true",
        help="show the CPU, memory, open files and GPUs that each process uses",
    )
    shared_arguments.add_watch(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Show the processes of an experiment.

    A PROCESS is a process, group/process, a group, a replicated process, such as agent for
    agent-0 to agent-7, or a pattern, such as 'agent-*'. Without one, all processes are shown,
    and the addresses of the exposed services on standard error.

    EXIT is the exit code (128 + n for signal n). AGE is the time since the latest start. A cell
    without a value contains "-". Only the last column may contain spaces.

    With --usage, CPU is the number of cores, MEM the resident set size, and PSS the
    proportional set size. All values include child processes. Unknown values have no column.

    For example:
      symphony ps rl
      symphony ps rl --watch
      symphony ps rl --usage
      symphony ps rl learner 'agent-*'
      symphony ps rl --json | jq '.processes[].pid'
      symphony ps --run rl-20261122-093011-7f3a
    """
    from symphony.cluster.matching import narrowed
    from symphony.commandline.output.printing import show_json

    @functools.cache
    def find_hidden(name: str, _created: float | None) -> HiddenValues:
        return line.cluster.hidden_values(name)

    def select(status: ExperimentStatus) -> ExperimentStatus:
        selected = narrowed(
            status, resolve_processes(status, args.processes, exact=COMMAND.changes)
        )
        if not selected.note and not any(process.reason for process in selected):
            # Most experiments need no further modules.
            return selected
        from symphony.cluster.hidden_output import status_without_secrets

        return status_without_secrets(selected, lambda: find_hidden(status.name, status.created))

    if args.usage and args.run:
        raise UsageError("--usage and --run cannot be combined; show prints the recorded usage")
    use_run(line, args)
    status = select(find_experiment(line, args))
    name = status.name
    if args.watch:
        get_usage = _watched_usage(line, name) if args.usage else lambda: None
        with line.cluster.watch_experiment(name) as read:
            return watch(args, lambda: _watched_processes(read(), select, get_usage()))
    usage = _read_usage(line, status) if args.usage else None
    if args.json:
        data = {**status.to_dict(), "exposed": exposed_services(line, name)}
        show_json(data if usage is None else {**data, "usage": usage.to_dict()})
        return OK
    print_coloured(_process_table(status.processes, status.now(), usage))
    print_status_note(status)
    _print_unavailable(usage)
    if not status.ended and not args.processes:
        for text in exposed_lines(line, name):
            print_note(text.strip())
    return OK


def _read_usage(line: Line, status: ExperimentStatus) -> ExperimentUsage:
    from symphony.commandline.commands.current_usage import read_usage

    return read_usage(line.cluster, status.name, [process.name for process in status])


def _watched_usage(line: Line, name: str) -> Callable[[], ExperimentUsage]:
    from symphony.commandline.commands.current_usage import LatestUsage
    from symphony.commandline.output.refresh_screen import WATCH_INTERVAL_SECONDS

    return LatestUsage(line.cluster, name, WATCH_INTERVAL_SECONDS).get


def _print_unavailable(usage: ExperimentUsage | None) -> None:
    """Print why values of the resource use are not available."""
    if usage is not None:
        from symphony.commandline.output.usage_columns import unavailable_lines

        for text in unavailable_lines(usage):
            print_note(text)


def _missing_usage(usage: ExperimentUsage | None) -> str:
    """Return why the resource use is not available at all, or ``""``."""
    if usage is None:
        return ""
    from symphony.commandline.output.usage_columns import unavailable_lines
    from symphony.usage import EVERYTHING

    return " ".join(unavailable_lines(usage)) if EVERYTHING in usage.unavailable else ""


def _process_table(
    processes: Iterable[ProcessStatus], now: float, usage: ExperimentUsage | None = None
) -> list[str]:
    from symphony.commandline.output.printing import table_lines
    from symphony.commandline.output.views import PROCESS_COLUMNS, process_row

    columns, rows = PROCESS_COLUMNS, [(process, process_row(process, now)) for process in processes]
    if usage is None:
        return table_lines(columns, [row for _, row in rows])
    from symphony.commandline.output.usage_columns import UsageTable, insert_before_last

    table = UsageTable(usage)
    return table_lines(
        insert_before_last(columns, table.columns),
        [insert_before_last(row, table.cells(process.name)) for process, row in rows],
    )


def _watched_processes(
    watched: WatchedStatuses,
    select: Callable[[ExperimentStatus], ExperimentStatus],
    usage: ExperimentUsage | None,
) -> WatchedTable:
    from symphony.commandline.output.refresh_screen import WatchedTable
    from symphony.commandline.output.views import summary_line

    status = select(watched.statuses[0])
    return WatchedTable(
        title=summary_line(status),
        states=[process.displayed_state for process in status],
        format_rows=lambda rows: _process_table(
            (status.processes[row] for row in rows), status.now(), usage
        ),
        outage=watched.outage or _missing_usage(usage),
    )
