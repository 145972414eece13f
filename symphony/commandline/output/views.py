"""Statuses and backends as table rows, lines of text, and JSON. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.commandline.output.tables import Column, format_age
from symphony.commandline.output.terminal import STATE_COLOURS
from symphony.support.causes import MAX_NAMES, group_by_cause

if TYPE_CHECKING:
    from symphony.hookspecs import BackendInfo
    from symphony.status import ExperimentStatus, ProcessStatus

EXPERIMENT_COLUMNS = (
    Column("NAME", flexible=True, least=40),
    Column("STATE"),
    Column("PROCESSES", right=True),
    Column("READY", drop=2, right=True),
    Column("FAILED", drop=1, right=True),
    Column("AGE", right=True),
    Column("BACKEND", drop=3),
    Column("NOTE", flexible=True, least=20, prose=True),
)
PROCESS_COLUMNS = (
    Column("NAME", flexible=True, least=40),
    Column("STATE"),
    Column("READY", drop=1),
    Column("EXIT", right=True),
    Column("RESTARTS", drop=4, right=True),
    Column("AGE", drop=2, right=True),
    Column("PID", drop=3, right=True),
    Column("NODE", drop=3, flexible=True, optional=True),
    Column("REASON", flexible=True, least=20, prose=True),
)
BACKEND_COLUMNS = (
    Column("NAME"),
    Column("ALIASES", drop=1),
    Column("CAN", drop=2),
    Column("SUMMARY", flexible=True, least=40, prose=True),
)

# Maps reason codes of pending processes to the words that `startup_line` uses.
_STARTUP_STAGES: Mapping[str, str] = {
    "waiting": "waiting for others",
    "scheduling": "unscheduled",
    "unschedulable": "unscheduled",
    "pulling-image": "pulling image",
    "image-unavailable": "without image",
    "creating": "being created",
    "backing-off": "restarting",
    "experiment-restarts": "restarting",
}


def experiment_row(status: ExperimentStatus, now: float) -> list[object]:
    """Return an experiment as a row with the columns `EXPERIMENT_COLUMNS`."""
    processes = status.processes
    return [
        status.name,
        status.displayed_state,
        len(processes),
        _count_ready(status),
        sum(process.failed for process in processes),
        None if status.created is None else format_age(now - status.created),
        status.backend,
        note(status, now),
    ]


def note(status: ExperimentStatus, now: float) -> str:
    """Return an experiment's note, and until it has finished, the time that its deadline leaves."""
    if status.deadline is None or status.ended:
        return status.note
    remaining = f"the deadline is in {format_age(status.deadline - now)}"
    return f"{status.note}; {remaining}" if status.note else remaining


def parameter_words(parameters: Mapping[str, str]) -> str:
    """Return the values of parameters as words, such as ``parameters rate=2, agents=4``."""
    values = ", ".join(f"{name}={value}" for name, value in parameters.items())
    return f"parameters {values}"


def process_row(process: ProcessStatus, now: float) -> list[object]:
    """Return a process as a row with the columns `PROCESS_COLUMNS`.

    The age is measured from the latest start.
    """
    return [
        process.path,
        process.displayed_state,
        _ready_word(process),
        process.exit_code,
        process.restarts,
        None if process.started is None else format_age(now - process.started),
        process.pid,
        process.node,
        process.displayed_reason(now),
    ]


def _ready_word(process: ProcessStatus) -> str | None:
    """Return whether a process is ready, or None if it has ended."""
    if _has_ended(process):
        return None
    return "yes" if process.ready else "no"


def _count_ready(status: ExperimentStatus) -> str | None:
    """Return how many of the processes that have not ended are ready, such as ``3/4``.

    Return None if all processes have ended.
    """
    expected = [process for process in status if not _has_ended(process)]
    ready = sum(process.ready for process in expected)
    return f"{ready}/{len(expected)}" if expected else None


def _has_ended(process: ProcessStatus) -> bool:
    return process.state.value not in ("pending", "running")


def backend_row(info: BackendInfo) -> list[object]:
    """Return a backend as a row with the columns `BACKEND_COLUMNS`."""
    return [info.name, ",".join(info.aliases), ",".join(sorted(info.capabilities)), info.summary]


def backend_dict(info: BackendInfo) -> dict[str, Any]:
    """Return a backend as a JSON-serializable dictionary."""
    return {
        "name": info.name,
        "aliases": list(info.aliases),
        "summary": info.summary,
        "capabilities": sorted(info.capabilities),
        "extra": info.extra,
    }


def state_colour(title: str, cell: str) -> str:
    """Return the colour for a cell, or an empty string. Only states are coloured."""
    return STATE_COLOURS.get(cell, "") if title == "STATE" else ""


def failed_processes(status: ExperimentStatus) -> list[ProcessStatus]:
    """Return the failed processes, in the order in which they exited."""
    failed = [process for process in status if process.failed]
    return sorted(failed, key=lambda process: process.ended or float("inf"))


def failure_lines(status: ExperimentStatus) -> list[str]:
    """Return one line for each failed process, in the order in which the processes exited.

    Many processes with the same cause share a line.
    """
    failed = failed_processes(status)
    group_of = {}
    for group in group_by_cause((process.path, _failure(process)) for process in failed):
        group_of.update(dict.fromkeys(group.names, group))
    lines = []
    for process in failed:
        group = group_of[process.path]
        if len(group.names) <= MAX_NAMES:
            lines.append(failure_line(process))
        elif group.names[0] == process.path:
            lines.append(f"{group} {group.cause}")
    return lines


def failure_line(process: ProcessStatus) -> str:
    """Return the path, state, exit code and reason of a process as one line."""
    return f"{process.path} {_failure(process)}"


def _failure(process: ProcessStatus) -> str:
    """Return the state, exit code and reason of a process."""
    causes: list[str] = []
    if process.exit_code is not None:
        causes.append(f"exit code {process.exit_code}")
    if process.reason:
        causes.append(process.reason)
    return f"{process.state}: {', '.join(causes)}" if causes else str(process.state)


def summary_line(status: ExperimentStatus) -> str:
    """Return an experiment's state, and the number of processes in each state, as one line."""
    return f"{status.name} {status.displayed_state}: {_count_states(status)}"


def closing_line(status: ExperimentStatus) -> str:
    """Return how an experiment has ended, as one line.

    For example, ``rl failed after 12.3 s with exit code 9: 1 failed, 2 stopped``.
    """
    from symphony.events import finish_event

    end = finish_event(status, status.created or 0.0)
    return f"{status.name} {end.text}: {_count_states(status)}"


def waiting_line(status: ExperimentStatus) -> str:
    """Return a line that names the processes that have not finished."""
    unfinished = [
        process.path for process in status if process.state.value in ("running", "pending")
    ]
    return f"waiting for {status.name} ({_count_states(status)}): {', '.join(unfinished)}"


def startup_line(status: ExperimentStatus) -> str:
    """Return the progress of a launch as one line.

    For example, ``rl: 12 of 40 ready, 3 pulling image, 25 unscheduled, 2 succeeded``. A process
    that has ended is not one of the 40.
    """
    expected = [process for process in status if not _has_ended(process)]
    ready = sum(process.ready for process in expected)
    stages = count_words(_startup_stage(process) for process in status if not process.ready)
    parts = [f"{ready} of {len(expected)} ready", *stages]
    return f"{status.name}: {', '.join(parts)}"


def _startup_stage(process: ProcessStatus) -> str:
    state = str(process.state)
    if state == "running":
        return "started"
    if state != "pending":
        return process.displayed_state
    return _STARTUP_STAGES.get(str(process.reason_code), "pending")


def _count_states(status: ExperimentStatus) -> str:
    counts = count_words(process.displayed_state for process in status)
    return ", ".join(counts) or "no processes"


def count_words(words: Iterable[str]) -> list[str]:
    """Return each word with its count, such as ``3 running``, in order of first occurrence."""
    numbers: dict[str, int] = {}
    for word in words:
        numbers[word] = numbers.get(word, 0) + 1
    return [f"{number} {word}" for word, number in numbers.items()]


def count_processes(number: int) -> str:
    """Format a number of processes, for example ``1 process`` or ``3 processes``."""
    return f"{number} process" if number == 1 else f"{number} processes"


def align_pairs(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return indented lines with two aligned columns, such as commands and their descriptions."""
    rows = list(pairs)
    size = max((len(left) for left, _ in rows), default=0)
    return [f"  {left.ljust(size)}  {right}" for left, right in rows]
