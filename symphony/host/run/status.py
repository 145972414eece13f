"""From events to status. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from symphony.host.processes.identity import ProcessId
from symphony.host.run.events import Run, Track
from symphony.status import ENDED, ExperimentStatus, ProcessStatus, State

SUPERVISOR_DIED = "its supervisor died"
_AWAY = "launched on {}, which cannot be seen from here"


def status(
    manifest: Mapping[str, Any],
    run: Run,
    *,
    orphans: Mapping[str, ProcessId] | None = None,
    elsewhere: str | None = None,
) -> ExperimentStatus:
    """The status of an experiment.

    ``orphans`` are the processes that live although their supervisor died, by name; None where it lives, or
    finished in order. Whether it lives must have been asked before the events of ``run`` were read: then what
    they lack never happened. ``elsewhere`` names the host that runs the experiment, or did, where that is another:
    what its events do not tell the end of is then unknown.
    """
    away = _AWAY.format(elsewhere) if elsewhere else ""

    def seen(name: str, track: Track) -> Track:
        if away:
            return _unseen(track, away)
        return track if orphans is None else _orphaned(track, orphans.get(name))

    groups = {process["name"]: process["group"] for process in manifest["processes"]}
    note = "" if orphans is None else f"{SUPERVISOR_DIED}; delete it to stop what still runs"
    return ExperimentStatus(
        name=manifest["experiment"],
        backend=manifest["backend"],
        processes=tuple(
            _process(name, groups[name], seen(name, track)) for name, track in run.tracks.items()
        ),
        created=run.created,
        note=away or note,
    )


def _unseen(track: Track, why: str) -> Track:
    """What is known of a process that nobody here can see: how it ended, where it has."""
    return (
        track
        if track.state in ENDED
        else replace(track, state=State.UNKNOWN, reason=why, ready=False)
    )


def _orphaned(track: Track, found: ProcessId | None) -> Track:
    """What is known of a process whose supervisor died: that it lives, or that nobody saw its end."""
    if track.state in ENDED:
        return track
    if found is not None:
        # Who is not ready by now never will be seen to be.
        return replace(
            track, state=State.RUNNING, reason=SUPERVISOR_DIED, pid=found.pid, late=not track.ready
        )
    if track.state is State.PENDING:
        return replace(
            track, state=State.UNKNOWN, reason=f"will not start: {SUPERVISOR_DIED}", ready=False
        )
    return replace(
        track, state=State.UNKNOWN, reason=f"nobody saw its end: {SUPERVISOR_DIED}", ready=False
    )


def _process(name: str, group: str | None, track: Track) -> ProcessStatus:
    return ProcessStatus(
        name=name,
        group=group,
        state=track.state,
        ready=track.ready,
        exit_code=track.exit_code,
        reason=track.reason,
        restarts=track.restarts,
        started=track.started,
        ended=track.ended,
        stopped=track.stopped,
        pid=track.pid if track.state is State.RUNNING else None,
        not_ready_in_time=track.late and track.state is State.RUNNING,
    )
