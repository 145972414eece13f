"""``visit``: show the addresses of exposed services."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.forwarding import end_as_interrupt, keep_open, report_error
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.exit_codes import OK
from symphony.commandline.output.terminal import print_note, print_text
from symphony.commandline.output.views import align_pairs
from symphony.commandline.parsing.command import DEFAULT_DRY_RUN, Command
from symphony.errors import NotFound

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(
    dry_run=DEFAULT_DRY_RUN, aliases=("url", "open"), no_tool="it forwards ports until Ctrl-C"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    parser.add_argument(
        "service",
        metavar="SERVICE",
        nargs="?",
        help="an exposed service (default: all exposed services)",
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Print the URL of an exposed service, or the names and URLs of all exposed services.

    If a service cannot be reached from outside the cluster, the command forwards a local port
    to it until Ctrl-C.

    For example:
      symphony visit rl
      symphony visit rl tensorboard
    """
    status = find_experiment(line, args)
    services = [args.service] if args.service else _all_exposed(line, status.name)
    if args.dry_run:
        from symphony.commandline.output import dry_run

        for service in services:
            print_note(dry_run.preview_visit(line.cluster, status, service))
        return OK
    with end_as_interrupt(), contextlib.ExitStack() as stack:
        tunnels = {
            service: stack.enter_context(
                line.cluster.visit(status.name, service, on_error=report_error)
            )
            for service in services
        }
        urls = {service: f"http://{tunnel.address}" for service, tunnel in tunnels.items()}
        lines = list(urls.values()) if args.service else align_pairs(urls.items())
        is_forwarded = any(tunnel.forwarded for tunnel in tunnels.values())
        text = "\n".join(shown.strip() for shown in lines)
        if is_forwarded:
            return keep_open(text)
        print_text(text)
        return OK


def _all_exposed(line: Line, experiment: str) -> list[str]:
    """Return the names of all exposed services. Raises `NotFound` if there are none."""
    services = list(line.cluster.exposed_services(experiment))
    if not services:
        raise NotFound(
            f"experiment {experiment!r} exposes no service; expose one with: "
            "exposes: {NAME: PORT}"
        )
    return services
