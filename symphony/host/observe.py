"""From events to status. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from symphony.host.events import Run, Track
from symphony.host.identity import ProcessId
from symphony.status import ENDED, ExperimentStatus, ProcessStatus, State

SUPERVISOR_DIED = "its supervisor died"


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
    they lack never happened. ``elsewhere`` names the host that runs the experiment, where that is another.
    """
    groups = {process["name"]: process["group"] for process in manifest["processes"]}
    note = "" if orphans is None else f"{SUPERVISOR_DIED}; delete it to stop what still runs"
    return ExperimentStatus(
        name=manifest["experiment"],
        backend=manifest["backend"],
        processes=tuple(
            _process(name, groups[name], track if orphans is None else _orphaned(track, orphans.get(name)))
            for name, track in run.tracks.items()
        ),
        created=run.created,
        note=f"runs on {elsewhere}" if elsewhere else note,
    )


def _orphaned(track: Track, found: ProcessId | None) -> Track:
    """What is known of a process whose supervisor died: that it lives, or that nobody saw its end."""
    if track.state in ENDED:
        return track
    if found is not None:
        return replace(track, state=State.RUNNING, reason=SUPERVISOR_DIED, pid=found.pid)
    if track.state is State.PENDING:
        return replace(track, state=State.UNKNOWN, reason=f"will not start: {SUPERVISOR_DIED}", ready=False)
    return replace(track, state=State.UNKNOWN, reason=f"nobody saw its end: {SUPERVISOR_DIED}", ready=False)


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
    )
