"""From events to status. Pure but for the two questions whether the supervisor and a process live."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from symphony.host.events import Run, Track
from symphony.host.identity import ProcessId
from symphony.status import ExperimentStatus, ProcessStatus, State

SUPERVISOR_DIED = "its supervisor died"


def status(
    manifest: Mapping[str, Any],
    run: Run,
    *,
    supervised: bool,
    lives: Callable[[ProcessId], bool],
    elsewhere: str | None = None,
) -> ExperimentStatus:
    """The status of an experiment.

    ``supervised`` must have been asked before the events of ``run`` were read: then what they lack never
    happened. ``elsewhere`` names the host that runs it, where that is another.
    """
    orphaned = not supervised and not run.finished and elsewhere is None
    groups = {process["name"]: process["group"] for process in manifest["processes"]}
    note = f"{SUPERVISOR_DIED}; delete it to stop what still runs" if orphaned else ""
    return ExperimentStatus(
        name=manifest["experiment"],
        backend=manifest["backend"],
        processes=tuple(_process(name, groups[name], track, orphaned, lives) for name, track in run.tracks.items()),
        created=run.created,
        note=f"runs on {elsewhere}" if elsewhere else note,
    )


def _process(
    name: str, group: str | None, track: Track, orphaned: bool, lives: Callable[[ProcessId], bool]
) -> ProcessStatus:
    state, reason, ready = track.state, track.reason, track.ready
    if orphaned and state is State.RUNNING:
        alive = track.pid is not None and lives(ProcessId(track.pid, track.birth or 0.0))
        state = State.RUNNING if alive else State.UNKNOWN
        reason = SUPERVISOR_DIED if alive else f"nobody saw its end: {SUPERVISOR_DIED}"
        ready = ready and alive
    elif orphaned and state is State.PENDING:
        state, reason = State.UNKNOWN, f"will not start: {SUPERVISOR_DIED}"
    return ProcessStatus(
        name=name,
        group=group,
        state=state,
        ready=ready,
        exit_code=track.exit_code,
        reason=reason,
        restarts=track.restarts,
        started=track.started,
        ended=track.ended,
        stopped=track.stopped,
        pid=track.pid if state is State.RUNNING else None,
    )
