"""``up``: make an experiment equal to its file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.change_experiment import change_experiment
from symphony.commandline.commands.experiment_file.chosen_file import choose_file
from symphony.commandline.commands.experiment_file.experiment_options import (
    add_policies,
    add_reset,
    load_for_change,
)
from symphony.commandline.commands.shared_arguments import check_timeout
from symphony.commandline.exit_codes import INTERRUPTED, UsageError
from symphony.commandline.output.terminal import print_note
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.experiment_file.watching import WatchedExperiment
    from symphony.commandline.commands.line import Line
    from symphony.model import Experiment

COMMAND = Command(changes=True, json="the changes as JSON; with --watch, one object in each line")

# After this time, an update that an unreachable cluster has prevented is tried again.
RETRY_SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_file(parser)
    add_policies(parser)
    add_reset(parser)
    shared_arguments.add_client_dry_run(
        parser, "show what would be changed, as diff; change nothing"
    )
    parser.add_argument(
        "--build", action="store_true", help="build and push the experiment's images first"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="launch the experiment again if it cannot be changed while it is running",
    )
    parser.add_argument(
        "--wait",
        choices=("started", "ready"),
        help="wait until all processes have started or are ready; fail if one fails",
    )
    shared_arguments.add_timeout(parser, "--wait")
    parser.add_argument(
        "--watch",
        action="store_true",
        help="repeat the command when the code or the experiment file changes, until Ctrl-C",
    )
    shared_arguments.add_show_secrets(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Make a running experiment equal to its file, or launch it.

    New processes are started, processes that are no longer in the file are stopped and removed,
    and changed processes are restarted in start order. Processes that have failed, were stopped
    or were never started are started; those that have succeeded are not. All others keep
    running, with the same pids or Pods, ports and GPUs. Restart policies, grace periods and the
    rules for the end of the experiment are changed without a restart. If the experiment does
    not exist or has finished, it is launched.

    The options of the launch, such as --set, --deadline and --image, are kept unless other
    values are given; the command shows which. With --reset, the file alone counts.

    The command shows the changes, and returns when they are done. If it is interrupted, run it
    again; it completes the changes.

    An experiment that runs from the file of another directory is not changed. The files of one
    Git worktree count as one directory. With --copy, this directory gets a copy of its own,
    called NAME-DIRECTORY. From then on, NAME means this copy in this directory, also without
    --copy and in other commands.

    With --watch, the command then follows the files of the code and the experiment file, and
    makes the experiment equal to them after each edit. Ignored files have no effect. After an
    error, the command waits for the next edit. Ctrl-C leaves the experiment running. This needs
    the extra watch.

    For example:
      symphony up rl.yml
      symphony up rl.yml --dry-run
      symphony up rl.yml --set rate=0.1 --wait ready
      symphony up rl.yml --watch
    """
    check_timeout(args)
    choose_file(line, args)
    if args.watch:
        return _up_after_edits(line, args)
    return _up(line, load_for_change(line, args), args)


def _up(line: Line, experiment: Experiment, args: argparse.Namespace) -> int:
    if args.build:
        from symphony.commandline.commands.experiment_file.build_images import with_built_images

        experiment = with_built_images(
            line.cluster, experiment, dry_run=args.dry_run, may_be_running=True
        )
    code = change_experiment(line, experiment, args)
    if args.dry_run or not args.wait:
        return code
    from symphony.commandline.commands import foreground

    status = foreground.wait_for_start(
        line.cluster, experiment.name, args.wait, timeout=args.timeout
    )
    return foreground.report_failures(line.cluster, status, args.wait)


def _up_after_edits(line: Line, args: argparse.Namespace) -> int:
    """Change the experiment after each edit, until Ctrl-C."""
    from pathlib import Path

    from symphony.commandline.commands.experiment_file.watching import WatchedExperiment

    if args.dry_run:
        raise UsageError(
            "--dry-run changes nothing, so there is nothing to repeat: remove --watch or --dry-run"
        )
    with WatchedExperiment(Path(args.file), lambda: load_for_change(line, args)) as watched:
        experiment = watched.load()
        _up(line, experiment, args)
        count = "1 file" if watched.count == 1 else f"{watched.count} files"
        print_note(f"watching {count} of {experiment.name}; press Ctrl-C to stop")
        try:
            _follow_edits(line, watched, args)
        except KeyboardInterrupt:
            print_note(f"{line.prog}: stopped watching; {experiment.name!r} keeps running")
            return INTERRUPTED


def _follow_edits(line: Line, watched: WatchedExperiment, args: argparse.Namespace) -> NoReturn:
    from symphony.commandline.commands.experiment_file.watching import RepeatedChanges, changed_line
    from symphony.errors import SymphonyError, Unreachable

    is_unreachable = False
    repeated = RepeatedChanges()
    while True:
        changed = watched.wait(RETRY_SECONDS if is_unreachable else None)
        if changed:
            changed = repeated.wait(watched, changed)
            print_note(changed_line(changed))
        try:
            _up(line, watched.load(), args)
            is_unreachable = False
        except (SymphonyError, TimeoutError) as exc:
            was_unreachable = is_unreachable
            is_unreachable = isinstance(exc, Unreachable)
            # An outage is reported once.
            if changed or not (is_unreachable and was_unreachable):
                line.print_error(line.explained_error(exc))
        repeated.note_update()
