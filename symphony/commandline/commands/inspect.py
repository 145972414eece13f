"""The commands that show the state of experiments: ``ls``, ``ps``, ``describe`` and ``wait``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from symphony.commandline.commands.base_commands import BaseCommands
from symphony.commandline.exit_codes import OK, UsageError, error_message, exit_code
from symphony.commandline.output.terminal import print_coloured, print_note, print_text

if TYPE_CHECKING:
    from symphony.commandline.output.watch import WatchedTable
    from symphony.status import ExperimentStatus, ProcessStatus


class InspectCommands(BaseCommands):
    """The ``ls``, ``ps``, ``describe`` and ``wait`` commands."""

    def _add_ls(self) -> None:
        parser = self.add_subparser("ls")
        self._add_hidden_dry_run(parser)
        self._add_watch(parser)
        self._add_json(parser)

    def action_ls(self, args: argparse.Namespace) -> int | None:
        """List the experiments that symphony launched.

        AGE is the time since the launch. A cell without a value contains "-". Only the last column
        may contain spaces.

        For example:
          symphony ls
          symphony ls --watch
          symphony ls -b tmux --json
        """
        from symphony.commandline.output.printing import show_json

        if args.watch:
            return self._watch(args, lambda: _watched_experiments(self._describe_all()[0]))
        statuses, code = self._describe_all()
        if args.json:
            show_json([status.to_dict() for status in statuses])
        else:
            print_coloured(_experiment_table(statuses))
        return code

    def _describe_all(self) -> tuple[list[ExperimentStatus], int]:
        """Return the status of every experiment, and the exit code.

        An experiment that cannot be described is reported on standard error. The statuses of the
        other experiments are still returned.
        """
        from symphony.errors import NotFound, SymphonyError

        statuses = []
        code = OK
        for name in self.cluster.list_experiments():
            try:
                statuses.append(self.cluster.describe_experiment(name))
            except NotFound:
                # The experiment was deleted after the names were listed.
                continue
            except SymphonyError as exc:
                print_note(f"{self.prog}: error: {error_message(exc)}")
                code = code or exit_code(exc)
        return statuses, code

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
        self._add_experiment_name(parser, required=False)
        self._add_run_option(parser)
        self._add_watch(parser)
        self._add_json(parser)

    def action_ps(self, args: argparse.Namespace) -> int | None:
        """Show the processes of an experiment.

        EXIT is the exit code (128 + n for signal n). AGE is the time since the latest start. A cell
        without a value contains "-". Only the last column may contain spaces.

        For example:
          symphony ps rl
          symphony ps rl --watch
          symphony ps rl --json | jq '.processes[].pid'
          symphony ps --run rl-20261122-093011-7f3a
        """
        from symphony.commandline.commands.resolve_names import resolve_experiment
        from symphony.commandline.output.printing import show_json

        self._use_run(args)
        status = resolve_experiment(self.cluster, args.experiment)
        if args.watch:
            return self._watch(
                args, lambda: _watched_processes(self.cluster.describe_experiment(status.name))
            )
        if args.json:
            show_json(status.to_dict())
            return OK
        print_coloured(_process_table(status.processes))
        _print_note(status)
        return OK

    def _add_describe(self) -> None:
        parser = self.add_subparser("describe")
        self._add_hidden_dry_run(parser)
        self._add_experiment_name(parser)
        self._add_component_arg(parser)
        self._add_run_option(parser)
        self._add_json(parser)

    def action_describe(self, args: argparse.Namespace) -> int | None:
        """Show details of one process.

        The details are its state and the reason for that state, its command, location, resources,
        service addresses and events, and, without --json, the last lines of its output.

        For example:
          symphony describe rl learner
          symphony describe rl agents/agent-1 --json | jq .events
        """
        from symphony.commandline.commands.resolve_names import resolve_experiment, resolve_process
        from symphony.commandline.output import describe
        from symphony.commandline.output.printing import show_json

        self._use_run(args)
        status = resolve_experiment(self.cluster, args.experiment)
        process = resolve_process(status, args.process)
        details = self.cluster.explain_process(status.name, process.name, process.group)
        _print_note(status)
        if args.json:
            show_json({"experiment": status.name, **details.to_dict()})
            return OK
        log = self._last_lines(status.name, process.name, describe.LAST_LINES)
        lines = describe.description_lines(status.name, details, log, time.time())
        print_text("\n".join(lines))
        return OK

    def _last_lines(self, experiment: str, process: str, number: int) -> list[str]:
        """Return the last ``number`` lines of a log, or an error message if reading it fails."""
        from symphony.commandline.output.escapes import remove_controls
        from symphony.errors import SymphonyError

        try:
            log = self.cluster.get_log(experiment, process, tail=number)
        except SymphonyError as exc:
            # The other details are useful even if the log is not available.
            return [f"({error_message(exc)})"]
        return remove_controls(log, keep_colours=False).splitlines()

    def _add_wait(self) -> None:
        parser = self.add_subparser("wait")
        self._add_hidden_dry_run(parser)
        self._add_experiment_name(parser, required=False)
        self._add_timeout(parser)
        self._add_json(parser, "the final status as JSON")

    def action_wait(self, args: argparse.Namespace) -> int | None:
        """Wait until every process of an experiment has exited.

        The exit code is that of the experiment: 0 if every process succeeded, else the exit code of
        the first process that failed. It is 1 if the timeout expires.

        For example:
          symphony wait rl
          symphony wait rl --timeout 10m
        """
        from symphony.commandline.commands.foreground import wait_until_finished
        from symphony.commandline.commands.resolve_names import resolve_experiment

        name = resolve_experiment(self.cluster, args.experiment).name
        return wait_until_finished(self.cluster, name, timeout=args.timeout, as_json=args.json)


def _print_note(status: ExperimentStatus) -> None:
    from symphony.commandline.output.views import note

    text = note(status, time.time())
    if text:
        print_note(f"{status.name}: {text}")


def _experiment_table(statuses: Iterable[ExperimentStatus]) -> list[str]:
    from symphony.commandline.output.printing import table_lines
    from symphony.commandline.output.views import EXPERIMENT_COLUMNS, experiment_row

    now = time.time()
    return table_lines(EXPERIMENT_COLUMNS, [experiment_row(status, now) for status in statuses])


def _process_table(processes: Iterable[ProcessStatus]) -> list[str]:
    from symphony.commandline.output.printing import table_lines
    from symphony.commandline.output.views import PROCESS_COLUMNS, process_row

    now = time.time()
    return table_lines(PROCESS_COLUMNS, [process_row(process, now) for process in processes])


def _watched_experiments(statuses: Sequence[ExperimentStatus]) -> WatchedTable:
    from symphony.commandline.output.views import count_words
    from symphony.commandline.output.watch import WatchedTable

    states = [status.displayed_state for status in statuses]
    return WatchedTable(
        title=f"{len(statuses)} experiments: {', '.join(count_words(states))}",
        states=states,
        format_rows=lambda rows: _experiment_table(statuses[row] for row in rows),
    )


def _watched_processes(status: ExperimentStatus) -> WatchedTable:
    from symphony.commandline.output.views import summary_line
    from symphony.commandline.output.watch import WatchedTable

    return WatchedTable(
        title=summary_line(status),
        states=[process.displayed_state for process in status],
        format_rows=lambda rows: _process_table(status.processes[row] for row in rows),
    )
