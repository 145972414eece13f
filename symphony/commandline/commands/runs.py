"""The commands that read, compare, repeat and remove the records of runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symphony.commandline.commands.base_commands import BaseCommands
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_coloured, print_note, print_text
from symphony.commandline.parsing.arguments import parse_count, parse_seconds
from symphony.errors import NotFound, SymphonyError

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.archive.usage import Summary
    from symphony.model import Experiment

DEFAULT_HISTORY_LENGTH = 20


class RunsCommands(BaseCommands):
    """The ``history``, ``show``, ``compare``, ``rerun`` and ``prune`` commands."""

    def _add_history(self) -> None:
        parser = self.add_subparser("history")
        self._add_hidden_dry_run(parser)
        parser.add_argument(
            "experiments", metavar="EXPERIMENT", nargs="*", help="show only runs of these"
        )
        parser.add_argument(
            "--number",
            metavar="N",
            type=parse_count,
            default=DEFAULT_HISTORY_LENGTH,
            help=f"show at most the N newest runs (default: {DEFAULT_HISTORY_LENGTH}; 0: all)",
        )
        self._add_json(parser)

    def action_history(self, args: argparse.Namespace) -> int | None:
        """List the runs of experiments, the newest first.

        Every launch is a run. The record of a run remains when the experiment is deleted or
        replaced. CODE is the Git commit of the working directory, and + means uncommitted changes.

        For example:
          symphony history
          symphony history rl --number 5
          symphony history --json | jq '.[0].run'
        """
        from symphony.cluster.run_results import displayed_results
        from symphony.commandline.output import runs
        from symphony.commandline.output.printing import show_json, table_lines

        found = self.cluster.list_runs()
        if args.experiments:
            found = [run for run in found if run.experiment in args.experiments]
        shown = found[: args.number or None]
        statuses = displayed_results(self.cluster, shown, on_unreachable=_report_unreachable)
        if args.json:
            show_json(statuses)
            return OK
        now = time.time()
        print_coloured(table_lines(*runs.history_table(shown, statuses, now)))
        if len(shown) < len(found):
            print_note(f"{len(found) - len(shown)} older runs are not shown; --number 0 shows all")
        return OK

    def _add_show(self) -> None:
        parser = self.add_subparser("show")
        self._add_hidden_dry_run(parser)
        self._add_run(parser)
        self._add_show_secrets(parser)
        self._add_json(parser)

    def action_show(self, args: argparse.Namespace) -> int | None:
        """Show the record of a run.

        RUN is the identifier of a run, the beginning of one, or an experiment name, which means the
        newest run of the experiment.

        For example:
          symphony show rl-20261122-093011-7f3a
          symphony show rl --json | jq .definition
        """
        from symphony.archive.code_archives import SNAPSHOTS_KEY, read_snapshots
        from symphony.archive.code_state import read_code
        from symphony.archive.record import record_without_secrets
        from symphony.cluster.run_results import displayed_result, find_run_status, find_run_usage
        from symphony.commandline.output import runs
        from symphony.commandline.output.printing import show_json, table_lines
        from symphony.commandline.output.views import PROCESS_COLUMNS, process_row

        run = self._find_run(args.run)
        record = run.load_record()
        if not args.show_secrets:
            record = record_without_secrets(record)
        code = read_code(run.path)
        snapshots = read_snapshots(run.path)
        status = find_run_status(self.cluster, run)
        usage = find_run_usage(self.cluster, run).summary
        result = displayed_result(run, status)
        if args.json:
            described = None if status is None else status.to_dict()
            taken = {name: snapshot.to_dict() for name, snapshot in snapshots.items()}
            data = {**record, **result, "code": code, SNAPSHOTS_KEY: taken, "status": described}
            show_json({**data, "usage": _usage_dict(usage)})
            return OK
        now = time.time()
        print_text("\n".join(runs.description_lines(run, record, result, code, snapshots, now)))
        if status is None:
            print_note(f"the status of {run.name} is unknown")
            return OK
        rows = [process_row(process, status.now()) for process in status]
        print_text("")
        print_coloured(table_lines(PROCESS_COLUMNS, rows))
        if usage:
            from symphony.commandline.output.usage import summary_table

            print_text("\nmean and peak of the recorded resource use:")
            print_coloured(table_lines(*summary_table(usage)))
        return OK

    def _add_compare(self) -> None:
        parser = self.add_subparser("compare")
        self._add_hidden_dry_run(parser)
        self._add_run(parser, dest="first")
        self._add_run(parser, dest="second")
        self._add_show_secrets(parser)
        self._add_json(parser)

    def action_compare(self, args: argparse.Namespace) -> int | None:
        """Show how two runs differ: the experiment, the code, the versions, the results and the
        recorded resource use.

        For example:
          symphony compare rl-20261122-093011-7f3a rl
        """
        from symphony.archive.differences import find_differences, without_secrets
        from symphony.cluster.run_results import comparable_values, hidden_values
        from symphony.commandline.output import runs
        from symphony.commandline.output.printing import show_json, table_lines

        both = [self._find_run(given) for given in (args.first, args.second)]
        contents = [comparable_values(self.cluster, run) for run in both]
        differences = find_differences(*contents)
        if not args.show_secrets:
            differences = without_secrets(differences, hidden_values(both))
        if args.json:
            show_json({key: list(values) for key, values in differences.items()})
            return OK
        if not differences:
            print_note("the runs do not differ")
            return OK
        rows = [[key, *map(runs.short_text, values)] for key, values in differences.items()]
        print_coloured(table_lines(runs.comparison_columns(both), rows))
        return OK

    def _add_rerun(self) -> None:
        parser = self.add_subparser("rerun")
        self._add_run(parser)
        parser.add_argument("--name", metavar="NAME", help="the name of the new experiment")
        parser.add_argument(
            "--force", action="store_true", help="replace a running experiment of the same name"
        )
        parser.add_argument(
            "--code", action="store_true", help="run the recorded code, not the present one"
        )
        self.add_dry_run(parser)
        self._add_json(parser, "the manifest as JSON")

    def action_rerun(self, args: argparse.Namespace) -> int | None:
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

        run = self._find_run(args.run)
        experiment = _load_definition(run, args.name, with_code=args.code)
        if run.backend:
            selected = self.cluster if self.args.backend else None
            self.cluster = cluster_for_rerun(run, selected)
        if args.dry_run:
            self._show_dry_run(experiment, args)
            return OK
        manifest = foreground.launch_with_progress(self.cluster, experiment, force=args.force)
        if args.json:
            show_json(manifest.to_dict())
            return OK
        summary = foreground.launch_summary(self.cluster, experiment)
        lines = [summary, *self._address_lines(experiment), *self._next_commands(experiment.name)]
        print_text("\n".join(lines), flush=True)
        return OK

    def _add_prune(self) -> None:
        parser = self.add_subparser("prune")
        parser.add_argument(
            "--keep",
            metavar="N",
            type=parse_count,
            help="keep at most the N newest runs (default: the configured limits, or 100 runs)",
        )
        parser.add_argument(
            "--older-than",
            metavar="TIME",
            type=parse_seconds,
            help="remove runs that were launched longer ago than this, such as 30d",
        )
        parser.add_argument(
            "--max-size",
            metavar="SIZE",
            type=_parse_size,
            help="keep the newest runs that use at most this space together, such as 10Gi",
        )
        self._add_client_dry_run(parser)
        self._add_json(parser, "the identifiers of the removed runs as JSON")

    def action_prune(self, args: argparse.Namespace) -> int | None:
        """Remove the records of old runs.

        The runs of experiments that have not been deleted are always kept. After each deletion,
        symphony itself removes the records beyond the newest 100 and beyond 10 GiB, unless the
        configuration sets other limits in `runs`. Without a limit, this command applies the same
        limits.

        For example:
          symphony prune --keep 20 --older-than 30d --max-size 10Gi
          symphony prune --keep 0 --dry-run
        """
        from symphony.archive import archive
        from symphony.commandline.output.printing import show_json

        retention = archive.configured_retention(self.cluster.configuration.get("runs", {}))
        limits = (args.keep, args.older_than, args.max_size)
        if limits != (None, None, None):
            retention = archive.Retention(
                keep=args.keep, max_age_seconds=args.older_than, max_bytes=args.max_size
            )
        archived = [run for run in self.cluster.list_runs() if run.is_archived]
        removed = archive.outdated(archived, retention, time.time())
        if not args.dry_run:
            for run in removed:
                archive.remove(run)
        if args.json:
            show_json([run.name for run in removed])
            return OK
        size = sum(run.size_bytes for run in removed) / 2**20
        verb = "would remove" if args.dry_run else "removed"
        if args.dry_run:
            for run in removed:
                print_text(run.name)
        print_note(f"{verb} {len(removed)} of {len(archived)} archived runs ({size:.1f} MiB)")
        return OK

    def _add_run(self, parser: argparse.ArgumentParser, dest: str = "run") -> None:
        """Add a positional argument that sets ``dest`` to the name of a run."""
        parser.add_argument(
            dest, metavar="RUN", help="run, the beginning of its identifier, or an experiment"
        )


def _report_unreachable(backend: str, error: SymphonyError) -> None:
    print_note(f"the states of runs on {backend} are unknown: {error}")


def _usage_dict(summary: Summary) -> dict[str, Any]:
    return {
        process: {name: item.to_dict() for name, item in values.items()}
        for process, values in summary.items()
    }


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


def _parse_size(text: str) -> int:
    """Parse a size such as ``10Gi``. Raises `UsageError` if ``text`` is not a size."""
    from symphony.errors import SpecError
    from symphony.model.settings.quantities import parse_quantity

    try:
        return int(parse_quantity(text, "a size"))
    except SpecError as exc:
        raise UsageError(str(exc)) from None
