"""``top``: watch and control experiments in the terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note
from symphony.commandline.parsing.command import Command
from symphony.errors import PluginError

if TYPE_CHECKING:
    from symphony.cluster import Cluster, WatchedStatuses
    from symphony.commandline.commands.line import Line
    from symphony.commandline.top.app import TopApp

COMMAND = Command(no_tool="it needs a terminal")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Watch and control experiments in the terminal.

    Without EXPERIMENT, the command shows the experiment that was launched from this directory
    or, if there is none, the experiments of all backends, as ls does. An experiment is shown as
    a table, as a topology, and with its logs and events. Press ? for the keys, which also stop,
    start, restart, signal, scale and delete. When the command exits, the experiments keep
    running.

    Set NO_COLOR for a display without colours.

    For example:
      symphony top
      symphony top rl
      symphony top -b slurm
    """
    app_class = _load_app()
    if not args.dry_run:
        check_terminal()
    from symphony.commandline.commands.lookup import find_backend
    from symphony.commandline.commands.lookup.list_experiments import Listing
    from symphony.commandline.commands.table import TABLE

    first = _first_experiment(line, args)
    if args.dry_run:
        print_note(f"would show {'the experiments' if first is None else first[1]}")
        return OK
    selected = line.selected_cluster

    def open_watch(
        report: Callable[[str], None],
    ) -> AbstractContextManager[Callable[[], WatchedStatuses]]:
        only_selected = line.names_backend
        listing = Listing(line.prog, selected, only_selected=only_selected, report=report)
        return listing.watching()

    def find_cluster(backend: str) -> Cluster:
        return find_backend.cluster_of(backend, selected)

    app = app_class(open_watch, find_cluster, TABLE.controls, first)
    app.run()
    if app.error is not None:
        raise app.error
    return OK


def _first_experiment(line: Line, args: argparse.Namespace) -> tuple[Cluster, str] | None:
    """Return the experiment to show first, or None to show the list of all experiments."""
    from symphony.commandline.commands.lookup.this_directory import LaunchedHere

    if args.experiment is not None:
        status = find_experiment(line, args)
        return line.cluster, status.name
    try:
        launched = LaunchedHere(line.selected_cluster, only_selected=line.names_backend)
    except OSError:
        # The working directory has been removed or cannot be read.
        return None
    found = launched.find()
    return None if found is None else (found[0], found[1].name)


def check_terminal() -> None:
    """Raise `UsageError` if the command does not run in a terminal."""
    from symphony.commandline.output.terminal import is_terminal

    if not all(map(is_terminal, (sys.stdin, sys.stdout, sys.stderr))):
        raise UsageError(
            "top needs a terminal as standard input, output and error; "
            "for a table in a pipe, use: symphony ps --watch"
        )


def _load_app() -> type[TopApp]:
    """Return the application. Raises `PluginError` if its library is not installed."""
    try:
        from symphony.commandline.top.app import TopApp
    except ModuleNotFoundError as exc:
        from symphony.support.install_hints import install_command

        raise PluginError(
            f"top needs the library textual; install it with: {install_command('ui')}"
        ) from exc
    return TopApp
