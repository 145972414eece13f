"""Ports and GPUs that processes still use although their supervisor was killed.

A supervisor holds the leases of its experiment, so they are released when it is killed. Its
processes keep running, and their ports and GPUs must not be given to another experiment.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.errors import BackendError, SpecError
from symphony.supervised.processes.spec import GPU_VARIABLE
from symphony.supervised.record import directory, run_paths
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import (
    EventReader,
    fold_run,
    is_finished,
    recorded_leaders,
    unfinished_previous,
)


@dataclass(frozen=True, slots=True)
class _Usage:
    """The ports and GPUs that the running processes of one experiment use."""

    experiment: str
    ports: frozenset[int]
    gpus: frozenset[str]


class UnsupervisedUsage:
    """The ports and GPUs of all experiments whose supervisors were killed.

    ``roots`` contains the directories whose run directories are examined. The run directory
    ``except_run`` is ignored. The run directories are examined once, when the first method is
    called.
    """

    def __init__(self, roots: Iterable[Path] = (), except_run: RunDirectory | None = None) -> None:
        self._roots = roots
        self._except_run = except_run

    def experiment_using_port(self, port: int) -> str | None:
        """Return the name of the experiment that uses a port, or None if there is none."""
        return next((usage.experiment for usage in self._usages if port in usage.ports), None)

    def experiment_using_gpu(self, device: str) -> str | None:
        """Return the name of the experiment that uses a GPU, or None if there is none."""
        return next((usage.experiment for usage in self._usages if device in usage.gpus), None)

    @functools.cached_property
    def _usages(self) -> list[_Usage]:
        runs: list[RunDirectory] = []
        for root in self._roots:
            # Another user can change this directory, so its contents are not used.
            with contextlib.suppress(SpecError):
                runs += _unfinished_runs(root)
        usages = (_usage(run) for run in runs if run != self._except_run)
        return [usage for usage in usages if usage is not None]


def _unfinished_runs(root: Path) -> list[RunDirectory]:
    """Return the run directories of the experiments that have not finished, sorted by name.

    Raises SpecError if another user can change ``root``.
    """
    # There can be hundreds of finished experiments. One check for each of them is enough, and needs
    # no Path, because creating a Path takes longer than the check.
    names = [
        name
        for name in directory.list_names(root)
        if not is_finished(f"{root}/{name}/{run_paths.EVENTS_FILE}")
    ]
    found = (directory.find(root, name) for name in sorted(names))
    return [run for run in found if run is not None]


def _usage(run: RunDirectory) -> _Usage | None:
    """Return what an experiment uses, or None if it has a supervisor or no running process."""
    # A new supervisor records itself when it has regained the leases of a killed one.
    if run.recorded_supervisor() is not None or not run.is_of_this_boot():
        return None
    from symphony.supervised.processes.membership import owner_names
    from symphony.supervised.record.running_processes import processes_of_run

    try:
        manifest = run.load_manifest()
    except (BackendError, OSError):
        return None
    state = fold_run(manifest, EventReader(run.events).read_new())
    running = processes_of_run(run, manifest["run_id"], state).find()
    if not running:
        return None
    owners = owner_names(running, recorded_leaders(state))
    previous = unfinished_previous(state, manifest)
    previous_ports = [port for process in previous for port in process["releases"]]
    return _Usage(
        experiment=run.name,
        ports=frozenset([*service_ports(manifest), *previous_ports]),
        gpus=frozenset(_gpus([*manifest["processes"], *previous], owners)),
    )


def _gpus(processes: Iterable[dict[str, Any]], owners: set[str | None]) -> Iterator[str]:
    """Yield the GPUs of the processes in ``owners``, or of all processes if ``owners`` contains
    None.
    """
    for process in processes:
        if process["gpus"] and (process["name"] in owners or None in owners):
            yield from process["env"][GPU_VARIABLE].split(",")


def service_ports(manifest: dict[str, Any]) -> list[int]:
    """Return the ports of the services in a manifest."""
    addresses: dict[str, str] = manifest.get("services", {})
    return [int(address.rpartition(":")[2]) for address in addresses.values()]
