"""``switch-experiment``: set or show the current experiment."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.find_experiment import find_experiment
from symphony.commandline.exit_codes import OK
from symphony.commandline.output.terminal import print_text
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(changes=True, json="JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment_name(parser, required=False)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Set the current experiment, or show it.

    Commands use the current experiment if the name is a dot. Commands that read also use it if
    no experiment is named and none was launched from the working directory. With -b, they use
    the current experiment of that backend. Without an argument, the command prints the current
    experiment.

    For example:
      symphony switch-experiment rl
      symphony ps
      symphony logs . learner
      symphony switch-experiment
    """
    from symphony.commandline.commands.current_experiment import require_current, set_current

    if args.experiment is None:
        backend = line.cluster.backend
        name = require_current(backend)
    else:
        name = find_experiment(line, args).name
        backend = line.cluster.backend
        if not args.dry_run:
            set_current(backend, name, selected=line.selected_cluster.backend)
    if args.json:
        from symphony.commandline.output.printing import show_json

        show_json({"backend": backend, "experiment": name})
    else:
        print_text(name)
    return OK
