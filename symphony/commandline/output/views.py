"""Statuses and backends as table rows, lines of text, and JSON. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.commandline.output.tables import Column, format_age
from symphony.commandline.output.terminal import STATE_COLOURS

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
    Column("REASON", flexible=True, least=20, prose=True),
)
BACKEND_COLUMNS = (
    Column("NAME"),
    Column("ALIASES", drop=1),
    Column("CAN", drop=2),
    Column("SUMMARY", flexible=True, least=40, prose=True),
)

STOPPED_STATE = "stopped"
_FAILURE_STATES = ("failed", "unknown")
# Maps reason codes of pending processes to the words that `startup_line` uses.
_STARTUP_STAGES: Mapping[str, str] = {
    "waiting": "waiting for others",
    "scheduling": "unscheduled",
    "unschedulable": "unscheduled",
    "pulling-image": "pulling image",
    "image-unavailable": "without image",
    "creating": "being created",
    "backing-off": "restarting",
}


def displayed_process_state(process: ProcessStatus) -> str:
    """Return the state of a process in one word.

    If symphony has stopped the process, its state is ``stopped`` instead of ``failed`` or
    ``unknown``.
    """
    if process.stopped and process.state.value in _FAILURE_STATES:
        return STOPPED_STATE
    return str(process.state)


def displayed_experiment_state(status: ExperimentStatus) -> str:
    """Return the state of an experiment in one word.

    The state is ``stopped`` if symphony has stopped processes and no other process has failed.
    """
    has_failed = any(process.failed for process in status)
    if status.processes and status.state.value in _FAILURE_STATES and not has_failed:
        return STOPPED_STATE
    return str(status.state)


def experiment_row(status: ExperimentStatus, now: float) -> list[object]:
    """Return an experiment as a row with the columns `EXPERIMENT_COLUMNS`."""
    processes = status.processes
    return [
        status.name,
        displayed_experiment_state(status),
        len(processes),
        sum(process.ready for process in processes),
        sum(process.failed for process in processes),
        None if status.created is None else format_age(now - status.created),
        status.note,
    ]


def process_row(process: ProcessStatus, now: float) -> list[object]:
    """Return a process as a row with the columns `PROCESS_COLUMNS`.

    The age is measured from the latest start.
    """
    return [
        process.path,
        displayed_process_state(process),
        "yes" if process.ready else "no",
        process.exit_code,
        process.restarts,
        None if process.started is None else format_age(now - process.started),
        process.pid,
        process.reason,
    ]


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


def failure_lines(status: ExperimentStatus) -> list[str]:
    """Return one line for each failed process, in the order in which the processes exited."""
    failed = [process for process in status if process.failed]
    failed.sort(key=lambda process: process.ended or float("inf"))
    return [failure_line(process) for process in failed]


def failure_line(process: ProcessStatus) -> str:
    """Return the path, state, exit code and reason of a process as one line."""
    causes: list[str] = []
    if process.exit_code is not None:
        causes.append(f"exit code {process.exit_code}")
    if process.reason:
        causes.append(process.reason)
    text = f"{process.path} {process.state}"
    return f"{text}: {', '.join(causes)}" if causes else text


def summary_line(status: ExperimentStatus) -> str:
    """Return an experiment's state, and the number of processes in each state, as one line."""
    return f"{status.name} {displayed_experiment_state(status)}: {_count_states(status)}"


def waiting_line(status: ExperimentStatus) -> str:
    """Return a line that names the processes that have not finished."""
    unfinished = [
        process.path for process in status if process.state.value in ("running", "pending")
    ]
    return f"waiting for {status.name} ({_count_states(status)}): {', '.join(unfinished)}"


def startup_line(status: ExperimentStatus) -> str:
    """Return the progress of a launch as one line.

    For example, ``rl: 12 of 40 ready, 3 pulling image, 25 unscheduled``.
    """
    ready = sum(process.ready for process in status)
    stages = _count_words(_startup_stage(process) for process in status if not process.ready)
    parts = [f"{ready} of {len(status.processes)} ready", *stages]
    return f"{status.name}: {', '.join(parts)}"


def _startup_stage(process: ProcessStatus) -> str:
    state = str(process.state)
    if state == "running":
        return "started"
    if state != "pending":
        return displayed_process_state(process)
    return _STARTUP_STAGES.get(str(process.reason_code), "pending")


def _count_states(status: ExperimentStatus) -> str:
    counts = _count_words(displayed_process_state(process) for process in status)
    return ", ".join(counts) or "no processes"


def _count_words(words: Iterable[str]) -> list[str]:
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
