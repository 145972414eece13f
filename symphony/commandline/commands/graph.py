"""The command that draws an experiment: ``graph``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands.base_commands import BaseCommands
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note

if TYPE_CHECKING:
    from symphony.status import ExperimentStatus


class GraphCommands(BaseCommands):
    """The ``graph`` command."""

    def _add_graph(self) -> None:
        from symphony.commandline.output.graph_drawing import GRAPH_FORMATS

        parser = self.add_subparser("graph")
        self._add_file(
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
        self._add_run_option(parser)
        self._add_client_dry_run(parser, "with --output, do not write the file")
        self._add_json(parser, "the topology as JSON")

    def action_graph(self, args: argparse.Namespace) -> int | None:
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
        self._use_run(args, "file")
        if not args.run:
            self._choose_file(args)
        if not args.run and graph_drawing.names_a_file(args.file):
            drawn = topology(self._load_experiment(args))
            status = None
            if not args.no_states:
                status = graph_drawing.find_experiment_status(self.cluster, drawn.experiment)
        else:
            if not args.run:
                self.cluster = self.cluster_with(args.file)
            status = self._launched_experiment(args)
            drawn = graph_drawing.find_topology(self.cluster, status)
        if args.dry_run and graph_drawing.writes_a_file(args.output):
            print_note(f"would write {args.output} as {form}")
            return OK
        return graph_drawing.show_graph(
            drawn, status, form=form, output=args.output, every=args.all
        )

    def _launched_experiment(self, args: argparse.Namespace) -> ExperimentStatus:
        """Return the status of the experiment that ``args.file`` names.

        Raises `NotFound` if the experiment does not exist. If an experiment file with that name
        exists, the error message suggests the file.
        """
        from pathlib import Path

        from symphony.commandline.commands.experiment_files import SUFFIXES
        from symphony.errors import NotFound

        if args.name or args.no_states:
            option = "--name" if args.name else "--no-states"
            raise UsageError(
                f"{option} requires an experiment file, but {args.file!r} is an experiment name"
            )
        try:
            return self._resolve_experiment(args.file)
        except NotFound as exc:
            candidates = [f"{args.file}{suffix}" for suffix in SUFFIXES]
            files = [candidate for candidate in candidates if Path(candidate).is_file()]
            hint = f"; to draw the file, run: {self.prog} graph {files[0]}" if files else ""
            raise NotFound(f"{exc}{hint}") from exc
