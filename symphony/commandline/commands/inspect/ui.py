"""``ui``: show experiments in the browser."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.resolve_names import resolve_experiment
from symphony.commandline.exit_codes import INTERRUPTED, OK
from symphony.commandline.output.terminal import print_note, print_text
from symphony.commandline.parsing.arguments import parse_count
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.cluster import Cluster, WatchedStatuses
    from symphony.commandline.commands.line import Line
    from symphony.views.web.server import WebServer

COMMAND = Command(
    aliases=("dashboard",), json="the address as JSON", no_tool="it serves a page until Ctrl-C"
)

MAX_PORT = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment_name(parser, required=False)
    parser.add_argument(
        "--port",
        metavar="PORT",
        type=_parse_port,
        default=0,
        help="listen on this port of 127.0.0.1 (default: any free port)",
    )
    parser.add_argument(
        "--read-only", action="store_true", help="offer no controls, and refuse them"
    )
    parser.add_argument(
        "--no-open", action="store_true", help="do not open the browser, only print the address"
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Show experiments in the browser: states, logs, events, resources and runs.

    The page shows the topology of an experiment, follows its logs, and has controls for its
    processes. It is served on 127.0.0.1 until Ctrl-C; experiments keep running. The address
    that the command prints contains a secret token, so keep it to yourself. On a machine that
    you use over ssh, the command also prints how to forward the port.

    For example:
      symphony ui
      symphony ui rl --port 8123
      symphony ui --read-only --no-open
    """
    from symphony.commandline.commands.forwarding import end_as_interrupt
    from symphony.commandline.commands.table import TABLE

    try:
        import symphony.views.web.server as web
    except ModuleNotFoundError as exc:
        raise _missing_library(exc) from exc
    start = _first_view(line, args.experiment)
    server = web.WebServer(
        partial(_cluster_of, line),
        partial(_watch_list, line),
        TABLE.controls,
        port=args.port,
        read_only=args.read_only,
        start=start,
    )
    if args.dry_run:
        print_note(f"would serve the page on {web.HOST}:{server.access.port}")
        return OK
    with contextlib.ExitStack() as stack:
        stack.enter_context(end_as_interrupt())
        try:
            server.run(lambda: _report_address(args, server, stack))
        except KeyboardInterrupt:
            # Ctrl-C is the usual way to stop the server.
            return INTERRUPTED
    return OK


def _first_view(line: Line, given: str | None) -> str:
    """Return the fragment of the address that shows an experiment."""
    if given is None:
        return ""
    status = resolve_experiment(line.cluster, given, exact=COMMAND.changes)
    return f"/experiment/{quote(status.backend, safe='')}/{quote(status.name, safe='')}"


def _report_address(
    args: argparse.Namespace, server: WebServer, stack: contextlib.ExitStack
) -> None:
    """Print the address, and open it in the browser of the user."""
    import os
    import platform

    import symphony.views.web.server as web
    from symphony.views.browser import has_display

    access = server.access
    tunnel = web.tunnel_command(os.environ, access.port, platform.node())
    if args.json:
        data = {"address": access.address, "port": access.port, "tunnel": tunnel}
        print_text(json.dumps(data), flush=True)
    else:
        print_text(access.address, flush=True)
    if tunnel is not None:
        print_note(f"on your machine, run: {tunnel}")
    print_note("serving the page; press Ctrl-C to stop")
    if not args.no_open and not args.json and has_display(os.environ):
        stack.enter_context(web.opened_in_browser(access.address))


def _cluster_of(line: Line, backend: str) -> Cluster:
    """Return the cluster of a backend, or the selected one if ``backend`` is empty."""
    from symphony.commandline.commands.lookup.find_backend import cluster_of

    selected = line.selected_cluster
    return cluster_of(backend, selected) if backend else selected


@contextlib.contextmanager
def _watch_list(line: Line) -> Iterator[Callable[[], WatchedStatuses]]:
    """Return a context with a function that reads the statuses of all experiments.

    The problems of a reading are its outage.
    """
    from symphony.cluster import WatchedStatuses
    from symphony.commandline.commands.lookup.list_experiments import Listing

    reports: dict[str, None] = {}
    listing = Listing(
        line.prog,
        line.selected_cluster,
        only_selected=line.names_backend,
        report=lambda text: reports.update({text: None}),
    )
    with listing.watching() as read_all:

        def read() -> WatchedStatuses:
            reports.clear()
            watched = read_all()
            outages = [*filter(None, [watched.outage]), *reports]
            return WatchedStatuses(watched.statuses, "; ".join(outages))

        yield read


def _parse_port(text: str) -> int:
    port = parse_count(text)
    if port > MAX_PORT:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_PORT}, not {text!r}")
    return port


def _missing_library(error: ModuleNotFoundError) -> Exception:
    """Return the error for a library of the extra that is not installed."""
    from symphony.errors import PluginError
    from symphony.support.install_hints import install_command

    return PluginError(
        f"'symphony ui' needs the package {error.name!r}; install it with: {install_command('ui')}"
    )
