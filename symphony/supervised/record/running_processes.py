"""Finding the processes of a run by its manifest and its events."""

from __future__ import annotations

from typing import Any

from symphony.plan.state import RunState
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.membership import RunProcesses
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import EventReader, fold_run, recorded_leaders


def processes_of_run(run: RunDirectory, run_id: str, state: RunState) -> RunProcesses:
    """Return an object that finds the processes of a run, even if its supervisor was killed.

    ``state`` is the state of the run according to its events.
    """
    leaders = recorded_leaders(state).values() if run.is_of_this_boot() else ()
    return RunProcesses(run_id, leaders)


def running_processes(run: RunDirectory, manifest: dict[str, Any]) -> list[ProcessId]:
    """Return the processes of a run that are running at this moment."""
    state = fold_run(manifest, EventReader(run.events).read_new())
    return processes_of_run(run, manifest["run_id"], state).find()
