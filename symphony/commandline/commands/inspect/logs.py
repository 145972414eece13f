"""``logs``: show, follow and save the output of processes."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.select_experiment import (
    names_to_follow,
    read_status,
    resolve_with_removed,
)
from symphony.commandline.exit_codes import INTERRUPTED, OK, UsageError
from symphony.commandline.output.terminal import is_terminal, print_note, print_text
from symphony.commandline.parsing.arguments import NumberOption, parse_last
from symphony.commandline.parsing.command import Command
from symphony.errors import NotFound

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock

COMMAND = Command(
    aliases=("log",), dry_run="with --save, do not write any files", json="each line as JSON"
)

Item = TypeVar("Item")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    shared_arguments.add_processes(parser)
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="show new lines until all processes have exited",
    )
    shared_arguments.add_since(parser, "lines")
    parser.add_argument(
        "-t",
        "--tail",
        metavar="N",
        type=parse_last,
        help="show only the last N lines of each process",
    )
    # On Kubernetes, -n is also the flag of the namespace.
    parser.add_argument("-n", dest="tail", metavar="N", action=NumberOption, help=argparse.SUPPRESS)
    parser.add_argument(
        "--lines", dest="tail", metavar="N", type=parse_last, help=argparse.SUPPRESS
    )
    shared_arguments.add_run_option(parser)
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


def run(args: argparse.Namespace, line: Line) -> int | None:
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
    status = read_status(line, args, "logs")
    _check_combination(args)
    selected, removed = resolve_with_removed(line, status, args.processes)
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
        return _show_previous(line, args, status.name, names)
    _report_removed_output(line, args, status.name, names)
    if args.save:
        return _save(line, args, status.name, names)
    if args.follow:
        if status.note:
            print_note(f"{status.name}: {status.note}")
        given = names if args.failed else names_to_follow(status, args.processes, names)
        return _follow(line, args, status.name, names, given)
    is_unchanged = not (args.json or args.timestamps or args.grep)
    if len(names) == 1 and is_unchanged:
        return _show_single(line, args, status.name, names[0])
    return _show_merged(line, args, status.name, names)


def _report_removed_output(
    line: Line, args: argparse.Namespace, experiment: str, names: Sequence[str]
) -> None:
    """Report the processes whose logs no longer contain the oldest output, unless the user has
    asked for the last lines.
    """
    from symphony.support.format_usage import format_bytes

    if args.tail is not None:
        return
    for name, size in line.cluster.removed_output(experiment, names).items():
        print_note(
            f"symphony: {name}: the first {format_bytes(size)} of its output were removed, "
            "because its log exceeded log_limit"
        )


def _show_single(line: Line, args: argparse.Namespace, experiment: str, process: str) -> int:
    """Show one process's output unchanged, without adding a missing newline at its end."""
    from symphony.commandline.output.printing import show_log

    pieces = line.cluster.iter_log_text(
        experiment, process, since=args.since, tail=args.tail, exact=True
    )
    if not args.raw:
        pieces = line.cluster.hidden_values(experiment).in_pieces(pieces)
    is_empty = not show_log(pieces, raw=args.raw)
    if is_empty and is_terminal(sys.stderr):
        _explain_empty_log(line, experiment, process)
    return OK


def _explain_empty_log(line: Line, experiment: str, process: str) -> None:
    """Report the state of a process that has no output. The state often explains why."""
    try:
        status = line.cluster.describe_process(experiment, process)
    except NotFound:
        print_note(f"{process} has no output, and was removed")
        return
    hidden = line.cluster.hidden_values(experiment)
    reason = f": {hidden.in_text(status.reason)}" if status.reason else ""
    print_note(f"{status.path} has no output ({status.state}{reason})")


def _show_merged(
    line: Line, args: argparse.Namespace, experiment: str, names: Sequence[str]
) -> int:
    """Show the output of several processes in chronological order."""
    blocks = line.cluster.iter_output(
        experiment, names, since=args.since, tail=args.tail, exact=True
    )
    _show(args, names, _without_secrets(line, args, experiment, blocks))
    return OK


def _without_secrets(
    line: Line, args: argparse.Namespace, experiment: str, items: Iterable[Item]
) -> Iterable[Item | LogBlock | ExperimentEvent]:
    """Return output in which the values of secrets are hidden, unless ``--raw`` is given."""
    from symphony.cluster.hidden_output import without_secrets

    if args.raw:
        return items
    return without_secrets(items, line.cluster.hidden_values(experiment))


def _follow(
    line: Line,
    args: argparse.Namespace,
    experiment: str,
    names: Sequence[str],
    given: Sequence[str] | None,
) -> int:
    """Follow the output until all processes have exited or the user presses Ctrl-C.

    ``given`` selects the processes ``names``, and those that are added later.
    """
    from symphony.commandline.commands.foreground import report_end

    items = line.cluster.iter_output(
        experiment,
        given,
        follow=True,
        since=args.since,
        tail=args.tail,
        events=True,
        exact=True,
    )
    try:
        _show(args, names, _without_secrets(line, args, experiment, items))
    except KeyboardInterrupt:
        # Ctrl-C is the usual way to stop following, so no message is printed.
        return INTERRUPTED
    from symphony.cluster.hidden_output import shown_status

    with contextlib.suppress(NotFound):
        status = shown_status(line.cluster, line.cluster.describe_experiment(experiment))
        if status.ended:
            report_end(status)
    return OK


def _save(line: Line, args: argparse.Namespace, experiment: str, names: Sequence[str]) -> int:
    """Write the output to files, and print their paths.

    With ``--follow``, also write new lines until all processes have exited.
    """
    code = OK
    try:
        line.cluster.save_logs(
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
    line: Line, args: argparse.Namespace, experiment: str, names: Sequence[str]
) -> int:
    """Show each process's output from before its last restart, one process after another.

    Raises `NotFound` if none of the processes has been restarted.
    """
    from symphony.commandline.output.printing import show_log
    from symphony.log_blocks import LogBlock

    found_any = False
    for name in names:
        try:
            text = line.cluster.get_log(
                experiment, name, since=args.since, tail=args.tail, previous=True, exact=True
            )
        except NotFound:
            if len(names) == 1:
                raise
            # Processes that were never restarted are skipped.
            continue
        found_any = True
        if not args.raw:
            text = line.cluster.hidden_values(experiment).in_text(text)
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
