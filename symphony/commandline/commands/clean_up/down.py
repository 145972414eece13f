"""``down``: stop and delete an experiment."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.deletion import Deletion
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.exit_codes import UsageError
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(changes=True, json="the name of the deleted experiment as JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    shared_arguments.add_file_option(parser)
    shared_arguments.add_now(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Stop an experiment and delete it, without a question.

    The record of the run remains, with the logs; see `symphony history`. Without EXPERIMENT,
    the command deletes the experiment that was launched from this directory, and prints its
    name. EXPERIMENT can also be the file from which it was launched. The processes are stopped
    in the reverse of the start order, and each has its grace period to exit. --now kills all of
    them at once.

    For example:
      symphony down
      symphony down rl
      symphony down rl.yml
    """
    if args.file_option is not None:
        if args.experiment is not None:
            raise UsageError(
                f"name the file {args.file_option} or the experiment {args.experiment}, not both"
            )
        args.experiment = args.file_option
    status = find_experiment(line, args)
    deletion = Deletion(
        line.cluster_with,
        [(status.name, line.cluster)],
        force=True,
        options={"at_once": True} if args.now else {},
        as_json=args.json,
        dry_run=args.dry_run,
    )
    return deletion.run()
