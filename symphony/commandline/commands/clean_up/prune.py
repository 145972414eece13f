"""``prune``: remove the records of old runs."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note, print_text
from symphony.commandline.parsing.arguments import parse_count, parse_seconds
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(
    changes=True,
    json="the identifiers of the removed runs as JSON",
    no_tool="it removes the records of runs of all experiments",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
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


def run(args: argparse.Namespace, line: Line) -> int | None:
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

    retention = archive.configured_retention(line.cluster.configuration.get("runs", {}))
    limits = (args.keep, args.older_than, args.max_size)
    if limits != (None, None, None):
        retention = archive.Retention(
            keep=args.keep, max_age_seconds=args.older_than, max_bytes=args.max_size
        )
    archived = [run for run in line.cluster.list_runs() if run.is_archived]
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


def _parse_size(text: str) -> int:
    """Parse a size such as ``10Gi``. Raises `UsageError` if ``text`` is not a size."""
    from symphony.errors import SpecError
    from symphony.model.settings.quantities import parse_quantity

    try:
        return int(parse_quantity(text, "a size"))
    except SpecError as exc:
        raise UsageError(str(exc)) from None
