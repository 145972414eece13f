"""``diff``: show what ``up`` would change."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.change_experiment import show_changes, values_to_hide
from symphony.commandline.commands.experiment_file.chosen_file import choose_file
from symphony.commandline.commands.experiment_file.experiment_options import (
    add_policies,
    add_reset,
    load_for_change,
)
from symphony.commandline.exit_codes import FAILED, OK
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(json="JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_file(parser)
    add_policies(parser)
    add_reset(parser)
    shared_arguments.add_show_secrets(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Show how a running experiment differs from its file.

    For each process that up would add, remove, restart, start or update, the command shows why.
    The exit code is 0 if there is no difference, and 1 if there is one. The options of the
    launch are kept as by up.

    For example:
      symphony diff rl.yml
      symphony diff rl.yml --set rate=0.1 --json
    """
    choose_file(line, args)
    experiment = load_for_change(line, args)
    changes = line.cluster.diff(experiment)
    show_changes(changes, args, values_to_hide(line, changes, experiment, args))
    return OK if changes.is_empty else FAILED
