"""Statuses and records as tables, text and JSON. Pure: what is shown, not where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def process_state(process: ProcessStatus) -> str:
    """The state in a word; what symphony itself ended is ``stopped``, since it is no failure."""
    return (
        STOPPED_STATE
        if process.stopped and process.state.value in _BAD_ENDS
        else str(process.state)
    )


def experiment_state(status: ExperimentStatus) -> str:
    """The same for an experiment."""
    bad = status.state.value in _BAD_ENDS and not any(process.failed for process in status)
    return STOPPED_STATE if bad and status.processes else str(status.state)


_BAD_ENDS = ("failed", "unknown")


def experiment_row(status: ExperimentStatus, now: float) -> list[object]:
    """One experiment as a row of `EXPERIMENTS`."""
    processes = status.processes
    return [
        status.name,
        experiment_state(status),
        len(processes),
        sum(process.ready for process in processes),
        sum(process.failed for process in processes),
        None if status.created is None else format_age(now - status.created),
        status.note,
    ]


def process_row(process: ProcessStatus, now: float) -> list[object]:
    """One process as a row of `PROCESSES`; its age is counted from its latest start."""
    return [
        process.path,
        process_state(process),
        "yes" if process.ready else "no",
        process.exit_code,
        process.restarts,
        None if process.started is None else format_age(now - process.started),
        process.pid,
        process.reason,
    ]


def backend_row(info: BackendInfo) -> list[object]:
    """One backend as a row of `BACKENDS`."""
    return [info.name, ",".join(info.aliases), ",".join(sorted(info.capabilities)), info.summary]


def backend_dict(info: BackendInfo) -> dict[str, Any]:
    """One backend as JSON knows it."""
    return {
        "name": info.name,
        "aliases": list(info.aliases),
        "summary": info.summary,
        "capabilities": sorted(info.capabilities),
        "extra": info.extra,
    }


def state_colour(title: str, cell: str) -> str:
    """The colour of a cell: states have one, other cells none."""
    return STATE_COLOURS.get(cell, "") if title == "STATE" else ""


def failure_lines(status: ExperimentStatus) -> list[str]:
    """A line for each process that failed, those that ended first before the others."""
    failed = sorted(
        (item for item in status if item.failed), key=lambda item: item.ended or float("inf")
    )
    return [failure_line(process) for process in failed]


def failure_line(process: ProcessStatus) -> str:
    """Why a process counts as failed, in one line."""
    code = "" if process.exit_code is None else f"exit code {process.exit_code}"
    why = ", ".join(part for part in (code, process.reason) if part)
    return f"{process.path} {process.state}{': ' if why else ''}{why}"


def summary_line(status: ExperimentStatus) -> str:
    """How an experiment stands, in one line."""
    return f"{status.name} {experiment_state(status)}: {_counts(status)}"


def waiting_line(status: ExperimentStatus) -> str:
    """What is waited for, in one line."""
    going = [process.path for process in status if process.state.value in ("running", "pending")]
    return f"waiting for {status.name} ({_counts(status)}): {', '.join(going)}"


def startup_line(status: ExperimentStatus) -> str:
    """How far a launch has come, in one line: ``rl: 12 of 40 ready, 3 pulling image, 25 unscheduled``."""
    ready = sum(process.ready for process in status)
    found: dict[str, int] = {}
    for process in status:
        if not process.ready:
            word = _stage(process)
            found[word] = found.get(word, 0) + 1
    parts = [
        f"{ready} of {len(status.processes)} ready",
        *(f"{number} {word}" for word, number in found.items()),
    ]
    return f"{status.name}: {', '.join(parts)}"


# What a process that is pending waits for, by what its reason begins with or holds.
_STAGES = (
    ("waiting for ", "waiting for others"),
    ("Unschedulable", "unscheduled"),
    ("being scheduled", "unscheduled"),
    ("pulling image", "pulling image"),
    ("Image", "without image"),
    ("ContainerCreating", "being created"),
    ("init container", "preparing"),
    ("restarts ", "restarting"),
)


def _stage(process: ProcessStatus) -> str:
    if str(process.state) != "pending":
        return "started" if str(process.state) == "running" else process_state(process)
    return next((word for part, word in _STAGES if part in process.reason), "pending")


def _counts(status: ExperimentStatus) -> str:
    found: dict[str, int] = {}
    for process in status:
        word = process_state(process)
        found[word] = found.get(word, 0) + 1
    return ", ".join(f"{number} {word}" for word, number in found.items()) or "no processes"


def count_processes(number: int) -> str:
    """``1 process``, ``3 processes``."""
    return f"{number} process{'' if number == 1 else 'es'}"


def align_pairs(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Commands and what they are for, aligned."""
    rows: Sequence[tuple[str, str]] = list(pairs)
    size = max((len(left) for left, _ in rows), default=0)
    return [f"  {left.ljust(size)}  {right}" for left, right in rows]
