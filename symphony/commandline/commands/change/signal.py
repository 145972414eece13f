"""``signal``: send a signal to processes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.control_processes import control
from symphony.commandline.parsing.command import Command
from symphony.views.controls import RUNNING, Control, Question, ValueEntry, describe_processes

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.commands.line import Line
    from symphony.views.controls import UserAction

COMMAND = Command(changes=True, json="the statuses of the processes as JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    shared_arguments.add_processes(parser)
    parser.add_argument(
        "-s",
        "--signal",
        metavar="SIGNAL",
        required=True,
        help="name or number, such as HUP, SIGUSR1 or 10",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="send the signal even if no program of a process handles it and it ends them",
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Send a signal to running processes.

    A PROCESS can be a group, a replicated process or a pattern, as for ps. Without one, all
    processes receive the signal. No signal is sent if one of the processes is not running.
    The programs that handle the signal receive it, also behind a shell or a starter such as
    xargs. A program that handles it passes it on to its own child processes if it wants to. If
    no program of a process handles a signal that would end it, the command is refused unless
    --force is given. If a process exits because of the signal, the restart policy applies.

    For example:
      symphony signal rl learner --signal HUP
      symphony signal rl agent -s USR1
    """
    from symphony.support.signal_names import find_signal

    found = find_signal(args.signal)
    return control(
        line,
        args,
        (f"send {found.name} to", f"sending {found.name} to", f"sent {found.name} to"),
        lambda experiment, names: line.cluster.signal_processes(
            experiment, names, int(found), force=args.force
        ),
    )


# The signals that the page offers.
_CHOICES = ("HUP", "INT", "TERM", "USR1", "USR2", "QUIT", "CONT", "STOP", "KILL")


def _parse_signal(text: str) -> str:
    from symphony.support.signal_names import find_signal

    return find_signal(text).name


def _signal(cluster: Cluster, request: UserAction) -> str:
    experiment = request.experiment
    signaled = cluster.signal_processes(experiment, request.selection, request.value)
    return f"sent {request.value} to {describe_processes(experiment, signaled)}"


CONTROL = Control(
    key="k",
    help="send a signal",
    effective_for=RUNNING,
    entry=ValueEntry(
        title="Signal for {target}:",
        label="Signal",
        default="TERM",
        hint="a name or a number, such as HUP, SIGUSR1 or 10",
        parse=_parse_signal,
        choices={name: f"SIG{name}" for name in _CHOICES},
    ),
    question=lambda request: Question(
        f"Send {request.value} to {request.target}?", f"Send {request.value}"
    ),
    perform=_signal,
)
