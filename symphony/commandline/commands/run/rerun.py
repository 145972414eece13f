"""``rerun``: launch the experiment of an earlier run again."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.find_run import find_run
from symphony.commandline.commands.next_steps import address_lines, next_commands
from symphony.commandline.commands.show_manifest import show_dry_run
from symphony.commandline.exit_codes import OK
from symphony.commandline.output.terminal import print_text
from symphony.commandline.parsing.command import Command
from symphony.errors import NotFound

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.commandline.commands.line import Line
    from symphony.model import Experiment

COMMAND = Command(changes=True, json="the manifest as JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_run(parser)
    parser.add_argument("--name", metavar="NAME", help="the name of the new experiment")
    parser.add_argument(
        "--force", action="store_true", help="replace a running experiment of the same name"
    )
    shared_arguments.add_queue(parser)
    parser.add_argument(
        "--code", action="store_true", help="run the recorded code, not the present one"
    )
    shared_arguments.add_dry_run(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Launch the experiment of an earlier run again, with the same parameters.

    The experiment is launched on the backend of that run unless -b names another one. The
    programs are those that exist now; `show` reports which code the earlier run used. With
    --code, each process runs from a copy of the code that it had in that run, if the experiment
    declares its code.

    For example:
      symphony rerun rl
      symphony rerun rl --code
      symphony rerun rl-20261122-093011-7f3a --name rl-again
    """
    from symphony.cluster.run_results import cluster_for_rerun
    from symphony.commandline.commands import foreground
    from symphony.commandline.output.printing import show_json

    run = find_run(line, args.run)
    experiment = _load_definition(run, args.name, with_code=args.code)
    if run.backend:
        selected = line.cluster if line.args.backend else None
        line.cluster = cluster_for_rerun(run, selected)
    if args.dry_run:
        show_dry_run(line, experiment, args)
        return OK
    manifest = foreground.launch_with_progress(
        line.cluster, experiment, force=args.force, queue=args.queue
    )
    if args.json:
        show_json(manifest.to_dict())
        return OK
    summary = foreground.launch_summary(line.cluster, experiment)
    lines = [summary, *address_lines(line, experiment), *next_commands(line, experiment.name)]
    print_text("\n".join(lines), flush=True)
    return OK


def _load_definition(run: Run, name: str | None, *, with_code: bool) -> Experiment:
    """Return the experiment that a run has launched. ``name`` replaces its name.

    With ``with_code``, the processes have the code that they had in that run.
    """
    from symphony.cluster.described import without_debugger
    from symphony.model import Experiment
    from symphony.model.experiment.given_options import GivenOptions

    record = run.load_record()
    if not record.get("definition"):
        raise NotFound(
            f"the definition of run {run.name!r} is not recorded on this machine, because it was "
            "launched on another machine; launch its file"
        )
    definition = dict(record["definition"])
    if name is not None:
        definition["name"] = name
    if with_code:
        definition["processes"] = _with_recorded_code(run, definition["processes"])
    experiment = without_debugger(Experiment.load_dict(definition))
    experiment.given = GivenOptions.from_dict(record.get("given"))
    experiment.base_dir = record.get("base_directory")
    experiment.file = record.get("file")
    return experiment


def _with_recorded_code(run: Run, processes: Mapping[str, Any]) -> dict[str, Any]:
    """Return descriptions of processes and groups with the recorded code of each process.

    Raises `NotFound` if the run has no code, or its archive is missing.
    """
    from symphony.archive.code_archives import archive_path, read_snapshots

    snapshots = read_snapshots(run.path)
    if not snapshots:
        raise NotFound(
            f"run {run.name!r} has no snapshot of its code; set code in the experiment file, so "
            "that later runs have one"
        )
    paths = {name: archive_path(run.path, snapshot) for name, snapshot in snapshots.items()}
    for path in paths.values():
        if not path.exists():
            raise NotFound(f"the code of run {run.name!r} is not recorded: there is no {path}")

    def with_code(described: Mapping[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, description in described.items():
            if "processes" in description:
                members = with_code(description["processes"])
                result[name] = {**description, "processes": members}
            else:
                code = str(paths[name].absolute()) if name in paths else False
                result[name] = {**description, "code": code}
        return result

    return with_code(processes)
