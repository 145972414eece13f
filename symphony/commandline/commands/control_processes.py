"""Stop, start or signal processes of an experiment, and report the result."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.commands.next_steps import exposed_lines
from symphony.commandline.exit_codes import FAILED, OK, UsageError
from symphony.commandline.output.terminal import print_note, print_text
from symphony.views.controls import describe_processes

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line
    from symphony.status import ExperimentStatus, ProcessStatus, State


def control(
    line: Line,
    args: argparse.Namespace,
    words: tuple[str, str, str],
    run: Callable[[str, list[str]], Sequence[ProcessStatus]],
    *,
    starts: bool = False,
    unchanged: Collection[State] = (),
    already: str = "",
    shows_addresses: bool = False,
    reports_kills: bool = False,
) -> int:
    """Select processes, call ``run`` with them, and report the result.

    ``words`` describe what ``run`` does, such as ``stop``, ``stopping`` and ``stopped``.
    With ``starts``, processes that could not be started are reported. ``run`` does nothing with
    processes that are in one of the states ``unchanged``, which are reported as ``already``.
    With ``shows_addresses``, the addresses of the exposed services are printed after the result.
    With ``reports_kills``, processes that were killed after their grace period are reported.
    """
    from dataclasses import replace

    from symphony.cluster.hidden_output import shown_status
    from symphony.cluster.matching import select_processes
    from symphony.code.take_snapshots import packing_once
    from symphony.commandline.commands.kill_report import KillReport
    from symphony.commandline.output.byte_progress import ByteProgress
    from symphony.commandline.output.exit_progress import reporting_exits
    from symphony.commandline.output.printing import show_json
    from symphony.commandline.output.terminal import show_progress

    verb, doing, done = words
    status = find_experiment(line, args)
    selected = select_processes(status, args.processes or None)
    if starts and not args.processes:
        selected = _without_finished_one_shots(line, status, selected)
    names = [process.name for process in selected]
    if args.dry_run:
        return _preview(args, verb, status.name, selected)
    kills = KillReport(line.cluster, status.name, status.now(), has_option=True)
    action = f"{doing} {describe_processes(status.name, selected)}"
    try:
        with (
            show_progress(action) as shown,
            packing_once(ByteProgress(shown).report),
            reporting_exits(line.cluster, status.name, action, shown, processes=names),
        ):
            reached = run(status.name, names)
    except KeyboardInterrupt:
        print_note(f"{line.prog}: the supervisor of {status.name!r} continues {action}")
        raise
    result = shown_status(line.cluster, replace(status, processes=tuple(reached))).processes
    if args.json:
        show_json([process.to_dict() for process in result])
    else:
        changed = [process for process in selected if process.state not in unchanged]
        rest = [process for process in selected if process.state in unchanged]
        if starts:
            started = {process.name for process in result if process.has_started}
            changed = [process for process in changed if process.name in started]
        if changed:
            print_text(f"{done} {describe_processes(status.name, changed)}")
        if rest:
            print_text(f"{already}: {describe_processes(status.name, rest)}")
        if reports_kills:
            kills.print_report(None if starts else replace(status, processes=tuple(result)))
        if shows_addresses and (lines := exposed_lines(line, status.name)):
            print_text("\n".join(lines))
    return _report_problems(result, status.now()) if starts else OK


def _preview(
    args: argparse.Namespace, verb: str, experiment: str, selected: Sequence[ProcessStatus]
) -> int:
    """Print which processes a command concerns, and return the exit code."""
    from symphony.commandline.output.printing import show_json

    if args.json:
        show_json([process.to_dict() for process in selected])
    print_note(f"would {verb} {describe_processes(experiment, selected)}")
    return OK


def _without_finished_one_shots(
    line: Line, status: ExperimentStatus, selected: Sequence[ProcessStatus]
) -> list[ProcessStatus]:
    """Return the processes to start, and report those that do not have to run again."""
    finished = line.cluster.finished_one_shots(status)
    kept = [process for process in selected if process.name in finished]
    if kept:
        print_note(
            f"not started again, because others wait only for the success: "
            f"{describe_processes(status.name, kept)}; to run it again, name it"
        )
    return [process for process in selected if process not in kept]


def _report_problems(processes: Sequence[ProcessStatus], now: float) -> int:
    """Report the started processes that wait or have failed, and return the exit code."""
    for process in processes:
        if process.state.value == "pending" or process.failed:
            reason = process.displayed_reason(now)
            print_note(f"{process.path} is {process.displayed_state}: {reason}")
    return FAILED if any(process.failed for process in processes) else OK


def grace_period(args: argparse.Namespace) -> float | None:
    """Return the grace period that replaces those of the processes, or None."""
    if args.now and args.grace is not None:
        raise UsageError("--now means that there is no grace period; remove --now or --grace")
    grace: float | None = args.grace
    return grace
