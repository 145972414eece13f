"""The verbs that look at a description without launching it: graph, check."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands.launch import LaunchVerbs
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.status import ExperimentStatus


class GraphVerbs(LaunchVerbs):
    """graph, check."""

    def _add_check(self) -> None:
        parser = self.add_subparser("check")
        self._add_file(parser)
        parser.add_argument(
            "--target",
            metavar="BACKEND",
            action="append",
            default=[],
            help="a backend to run on, or all; repeatable (default: that of -b, else all that are installed)",
        )
        parser.add_argument("--offline", action="store_true", help="ask no cluster")
        self._accept_dry_run(parser)
        parser.add_argument("--strict", action="store_true", help="exit with 1 for warnings too")
        self._add_json(parser, "the findings as JSON")

    def action_check(self, args: argparse.Namespace) -> int | None:
        """Tell what would keep an experiment from running on a backend, all of it at once.

        Looks for missing images, paths and addresses of this machine, services that nobody binds or connects to,
        an environment near the size that fits, GPUs that no node has, and whatever the backend refuses. One line
        for each finding says where it is and how to mend it. Nothing is launched; a cluster is asked for its GPUs
        alone.

        Exits with 1 where there are errors, else with 0.

        For example:
          symphony check rl.yml --target kube
          symphony check rl.yml -b kube -n team-a --image rl:1
          symphony check experiment.py --strict --json
        """
        from pathlib import Path

        from symphony.commandline.commands.check import Checking

        asked = [name for given in args.target for name in given.split(",") if name]
        if not asked and args.backend:
            asked = [args.backend]
        checking = Checking(Path(args.file), asked, self._cluster_of)
        checking.run(lambda: self._load(args), offline=args.offline)
        if args.json:
            from symphony.commandline.output.printing import show_json

            show_json(checking.to_dict())
        else:
            for line in checking.lines():
                print(line)
            print_note(checking.summary())
        return checking.exit_code(strict=args.strict)

    def _cluster_of(self, backend: str) -> Cluster:
        """The cluster of a backend: that of this command line, with its options, where it is on that one."""
        from symphony.cluster import Cluster
        from symphony.cluster.plugins import find_backend

        own = (
            self.cluster.backend
            if self.has_custom_cluster
            else find_backend(self.backend_name).name
        )
        return self.cluster if own == find_backend(backend).name else Cluster.new(backend)

    def _add_graph(self) -> None:
        from symphony.commandline.output.graph_drawing import GRAPH_FORMATS

        parser = self.add_subparser("graph")
        self._add_file(parser)
        file = next(action for action in parser._actions if action.dest == "file")
        file.metavar, file.help = "FILE|EXPERIMENT", "a file, or the name of a running experiment"
        parser.add_argument(
            "-o",
            "--output",
            metavar="FILE",
            help="write to a file: .svg, .mmd, .dot, .txt or .json",
        )
        parser.add_argument(
            "--format", metavar="FORM", choices=GRAPH_FORMATS, help=", ".join(GRAPH_FORMATS)
        )
        parser.add_argument(
            "--all", action="store_true", help="draw each process, however many are alike"
        )
        parser.add_argument(
            "--no-states", action="store_true", help="draw the file alone; ask no backend"
        )
        parser.add_argument("--dry-run", action="store_true", help="with --output: write nothing")
        self._add_json(parser, "the topology as JSON")

    def action_graph(self, args: argparse.Namespace) -> int | None:
        """Draw an experiment: its processes and groups, and the services that join them.

        Of a file what it describes is drawn, with the state of each process where an experiment of that name runs.
        Of a name what runs is drawn as it was launched, with the ports that are in use. Processes that are alike
        are drawn as one.

        An arrow leads from who connects to the service and on to who binds it, a dashed one to what is waited for.

        For example:
          symphony graph rl.yml
          symphony graph rl.yml -o topology.svg
          symphony graph rl.yml --format mermaid
          symphony graph rl
        """
        from symphony.commandline.output import graph_drawing
        from symphony.plan.topology import topology

        form = graph_drawing.choose_format(args.format, args.json, args.output)
        if graph_drawing.names_a_file(args.file):
            drawn = topology(self._load(args))
            status = (
                None
                if args.no_states
                else graph_drawing.find_experiment_status(self.cluster, drawn.experiment)
            )
        else:
            status = self._running(args)
            drawn = graph_drawing.find_topology(self.cluster, status)
        if args.dry_run and graph_drawing.writes_a_file(args.output):
            print_note(f"would write {args.output}, as {form}")
            return OK
        return graph_drawing.show_graph(
            drawn, status, form=form, output=args.output, every=args.all
        )

    def _running(self, args: argparse.Namespace) -> ExperimentStatus:
        """The running experiment that was named; where there is none but a file, the error says so."""
        from pathlib import Path

        from symphony.commandline.commands.experiment_files import SUFFIXES
        from symphony.commandline.commands.names import experiment
        from symphony.errors import NotFound

        if args.name or args.no_states:
            option = "--name" if args.name else "--no-states"
            raise UsageError(
                f"{option} is for a file, and {args.file!r} is the name of an experiment"
            )
        try:
            return experiment(self.cluster, args.file)
        except NotFound as exc:
            files = [
                f"{args.file}{suffix}"
                for suffix in SUFFIXES
                if Path(f"{args.file}{suffix}").is_file()
            ]
            hint = f"; there is a file: {self.prog} graph {files[0]}" if files else ""
            raise NotFound(f"{exc}{hint}") from exc
