"""``stop``: stop processes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.control_processes import control, grace_period
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(changes=True, json="the statuses of the processes as JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    shared_arguments.add_processes(parser)
    shared_arguments.add_stop_options(parser)
    shared_arguments.add_timeout(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Stop processes, and keep their logs and their status.

    A PROCESS can be a group, a replicated process or a pattern, as for ps. Without one, all
    processes are stopped. A stopped process is not restarted by its restart policy; start
    starts it again.

    The command waits until the processes have exited. Ctrl-C ends the command, but not the
    stop. A second stop with --now kills processes that are still running.

    For example:
      symphony stop rl
      symphony stop rl agent --grace 5
      symphony stop rl 'agent-*' learner --now
    """
    from symphony.status import ENDED

    grace = grace_period(args)
    return control(
        line,
        args,
        ("stop", "stopping", "stopped"),
        lambda experiment, names: line.cluster.stop_processes(
            experiment, names, grace=grace, at_once=args.now, timeout=args.timeout
        ),
        unchanged=ENDED,
        already="not running",
    )
