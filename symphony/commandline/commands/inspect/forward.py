"""``forward``: forward a local port to a process or a service."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.forwarding import end_as_interrupt, keep_open, report_error
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note, print_text
from symphony.commandline.parsing.command import DEFAULT_DRY_RUN, Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(dry_run=DEFAULT_DRY_RUN, no_tool="it forwards a port until Ctrl-C")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    parser.add_argument("target", metavar="PROCESS", help="a process or a service")
    parser.add_argument(
        "ports",
        metavar="PORT[:LOCAL]",
        nargs="?",
        help="the process's port, and the local port (default: any free port)",
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Forward a local port to a process or a service until Ctrl-C.

    Only programs on this machine can connect to the local port. For a service, PORT may be
    omitted: the default is the service's port. Forwarding continues when the process restarts.

    On local and tmux, every port is a port of this machine already, so the command prints the
    address and exits. With a LOCAL port, it relays connections until Ctrl-C.

    For example:
      symphony forward rl db 5432
      symphony forward rl tensorboard 6006:8080
    """
    status = find_experiment(line, args)
    port, local_port = _parse_ports(args.ports)
    if args.dry_run:
        from symphony.commandline.output import dry_run

        print_note(dry_run.preview_forward(line.cluster, status, args.target, port, local_port))
        return OK
    with (
        end_as_interrupt(),
        line.cluster.port_forward(
            status.name, args.target, port, local_port=local_port, on_error=report_error
        ) as tunnel,
    ):
        if not tunnel.forwarded:
            print_text(tunnel.address)
            return OK
        return keep_open(tunnel.address)


def _parse_ports(text: str | None) -> tuple[int | None, int | None]:
    """Parse ``5432`` or ``5432:8080``, and return the remote and the local port.

    A missing port is None. Raises `UsageError` if a port is not a number.
    """
    if text is None:
        return None, None
    port, colon, local_port = text.partition(":")
    if not port.isdecimal() or (colon and not local_port.isdecimal()):
        raise UsageError(f"a port must be a number, or PORT:LOCAL, not {text!r}")
    return int(port), int(local_port) if colon else None
