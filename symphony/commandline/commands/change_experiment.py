"""Change an experiment as a whole, and report what has changed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.commandline.commands.next_steps import address_lines
from symphony.commandline.exit_codes import FAILED, OK
from symphony.commandline.output.terminal import (
    ProgressLine,
    print_note,
    print_text,
    show_progress,
)

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.support.hidden_values import HiddenValues


def change_experiment(
    line: Line,
    experiment: Experiment,
    args: argparse.Namespace,
    *,
    start: Sequence[str] | None = None,
) -> int:
    """Show what `Cluster.up` will change, let it do so, and report the result.

    ``start`` contains the processes that are started if they have exited; None means all.
    """
    from symphony.code.take_snapshots import packing_once
    from symphony.commandline.commands.kill_report import KillReport
    from symphony.commandline.output.byte_progress import ByteProgress

    with show_progress() as shown, packing_once(ByteProgress(shown).report):
        changes = line.cluster.diff(experiment, start=start)
        shown.clear()
        if not changes.launch:
            line.cluster.check_origin(experiment)
        # After the change, the values that it has replaced are not known any more.
        hidden = values_to_hide(line, changes, experiment, args)
        if args.dry_run or changes.is_empty:
            show_changes(changes, args, hidden)
            if not args.dry_run and not args.json:
                _show_addresses(line, experiment)
            return OK
        if not args.json:
            print_text(str(_for_display(changes, hidden)).rstrip("\n"), flush=True)
        kills = KillReport(line.cluster, changes.experiment, time.time())
        changes = _make(line, changes, experiment, shown, force=args.force, start=start)
    code = _report(line, changes, experiment, args, hidden)
    if not args.json:
        kills.print_report()
    return code


def _show_addresses(line: Line, experiment: Experiment) -> None:
    lines = address_lines(line, experiment)
    if lines:
        print_text("\n".join(lines), flush=True)


def _make(
    line: Line,
    changes: Changes,
    experiment: Experiment,
    shown: ProgressLine,
    *,
    force: bool,
    start: Sequence[str] | None,
) -> Changes:
    """Make the changes, and return what was changed."""
    from symphony.commandline.output import views
    from symphony.commandline.output.pending_reasons import reporting_progress

    name = changes.experiment
    action = "launching" if changes.launch else "changing"
    shown.update(f"{action} {name}")
    try:
        with reporting_progress(
            shown, lambda status: f"{action} {views.startup_line(status)}"
        ) as on_change:
            return line.cluster.up(experiment, force=force, on_change=on_change, start=start)
    except KeyboardInterrupt:
        print_note(
            f"{line.prog}: {name!r} has its previous or its new description; run the command "
            "again to complete the change"
        )
        raise


def _report(
    line: Line,
    changes: Changes,
    experiment: Experiment,
    args: argparse.Namespace,
    hidden: HiddenValues | None,
) -> int:
    """Report what was changed, and return the exit code."""
    from symphony.commandline.output import views
    from symphony.commandline.parsing import completion_cache

    completion_cache.clear_cached_names()
    name = changes.experiment
    if args.json:
        show_changes(changes, args, hidden)
    else:
        done = "launched" if changes.launch or changes.relaunch else "changed"
        print_text(f"{done} {name} on {changes.backend}: {changes.summary}", flush=True)
        _show_addresses(line, experiment)
    for note in changes.notes:
        print_note(f"symphony: {note}")
    from symphony.cluster.hidden_output import shown_status

    status = shown_status(line.cluster, line.cluster.describe_experiment(name))
    affected = set(changes.names("added", "restarted", "started"))
    failed = [process for process in status if process.failed and process.name in affected]
    for process in failed:
        print_note(views.failure_line(process))
    return FAILED if failed else OK


def values_to_hide(
    line: Line, changes: Changes, experiment: Experiment, args: argparse.Namespace
) -> HiddenValues | None:
    """Return the values to hide in changes to the description ``experiment``, or None if all
    are shown.
    """
    from symphony.support.hidden_values import HiddenValues

    if args.show_secrets:
        return None
    if not any(process.settings for process in changes.processes):
        return HiddenValues([])
    return line.cluster.hidden_values(experiment.name, experiment)


def show_changes(changes: Changes, args: argparse.Namespace, hidden: HiddenValues | None) -> None:
    """Print changes as text or JSON."""
    from symphony.commandline.output.printing import show_json, show_text

    shown = _for_display(changes, hidden)
    if args.json:
        show_json(shown.to_dict(), compact=getattr(args, "watch", False))
    else:
        show_text(str(shown))


def _for_display(changes: Changes, hidden: HiddenValues | None) -> Changes:
    return changes if hidden is None else changes.with_hidden_secrets(hidden)
