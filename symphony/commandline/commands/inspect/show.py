"""``show``: show the record of a run."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.find_run import find_run
from symphony.commandline.exit_codes import OK
from symphony.commandline.output.terminal import print_coloured, print_note, print_text
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.archive.archived_usage import Summary
    from symphony.commandline.commands.line import Line

COMMAND = Command(json="JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_run(parser)
    shared_arguments.add_show_secrets(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Show the record of a run.

    RUN is the identifier of a run, the beginning of one, or an experiment name, which means the
    newest run of the experiment.

    For example:
      symphony show rl-20261122-093011-7f3a
      symphony show rl --json | jq .definition
    """
    from symphony.archive.code_archives import SNAPSHOTS_KEY, read_snapshots
    from symphony.archive.code_state import read_code
    from symphony.archive.run_record import record_without_secrets
    from symphony.cluster.run_results import displayed_result, find_run_status, find_run_usage
    from symphony.commandline.output import run_lines
    from symphony.commandline.output.printing import show_json, table_lines
    from symphony.commandline.output.views import PROCESS_COLUMNS, process_row

    run = find_run(line, args.run)
    record = run.load_record()
    if not args.show_secrets:
        record = record_without_secrets(record)
    code = read_code(run.path)
    snapshots = read_snapshots(run.path)
    status = find_run_status(line.cluster, run)
    usage = find_run_usage(line.cluster, run).summary
    result = displayed_result(run, status)
    if args.json:
        described = None if status is None else status.to_dict()
        taken = {name: snapshot.to_dict() for name, snapshot in snapshots.items()}
        data = {**record, **result, "code": code, SNAPSHOTS_KEY: taken, "status": described}
        show_json({**data, "usage": _usage_dict(usage)})
        return OK
    now = time.time()
    print_text("\n".join(run_lines.description_lines(run, record, result, code, snapshots, now)))
    if status is None:
        print_note(f"the status of {run.name} is unknown")
        return OK
    rows = [process_row(process, status.now()) for process in status]
    print_text("")
    print_coloured(table_lines(PROCESS_COLUMNS, rows))
    if usage:
        from symphony.commandline.output.usage_columns import summary_table

        print_text("\nmean and peak of the recorded resource use:")
        print_coloured(table_lines(*summary_table(usage)))
    return OK


def _usage_dict(summary: Summary) -> dict[str, Any]:
    result = {}
    for process, values in summary.items():
        result[process] = {name: item.to_dict() for name, item in values.items()}
    return result
