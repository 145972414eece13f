"""The command that shows, follows and saves the output of processes: ``logs``."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from symphony.commandline.commands.select_experiment import ReadingCommands
from symphony.commandline.exit_codes import INTERRUPTED, OK, UsageError
from symphony.commandline.output.terminal import is_terminal, print_note, print_text
from symphony.commandline.parsing.arguments import NumberOption, parse_count
from symphony.errors import NotFound

if TYPE_CHECKING:
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock

Item = TypeVar("Item")


class LogsCommands(ReadingCommands):
    """The ``logs`` command."""

    def _add_logs(self) -> None:
        parser = self.add_subparser("logs")
        self._add_experiment(parser)
        self._add_processes(parser)
        parser.add_argument(
            "-f",
            "--follow",
            action="store_true",
            help="show new lines until all processes have exited",
        )
        self._add_since(parser, "lines")
        parser.add_argument(
            "-t",
            "--tail",
            metavar="N",
            type=parse_count,
            help="show only the last N lines of each process",
        )
        # On Kubernetes, -n is also the flag of the namespace.
        parser.add_argument(
            "-n", dest="tail", metavar="N", action=NumberOption, help=argparse.SUPPRESS
        )
        parser.add_argument(
            "--lines", dest="tail", metavar="N", type=parse_count, help=argparse.SUPPRESS
        )
        self._add_run_option(parser)
        parser.add_argument("--timestamps", action="store_true", help="show the time of each line")
        parser.add_argument(
            "--grep",
            metavar="REGEX",
            help="show only lines that contain a match for this regular expression",
        )
        parser.add_argument(
            "--failed", action="store_true", help="show only processes that have failed"
        )
        parser.add_argument(
            "--previous", action="store_true", help="show the output from before the last restart"
        )
        parser.add_argument(
            "--save",
            metavar="DIRECTORY",
            help="write the output of each process to DIRECTORY/PROCESS.log",
        )
        parser.add_argument(
            "--raw",
            action="store_true",
            help="show the values of secrets, and on a terminal all control sequences",
        )
        self._add_client_dry_run(parser, "with --save, do not write any files")
        self._add_json(parser, "each line as JSON")

    def action_logs(self, args: argparse.Namespace) -> int | None:
        """Show the output of processes.

        The output of a single process is shown unchanged. The output of several processes is merged
        in chronological order, and each line begins with the process name. On a terminal, control
        sequences are removed, except colours. --save writes the output to files. With --run, the
        output of an earlier run is shown. --follow also reports exits and restarts, on standard
        error. On one machine, --timestamps are accurate to about one second.

        For example:
          symphony logs rl
          symphony logs rl agents/agent-1 --tail 20
          symphony logs rl -f --since 5m
          symphony logs rl 'agent-*' --grep 'loss|error'
          symphony logs rl --failed --tail 50
          symphony logs rl -f --save logs/
          symphony logs --run rl-20261122-093011-7f3a learner
        """
        status = self._read_status(args, "logs")
        _check_combination(args)
        selected, removed = self._resolve_with_removed(status, args.processes)
        if args.failed:
            selected = [process for process in selected if process.failed]
            if not selected:
                print_note(f"no selected process of {status.name} has failed")
                return OK
            removed = []
        names = [*(process.name for process in selected), *removed]

        if args.save and args.dry_run:
            for path in _log_paths(args.save, names):
                print_note(f"would write {path}")
            return OK
        if args.previous:
            return self._show_previous(args, status.name, names)
        self._report_removed_output(args, status.name, names)
        if args.save:
            return self._save(args, status.name, names)
        if args.follow:
            if status.note:
                print_note(f"{status.name}: {status.note}")
            given = names if args.failed else self._names_to_follow(status, args.processes, names)
            return self._follow(args, status.name, names, given)
        is_unchanged = not (args.json or args.timestamps or args.grep)
        if len(names) == 1 and is_unchanged:
            return self._show_single(args, status.name, names[0])
        return self._show_merged(args, status.name, names)

    def _report_removed_output(
        self, args: argparse.Namespace, experiment: str, names: Sequence[str]
    ) -> None:
        """Report the processes whose logs no longer contain the oldest output, unless the user has
        asked for the last lines.
        """
        from symphony.support.format_usage import format_bytes

        if args.tail is not None:
            return
        for name, size in self.cluster.removed_output(experiment, names).items():
            print_note(
                f"symphony: {name}: the first {format_bytes(size)} of its output were removed, "
                "because its log exceeded log_limit"
            )

    def _show_single(self, args: argparse.Namespace, experiment: str, process: str) -> int:
        """Show one process's output unchanged, without adding a missing newline at its end."""
        from symphony.commandline.output.printing import show_log

        pieces = self.cluster.iter_log_text(
            experiment, process, since=args.since, tail=args.tail, exact=True
        )
        if not args.raw:
            pieces = self.cluster.hidden_values(experiment).in_pieces(pieces)
        is_empty = not show_log(pieces, raw=args.raw)
        if is_empty and is_terminal(sys.stderr):
            self._explain_empty_log(experiment, process)
        return OK

    def _explain_empty_log(self, experiment: str, process: str) -> None:
        """Report the state of a process that has no output. The state often explains why."""
        try:
            status = self.cluster.describe_process(experiment, process)
        except NotFound:
            print_note(f"{process} has no output, and was removed")
            return
        hidden = self.cluster.hidden_values(experiment)
        reason = f": {hidden.in_text(status.reason)}" if status.reason else ""
        print_note(f"{status.path} has no output ({status.state}{reason})")

    def _show_merged(self, args: argparse.Namespace, experiment: str, names: Sequence[str]) -> int:
        """Show the output of several processes in chronological order."""
        blocks = self.cluster.iter_output(
            experiment, names, since=args.since, tail=args.tail, exact=True
        )
        _show(args, names, self._without_secrets(args, experiment, blocks))
        return OK

    def _without_secrets(
        self, args: argparse.Namespace, experiment: str, items: Iterable[Item]
    ) -> Iterable[Item | LogBlock | ExperimentEvent]:
        """Return output in which the values of secrets are hidden, unless ``--raw`` is given."""
        from symphony.cluster.hidden_output import without_secrets

        if args.raw:
            return items
        return without_secrets(items, self.cluster.hidden_values(experiment))

    def _follow(
        self,
        args: argparse.Namespace,
        experiment: str,
        names: Sequence[str],
        given: Sequence[str] | None,
    ) -> int:
        """Follow the output until all processes have exited or the user presses Ctrl-C.

        ``given`` selects the processes ``names``, and those that are added later.
        """
        from symphony.commandline.commands.foreground import report_end

        items = self.cluster.iter_output(
            experiment,
            given,
            follow=True,
            since=args.since,
            tail=args.tail,
            events=True,
            exact=True,
        )
        try:
            _show(args, names, self._without_secrets(args, experiment, items))
        except KeyboardInterrupt:
            # Ctrl-C is the usual way to stop following, so no message is printed.
            return INTERRUPTED
        from symphony.cluster.hidden_output import shown_status

        with contextlib.suppress(NotFound):
            status = shown_status(self.cluster, self.cluster.describe_experiment(experiment))
            if status.ended:
                report_end(status)
        return OK

    def _save(self, args: argparse.Namespace, experiment: str, names: Sequence[str]) -> int:
        """Write the output to files, and print their paths.

        With ``--follow``, also write new lines until all processes have exited.
        """
        code = OK
        try:
            self.cluster.save_logs(
                experiment, args.save, names, follow=args.follow, since=args.since, tail=args.tail
            )
        except KeyboardInterrupt:
            if not args.follow:
                raise
            # Ctrl-C is the usual way to stop following, so no message is printed. The files contain
            # the output up to this point.
            code = INTERRUPTED
        for path in _log_paths(args.save, names):
            print_text(str(path))
        return code

    def _show_previous(
        self, args: argparse.Namespace, experiment: str, names: Sequence[str]
    ) -> int:
        """Show each process's output from before its last restart, one process after another.

        Raises `NotFound` if none of the processes has been restarted.
        """
        from symphony.commandline.output.printing import show_log
        from symphony.log_blocks import LogBlock

        found_any = False
        for name in names:
            try:
                text = self.cluster.get_log(
                    experiment, name, since=args.since, tail=args.tail, previous=True, exact=True
                )
            except NotFound:
                if len(names) == 1:
                    raise
                # Processes that were never restarted are skipped.
                continue
            found_any = True
            if not args.raw:
                text = self.cluster.hidden_values(experiment).in_text(text)
            if len(names) == 1 and not (args.json or args.grep):
                show_log([text], raw=args.raw)
            elif text:
                _show(args, names, [LogBlock(name, f"{text.removesuffix(chr(10))}\n")])
        if names and not found_any:
            raise NotFound(
                f"no process of experiment {experiment!r} has been restarted, so there are no "
                "previous logs"
            )
        return OK


def _log_paths(directory: str, names: Sequence[str]) -> list[Path]:
    return [Path(directory) / f"{name}.log" for name in names]


def _show(
    args: argparse.Namespace,
    names: Sequence[str],
    items: Iterable[LogBlock | ExperimentEvent],
) -> None:
    """Show output and events in the form that the options select."""
    from symphony.commandline.output.printing import LogFormatter, show_output

    formatter = LogFormatter(names, as_json=args.json, raw=args.raw, timestamps=args.timestamps)
    if not args.grep:
        show_output(items, formatter, at_once=args.follow)
        return
    from symphony.commandline.output.search import OutputSearch

    search = OutputSearch(args.grep)
    show_output(search.matching(items), formatter, at_once=args.follow)
    if search.problem:
        print_note(f"symphony: {search.problem}")


def _check_combination(args: argparse.Namespace) -> None:
    """Raise `UsageError` if two options cannot be combined."""
    if args.previous:
        for option in ("follow", "save", "timestamps"):
            if getattr(args, option):
                raise UsageError(f"--previous and --{option} cannot be combined")
    if args.save:
        for option in ("json", "timestamps", "grep"):
            if getattr(args, option):
                raise UsageError(
                    f"--save and --{option} cannot be combined; --save writes the output unchanged"
                )
