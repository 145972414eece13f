"""``start``: start processes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.control_processes import control
from symphony.commandline.parsing.command import Command
from symphony.views.controls import ENDED, Control, describe_started

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.commands.line import Line
    from symphony.views.controls import UserAction

COMMAND = Command(changes=True, json="the statuses of the processes as JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    shared_arguments.add_processes(parser)
    shared_arguments.add_timeout(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Start processes that were stopped or have exited.

    A PROCESS can be a group, a replicated process or a pattern, as for ps. Without one, all
    processes are started, except those that are running already. Each process starts when its
    start conditions are met, with the same addresses, GPUs and environment as before. Its
    output is added to its log.

    The command returns when each process has started or waits for its conditions. It prints the
    processes that it has started, and the reasons of those that wait or cannot start. The exit
    code is 1 if a process could not be started.

    For example:
      symphony start rl
      symphony start rl learner
    """
    from symphony.status import State

    return control(
        line,
        args,
        ("start", "starting", "started"),
        lambda experiment, names: line.cluster.start_processes(
            experiment, names, timeout=args.timeout
        ),
        starts=True,
        unchanged={State.RUNNING},
        already="running already",
    )


def _start(cluster: Cluster, request: UserAction) -> str:
    from symphony.status import State

    experiment = request.experiment
    status = cluster.describe_experiment(experiment)
    running = {process.name for process in status if process.state is State.RUNNING}
    result = cluster.start_processes(experiment, request.selection)
    concerned = [process for process in result if process.name not in running]
    return describe_started("started", experiment, concerned)


CONTROL = Control(key="S", help="start", effective_for=ENDED, perform=_start)
