"""Runs as table rows and lines of text. All functions are pure."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.commandline.output.tables import Column, format_age
from symphony.commandline.output.views import align_pairs

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.code.snapshot import CodeSnapshot

HISTORY_COLUMNS = (
    Column("RUN", flexible=True, least=40),
    Column("BACKEND", drop=2),
    Column("STATE"),
    Column("EXIT", right=True),
    Column("PROCESSES", drop=3, right=True),
    Column("AGE", right=True),
    Column("DURATION", drop=1, right=True),
    Column("CODE", flexible=True, prose=True),
)
_PARAMETERS_COLUMN = Column("PARAMETERS", drop=4, flexible=True, prose=True)


def history_table(
    runs: Sequence[Run], results: Sequence[Mapping[str, Any]], now: float
) -> tuple[tuple[Column, ...], list[list[object]]]:
    """Return the columns and the rows of a table of runs.

    There is a column for parameters only if a run has any.
    """
    rows = [history_row(run, result, now) for run, result in zip(runs, results, strict=True)]
    if not any(result["parameters"] for result in results):
        return HISTORY_COLUMNS, rows
    for row, result in zip(rows, results, strict=True):
        row.append(_parameters(result))
    return (*HISTORY_COLUMNS, _PARAMETERS_COLUMN), rows


def _parameters(result: Mapping[str, Any]) -> str | None:
    given = (result["parameters"] or {}).items()
    return ",".join(f"{name}={value}" for name, value in given) or None


def history_row(run: Run, result: Mapping[str, Any], now: float) -> list[object]:
    """Return a run as a row with the columns `HISTORY_COLUMNS`."""
    return [
        run.name,
        run.backend,
        result["state"],
        result["exit_code"],
        result["processes"],
        format_age(now - run.launched) if run.launched else None,
        _duration(result),
        result["code"],
    ]


def _duration(result: Mapping[str, Any]) -> str | None:
    seconds = result["duration"]
    return None if seconds is None else format_age(seconds)


def description_lines(
    run: Run,
    record: Mapping[str, Any],
    result: Mapping[str, Any],
    code: Mapping[str, Any] | None,
    snapshots: Mapping[str, CodeSnapshot],
    now: float,
) -> list[str]:
    """Return the record of a run as aligned lines."""
    state = result["state"]
    if result["exit_code"]:
        state = f"{state} (exit code {result['exit_code']})"
    launched = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.launched))
    versions = f"symphony {record.get('symphony')}, Python {record.get('python')}"
    pairs = {
        "run": run.name,
        "experiment": run.experiment,
        "backend": run.backend,
        "state": state,
        "launched": f"{launched} ({format_age(now - run.launched)} ago)",
        "duration": _duration(result),
        "parameters": _parameters(result),
        "command": shlex.join(record.get("command") or []),
        "directory": record.get("working_directory"),
        "host": f"{record.get('host')} (user {record.get('user')})",
        "versions": versions,
        "code": result["code"],
        "changes": f"{run.path / 'code.diff'}" if code and code.get("changed") else None,
        "snapshot": "; ".join(dict.fromkeys(map(str, snapshots.values()))),
        "cut": "; ".join(result.get("cut") or []),
        "record": str(run.path),
    }
    return align_pairs((key, str(value)) for key, value in pairs.items() if value)


def short_text(value: object) -> str | None:
    """Return a value for a cell of a table. A missing value is None."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def comparison_columns(runs: Sequence[Run]) -> tuple[Column, ...]:
    """Return the columns of the comparison of two runs."""
    titles = [run.name for run in runs]
    return (Column("VALUE"), *(Column(title, flexible=True, prose=True) for title in titles))
