"""``stop``: stop processes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.control_processes import control, grace_period
from symphony.commandline.parsing.command import Command
from symphony.views.controls import RUNNING, Control, Question, describe_processes

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.commands.line import Line
    from symphony.views.controls import UserAction

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
        reports_kills=not args.now and grace != 0,
    )


def _stop(cluster: Cluster, request: UserAction) -> str:
    stopped = cluster.stop_processes(request.experiment, request.selection)
    return f"stopped {describe_processes(request.experiment, stopped)}"


CONTROL = Control(
    key="s",
    help="stop",
    in_footer=True,
    effective_for=RUNNING,
    question=lambda request: Question(f"Stop {request.target}?", "Stop"),
    perform=_stop,
)
