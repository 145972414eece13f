"""``restart``: stop processes, and start them again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.control_processes import control, grace_period
from symphony.commandline.parsing.command import Command
from symphony.views.controls import Control, Question, describe_started

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.commands.line import Line
    from symphony.status import ProcessStatus
    from symphony.views.controls import UserAction

COMMAND = Command(changes=True, json="the statuses of the processes as JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    shared_arguments.add_processes(parser)
    shared_arguments.add_stop_options(parser)
    shared_arguments.add_timeout(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Stop processes, and start them again.

    A PROCESS can be a group, a replicated process or a pattern, as for ps. Without one, all
    processes are restarted. A process that starts after another restarted process waits for it
    again. The processes keep their addresses, GPUs and environment, and their output is added
    to their logs. A process that symphony debug has left under a debugger gets its ordinary
    command again.

    For example:
      symphony restart rl agent-3
      symphony restart rl agent --now
    """
    from symphony.cluster.debug.restarting import restart_with_ordinary_commands

    grace = grace_period(args)

    def restart(experiment: str, names: list[str]) -> Sequence[ProcessStatus]:
        return restart_with_ordinary_commands(
            line.cluster,
            experiment,
            names,
            grace=grace,
            at_once=args.now,
            timeout=args.timeout,
        )

    return control(
        line,
        args,
        ("restart", "restarting", "restarted"),
        restart,
        starts=True,
        shows_addresses=True,
        reports_kills=not args.now and grace != 0,
    )


def _restart(cluster: Cluster, request: UserAction) -> str:
    from symphony.cluster.debug.restarting import restart_with_ordinary_commands
    from symphony.cluster.matching import select_processes

    experiment = request.experiment
    status = cluster.describe_experiment(experiment)
    finished = cluster.finished_one_shots(status) if request.processes is None else []
    names = [process.name for process in select_processes(status, request.selection)]
    names = [name for name in names if name not in finished]
    restarted = restart_with_ordinary_commands(cluster, experiment, names)
    return describe_started("restarted", experiment, restarted)


CONTROL = Control(
    key="r",
    help="restart",
    in_footer=True,
    question=lambda request: Question(f"Restart {request.target}?", "Restart"),
    perform=_restart,
)
