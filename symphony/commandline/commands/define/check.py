"""``check``: check an experiment file."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.experiment_file.chosen_file import choose_file
from symphony.commandline.output.terminal import print_coloured, print_note
from symphony.commandline.parsing.backend_options import TARGET_OPTION
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.commands.line import Line

COMMAND = Command(aliases=("validate",), json="the findings as JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_file(parser)
    parser.add_argument(
        TARGET_OPTION,
        metavar="BACKEND",
        action="append",
        default=[],
        help="backend to check for, or all; repeatable "
        "(default: the backend on which launch would run the experiment)",
    )
    parser.add_argument("--offline", action="store_true", help="do not query any cluster")
    parser.add_argument(
        "--strict", action="store_true", help="exit with code 1 if there are warnings"
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Check an experiment file for problems without launching it.

    The command reports what concerns one backend: the one on which launch would run the
    experiment, or those of --target. It reports all problems at once: missing images, paths and
    addresses that exist only on this machine, services that no process binds or to which no
    process connects, environments that are close to the size limit, GPUs that no node provides,
    and everything that a backend rejects. Each finding is printed on one line, with its
    position in the file and a suggested fix. Nothing is launched, and a cluster is queried only
    for its nodes. With -b slurm, a short job checks whether idle nodes can run symphony. The
    options of a backend are available with -b, and with --target if it names one backend.

    The exit code is 1 if there are errors or, with --strict, warnings. Otherwise, it is 0.

    For example:
      symphony check rl.yml
      symphony check rl.yml --target kube,slurm
      symphony check rl.yml --target slurm --partition gpu
      symphony check rl.yml -b kube -n team-a --image rl:1
      symphony check experiment.py --strict --json
    """
    from pathlib import Path

    from symphony.commandline.commands.check_report import CheckReport
    from symphony.commandline.commands.experiment_file.experiment_files import load_with_errors

    backends = [name for option in args.target for name in option.split(",") if name]
    # Checks that run programs on the nodes are only for backends that the user has named.
    is_thorough = bool(backends or args.backend)
    if args.backend or not backends:
        backends.insert(0, _chosen_backend(line))
    choose_file(line, args)
    report = CheckReport(
        Path(args.file), backends, partial(_cluster_for, line), is_thorough=is_thorough
    )
    parameters = dict(args.parameters)
    report.collect(
        lambda: load_with_errors(
            line.cluster, Path(args.file), args.name, parameters, copy=args.copy
        ),
        offline=args.offline,
    )
    if args.json:
        from symphony.commandline.output.printing import show_json

        show_json(report.to_dict())
    else:
        lines = report.lines()
        if lines:
            print_coloured(lines)
        print_note(report.summary())
    return report.exit_code(strict=args.strict)


def _chosen_backend(line: Line) -> str:
    """Return the name of the backend on which ``launch`` would run the experiment."""
    from symphony.cluster.plugins import find_backend

    if line.has_custom_cluster:
        return line.cluster.backend
    return find_backend(line.backend_name).name


def _cluster_for(line: Line, backend: str) -> Cluster:
    """Return a cluster for ``backend``.

    If the command line selects this backend, the backend options on the command line apply.
    """
    from symphony.cluster import Cluster
    from symphony.cluster.plugins import find_backend

    if _chosen_backend(line) == find_backend(backend).name:
        return line.cluster
    return Cluster.new(backend)
