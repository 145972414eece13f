"""``graph``: draw an experiment."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.experiment_file.chosen_file import choose_file, load_experiment
from symphony.commandline.commands.lookup.find_run import use_run
from symphony.commandline.commands.lookup.resolve_names import resolve_experiment
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line
    from symphony.status import ExperimentStatus

COMMAND = Command(dry_run="with --output, do not write the file", json="the topology as JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from symphony.commandline.output.graph_drawing import GRAPH_FORMATS

    shared_arguments.add_file(
        parser,
        metavar="FILE|EXPERIMENT",
        text="an experiment file, or the name of a launched experiment",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the drawing to a .svg, .mmd, .dot, .txt or .json file",
    )
    parser.add_argument(
        "--format", metavar="FORM", choices=GRAPH_FORMATS, help=", ".join(GRAPH_FORMATS)
    )
    parser.add_argument(
        "--all", action="store_true", help="draw every process; do not merge similar ones"
    )
    parser.add_argument(
        "--no-states", action="store_true", help="do not show states or query the backend"
    )
    shared_arguments.add_run_option(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Draw the processes, groups and services of an experiment.

    If the argument is a file, the drawing shows the processes that the file describes. If the
    experiment in the file has been launched, the drawing also shows the state of each process.
    If the argument is the name of an experiment, the drawing shows the experiment as it was
    launched, with its actual ports. Similar processes are drawn as one.

    An arrow points from each client of a service to the service, and from the service to the
    process that binds it. A dashed arrow points from a process to the process that it waits
    for.

    For example:
      symphony graph rl.yml
      symphony graph rl.yml -o topology.svg
      symphony graph rl.yml --format mermaid
      symphony graph rl
    """
    from symphony.commandline.output import graph_drawing
    from symphony.plan.topology import topology

    form = graph_drawing.choose_format(args.format, args.json, args.output)
    use_run(line, args, "file")
    if not args.run:
        choose_file(line, args)
    if not args.run and graph_drawing.names_a_file(args.file):
        drawn = topology(load_experiment(line, args))
        status = None
        if not args.no_states:
            status = graph_drawing.find_experiment_status(line.cluster, drawn.experiment)
    else:
        if not args.run:
            line.cluster = line.cluster_with(args.file)
        status = _launched_experiment(line, args)
        drawn = graph_drawing.find_topology(line.cluster, status)
    if args.dry_run and graph_drawing.writes_a_file(args.output):
        print_note(f"would write {args.output} as {form}")
        return OK
    return graph_drawing.show_graph(drawn, status, form=form, output=args.output, every=args.all)


def _launched_experiment(line: Line, args: argparse.Namespace) -> ExperimentStatus:
    """Return the status of the experiment that ``args.file`` names.

    Raises `NotFound` if the experiment does not exist. If an experiment file with that name
    exists, the error message suggests the file.
    """
    from pathlib import Path

    from symphony.commandline.commands.experiment_file.experiment_files import SUFFIXES
    from symphony.errors import NotFound

    options = {"--name": args.name, "--copy": args.copy, "--no-states": args.no_states}
    given = [option for option, value in options.items() if value]
    if given:
        raise UsageError(
            f"{given[0]} requires an experiment file, but {args.file!r} is an experiment name"
        )
    try:
        return resolve_experiment(line.cluster, args.file, exact=COMMAND.changes)
    except NotFound as exc:
        candidates = [f"{args.file}{suffix}" for suffix in SUFFIXES]
        files = [candidate for candidate in candidates if Path(candidate).is_file()]
        hint = f"; to draw the file, run: {line.prog} graph {files[0]}" if files else ""
        raise NotFound(f"{exc}{hint}") from exc
