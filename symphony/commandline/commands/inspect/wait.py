"""``wait``: wait until processes have exited."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.commands.lookup.resolve_names import resolve_processes
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(json="the final status as JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    shared_arguments.add_processes(parser)
    shared_arguments.add_timeout(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Wait until processes of an experiment have exited.

    A PROCESS can be a group, a replicated process or a pattern, as for ps. Without one, the
    command waits for all processes.

    The exit code is 0 if every process succeeded, else the exit code of the first process that
    failed. The last lines of the output of the first failed processes are printed. If the
    timeout expires, the exit code is 124, and the message names the processes that are running
    and those that have failed.

    For example:
      symphony wait rl
      symphony wait rl --timeout 10m
      symphony wait rl learner 'evaluator-*'
    """
    from symphony.commandline.commands.foreground import wait_until_finished

    status = find_experiment(line, args)
    names = None
    if args.processes:
        names = [
            process.name
            for process in resolve_processes(status, args.processes, exact=COMMAND.changes)
        ]
    return wait_until_finished(
        line.cluster, status.name, processes=names, timeout=args.timeout, as_json=args.json
    )
