"""The commands that show the state of experiments: ``ls``, ``ps``, ``describe`` and ``wait``."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from symphony.commandline.commands.base_commands import BaseCommands
from symphony.commandline.exit_codes import OK, UsageError, error_message
from symphony.commandline.output.terminal import print_coloured, print_note, print_text

if TYPE_CHECKING:
    from symphony.cluster import WatchedStatuses
    from symphony.commandline.output.watch import WatchedTable
    from symphony.status import ExperimentStatus, ProcessStatus
    from symphony.support.hidden_values import HiddenValues
    from symphony.usage import ExperimentUsage


class InspectCommands(BaseCommands):
    """The ``ls``, ``ps``, ``describe`` and ``wait`` commands."""

    def _add_ls(self) -> None:
        parser = self.add_subparser("ls")
        self._add_hidden_dry_run(parser)
        self._add_watch(parser)
        self._add_json(parser)

    def action_ls(self, args: argparse.Namespace) -> int | None:
        """List the experiments that symphony launched.

        The list contains the experiments of all backends of this machine, and those of a cluster
        that is configured. With -b, it contains only the experiments of one backend. A cluster that
        does not respond within 3 seconds is left out, with a message.

        AGE is the time since the launch. A cell without a value contains "-". Only the last column
        may contain spaces.

        For example:
          symphony ls
          symphony ls --watch
          symphony ls -b tmux --json
        """
        from symphony.commandline.commands.list_experiments import Listing
        from symphony.commandline.output.printing import show_json

        listing = Listing(self.prog, self.selected_cluster, only_selected=self.names_backend)
        if args.watch:
            with listing.watching() as read:
                return self._watch(args, lambda: _watched_experiments(read()))
        statuses = listing.read()
        if args.json:
            show_json([status.to_dict() for status in statuses])
        else:
            print_coloured(_experiment_table(statuses))
        return listing.exit_code

    def _watch(self, args: argparse.Namespace, get_table: Callable[[], WatchedTable]) -> int:
        """Show a table, and refresh it until Ctrl-C.

        Raises `UsageError` if JSON output was also requested.
        """
        from symphony.commandline.output.watch import watch_table

        if args.json:
            raise UsageError("--watch and --json cannot be combined")
        return watch_table(get_table)

    def _add_ps(self) -> None:
        parser = self.add_subparser("ps")
        self._add_hidden_dry_run(parser)
        self._add_experiment(parser)
        self._add_processes(parser)
        self._add_run_option(parser)
        parser.add_argument(
            "--usage",
            action="store_true",
            help="show the CPU, memory, open files and GPUs that each process uses",
        )
        self._add_watch(parser)
        self._add_json(parser)

    def action_ps(self, args: argparse.Namespace) -> int | None:
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
            return self.cluster.hidden_values(name)

        def select(status: ExperimentStatus) -> ExperimentStatus:
            selected = narrowed(status, self._resolve_processes(status, args.processes))
            if not selected.note and not any(process.reason for process in selected):
                # Most experiments need no further modules.
                return selected
            from symphony.cluster.hidden_output import status_without_secrets

            return status_without_secrets(
                selected, lambda: find_hidden(status.name, status.created)
            )

        if args.usage and args.run:
            raise UsageError("--usage and --run cannot be combined; show prints the recorded usage")
        self._use_run(args)
        status = select(self._find_experiment(args))
        name = status.name
        if args.watch:
            get_usage = self._watched_usage(name) if args.usage else lambda: None
            with self.cluster.watch_experiment(name) as read:
                return self._watch(args, lambda: _watched_processes(read(), select, get_usage()))
        usage = self._read_usage(status) if args.usage else None
        if args.json:
            data = {**status.to_dict(), "exposed": self._exposed_services(name)}
            show_json(data if usage is None else {**data, "usage": usage.to_dict()})
            return OK
        print_coloured(_process_table(status.processes, status.now(), usage))
        _print_note(status)
        _print_unavailable(usage)
        if not status.ended and not args.processes:
            for line in self._exposed_lines(name):
                print_note(line.strip())
        return OK

    def _read_usage(self, status: ExperimentStatus) -> ExperimentUsage:
        from symphony.commandline.commands.current_usage import read_usage

        return read_usage(self.cluster, status.name, [process.name for process in status])

    def _watched_usage(self, name: str) -> Callable[[], ExperimentUsage]:
        from symphony.commandline.commands.current_usage import LatestUsage
        from symphony.commandline.output.watch import WATCH_INTERVAL_SECONDS

        return LatestUsage(self.cluster, name, WATCH_INTERVAL_SECONDS).get

    def _add_describe(self) -> None:
        parser = self.add_subparser("describe")
        self._add_hidden_dry_run(parser)
        self._add_experiment(parser)
        self._add_processes(parser)
        self._add_run_option(parser)
        self._add_json(parser, "a JSON object, or a list of objects if there are several processes")

    def action_describe(self, args: argparse.Namespace) -> int | None:
        """Show details of processes.

        The details are the state and the reason for that state, the command, location, resources,
        service addresses and events, and, without --json, the last lines of the output. A PROCESS
        can be a group, a replicated process or a pattern, as for ps. Without one, all processes are
        described.

        For example:
          symphony describe rl learner
          symphony describe rl 'agent-*'
          symphony describe rl agents/agent-1 --json | jq .events
        """
        from symphony.cluster.hidden_output import details_without_secrets
        from symphony.commandline.output import describe
        from symphony.commandline.output.printing import show_json

        self._use_run(args)
        status = self._find_experiment(args)
        hidden = self.cluster.hidden_values(status.name)
        found = []
        for process in self._resolve_processes(status, args.processes):
            details = self.cluster.explain_process(status.name, process.name, process.group)
            found.append(details_without_secrets(details, hidden))
        _print_note(status)
        if args.json:
            data = [{"experiment": status.name, **details.to_dict()} for details in found]
            show_json(data[0] if len(data) == 1 else data)
            return OK
        for number, details in enumerate(found):
            log = self._last_lines(status.name, details.status.name, hidden)
            lines = describe.description_lines(status.name, details, log, status.now())
            print_text("\n".join(lines if number == 0 else ["", *lines]))
        return OK

    def _last_lines(self, experiment: str, process: str, hidden: HiddenValues) -> list[str]:
        """Return the last lines of a log, or an error message if reading it fails."""
        from symphony.commandline.output.describe import LAST_LINES
        from symphony.errors import SymphonyError
        from symphony.support.escapes import remove_controls

        try:
            log = self.cluster.get_log(experiment, process, tail=LAST_LINES)
        except SymphonyError as exc:
            # The other details are useful even if the log is not available.
            return [f"({error_message(exc)})"]
        return remove_controls(hidden.in_text(log), keep_colours=False).splitlines()

    def _add_wait(self) -> None:
        parser = self.add_subparser("wait")
        self._add_hidden_dry_run(parser)
        self._add_experiment(parser)
        self._add_processes(parser)
        self._add_timeout(parser)
        self._add_json(parser, "the final status as JSON")

    def action_wait(self, args: argparse.Namespace) -> int | None:
        """Wait until processes of an experiment have exited.

        A PROCESS can be a group, a replicated process or a pattern, as for ps. Without one, the
        command waits for all processes.

        The exit code is 0 if every process succeeded, else the exit code of the first process that
        failed. If the timeout expires, it is 124, and the message names the processes that are
        running and those that have failed.

        For example:
          symphony wait rl
          symphony wait rl --timeout 10m
          symphony wait rl learner 'evaluator-*'
        """
        from symphony.commandline.commands.foreground import wait_until_finished

        status = self._find_experiment(args)
        names = None
        if args.processes:
            names = [process.name for process in self._resolve_processes(status, args.processes)]
        return wait_until_finished(
            self.cluster, status.name, processes=names, timeout=args.timeout, as_json=args.json
        )


def _print_note(status: ExperimentStatus) -> None:
    from symphony.commandline.output.views import note, parameter_words

    text = note(status, status.now())
    if text:
        print_note(f"{status.name}: {text}")
    if status.parameters:
        print_note(f"{status.name}: {parameter_words(status.parameters)}")


def _experiment_table(statuses: Iterable[ExperimentStatus]) -> list[str]:
    from symphony.commandline.output.printing import table_lines
    from symphony.commandline.output.views import EXPERIMENT_COLUMNS, experiment_row

    rows = [experiment_row(status, status.now()) for status in statuses]
    return table_lines(EXPERIMENT_COLUMNS, rows)


def _print_unavailable(usage: ExperimentUsage | None) -> None:
    """Print why values of the resource use are not available."""
    if usage is not None:
        from symphony.commandline.output.usage import unavailable_lines

        for line in unavailable_lines(usage):
            print_note(line)


def _missing_usage(usage: ExperimentUsage | None) -> str:
    """Return why the resource use is not available at all, or ``""``."""
    if usage is None:
        return ""
    from symphony.commandline.output.usage import unavailable_lines
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
    from symphony.commandline.output.usage import UsageTable, insert_before_last

    table = UsageTable(usage)
    return table_lines(
        insert_before_last(columns, table.columns),
        [insert_before_last(row, table.cells(process.name)) for process, row in rows],
    )


def _watched_experiments(watched: WatchedStatuses) -> WatchedTable:
    from symphony.commandline.output.views import count_words
    from symphony.commandline.output.watch import WatchedTable

    statuses = watched.statuses
    states = [status.displayed_state for status in statuses]
    return WatchedTable(
        title=f"{len(statuses)} experiments: {', '.join(count_words(states))}",
        states=states,
        format_rows=lambda rows: _experiment_table(statuses[row] for row in rows),
        outage=watched.outage,
    )


def _watched_processes(
    watched: WatchedStatuses,
    select: Callable[[ExperimentStatus], ExperimentStatus],
    usage: ExperimentUsage | None,
) -> WatchedTable:
    from symphony.commandline.output.views import summary_line
    from symphony.commandline.output.watch import WatchedTable

    status = select(watched.statuses[0])
    return WatchedTable(
        title=summary_line(status),
        states=[process.displayed_state for process in status],
        format_rows=lambda rows: _process_table(
            (status.processes[row] for row in rows), status.now(), usage
        ),
        outage=watched.outage or _missing_usage(usage),
    )
