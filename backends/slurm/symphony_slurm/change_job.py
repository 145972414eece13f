"""Comparing an experiment in a job with a new description, and changing it."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.cluster.matching import cannot_change
from symphony.code.take_snapshots import take_snapshots
from symphony.supervised.host_change import Comparison, HostChange, read_unchanging
from symphony.supervised.record import directory
from symphony.supervised.record.change_directory import change_lock
from symphony.supervised.resources.leases import CLOSED_CONNECTIONS
from symphony.supervised.supervisor.process_host import port_of
from symphony.supervised.user_requests.request_change import Update
from symphony.supervised.user_requests.requests import AddressesUnavailable
from symphony_slurm import job_changes
from symphony_slurm.job.placement import Placement, RunIdentity, render_placed, resolve_on_hosts
from symphony_slurm.run_files import JOBS_NAME

if TYPE_CHECKING:
    from symphony.cluster.backend import ChangeRequest
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.supervised.host_options import HostOptions
    from symphony.supervised.host_runs import HostRuns
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony.supervised.record.directory import RunDirectory
    from symphony.supervised.record.status import StatusReader
    from symphony_slurm.job_options import SlurmJobOptions
    from symphony_slurm.plan_job import SlurmPlanner

_POLL_SECONDS = 0.1
# How long the events of a change may take to arrive over the shared file system.
EVENT_ARRIVAL_SECONDS = 5.0
# A change is given up if more ports than this are in use.
MAX_REFUSED_PORTS = 50


class SlurmChange(HostChange):
    """Changes experiments in their jobs, whose resources remain the same.

    The agents reserve new ports when the supervisor changes an experiment. If a port is in use on
    its node, the change is refused, and requested again with another port.
    """

    def __init__(
        self, options: HostOptions, runs: HostRuns, planner: SlurmPlanner, job: SlurmJobOptions
    ) -> None:
        super().__init__(options, runs, planner)
        self._job = job.options
        self._nodes = job.nodes

    def change(self, request: ChangeRequest) -> Changes:
        """Change a running experiment; see `Cluster.up`."""
        experiment = request.experiment
        with (
            directory.full_disk_errors(self._runs.root, len(experiment.list_all_processes())),
            self._runs.find(experiment.name).pin() as run,
            change_lock(run),
        ):
            reader = self._runs.reader(run)
            status = read_unchanging(run, reader)
            archives = take_snapshots(experiment)
            return self._change_with_free_ports(Comparison(run, reader, status, request, archives))

    def _change_with_free_ports(self, comparison: Comparison) -> Changes:
        """Change an experiment. If new ports are unavailable on their nodes, use other ports."""
        run, reader = comparison.run, comparison.reader
        experiment = comparison.request.experiment
        unavailable: dict[int, str] = {}
        avoided: set[int] = set()
        while True:
            update = self._difference_with(comparison, unavailable, avoided)
            if update.changes.is_empty:
                return update.changes
            if update.changes.relaunch:
                raise cannot_change(update.changes)
            try:
                _apply(run, update, experiment, functools.partial(self._runs.send, run), avoided)
            except AddressesUnavailable as exc:
                found = {port_of(address): text for address, text in exc.reasons.items()}
                closed = {
                    port for port, text in found.items() if text.startswith(CLOSED_CONNECTIONS)
                }
                refused = {port: text for port, text in found.items() if port not in closed}
                is_known = closed <= avoided and refused.keys() <= unavailable.keys()
                if is_known or len(unavailable) + len(avoided) > MAX_REFUSED_PORTS:
                    raise
                avoided.update(closed)
                unavailable.update(refused)
            else:
                _wait_for_change(reader)
                return update.changes

    def _difference(
        self,
        comparison: Comparison,
        reserve_port: Callable[[int], str | None],
        avoid_port: Callable[[int], bool],
    ) -> Update:
        """Return the difference between a running experiment and the requested one.

        The supervisor reserves new ports when it changes the experiment, so ``reserve_port`` and
        ``avoid_port`` are not called. The same applies if the job has not started, but then it must
        be submitted again.
        """
        del reserve_port, avoid_port
        return self._difference_with(comparison, {}, ())

    def _difference_with(
        self,
        comparison: Comparison,
        unavailable: Mapping[int, str],
        avoided: Collection[int],
    ) -> Update:
        """Return the difference. ``unavailable`` maps ports to the reasons why nothing can use
        them. Those in ``avoided`` are used last.
        """
        run, reader, status, request, archives = comparison
        running = reader.manifest
        job = json.loads(run.file("job.json").read_bytes())["requested"]
        identity = RunIdentity(
            run_id=running["run_id"],
            launched=running["launched"],
            directory=self._runs.root / JOBS_NAME / run.path.resolve().name,
            working_directory=Path.cwd(),
        )
        services = running["services"].items()
        resolve = functools.partial(
            resolve_on_hosts,
            request.experiment,
            backend=self._options.backend,
            defaults=request.defaults,
            refuse=unavailable.get,
            avoid=lambda port: port in avoided,
            present={name: int(address.rpartition(":")[2]) for name, address in services},
        )
        problems: list[str] = []
        try:
            placement = Placement.load(run)
        except (OSError, ValueError):
            placement = Placement.before_start(job["shape"]["nodes"], job["shape"]["gpus"])
            problems.append("its job has not started")
        hosts = [node.host for node in placement.nodes]
        # The slots depend on the plan, and the addresses on the slots.
        plan = resolve(hosts, {})
        slots, misfits = job_changes.place_again(plan, running["slots"], job)
        plan = resolve(hosts, slots)
        snapshots = {name: archive.snapshot for name, archive in archives.items()}
        manifest = render_placed(plan, placement, slots, identity, snapshots)
        update = Update(
            run,
            reader,
            status,
            manifest,
            archives,
            start=request.start,
            checks_commands=self._job.checks_commands,
        )
        if problems and update.changes.is_empty:
            return update
        problems += [*misfits, *job_changes.other_requests(plan, job, self._job, self._nodes)]
        update.changes = replace(update.changes, relaunch=(*update.changes.relaunch, *problems))
        return update

    def _other_backend(self, name: str) -> str | None:
        del name
        return None


def _apply(
    run: RunDirectory,
    update: Update,
    experiment: Experiment,
    send: Callable[..., None],
    accepted: Collection[int],
) -> None:
    """Let the supervisor change the experiment.

    ``send`` sends a request to the supervisor. For ``accepted``, see
    `ProcessHost.reserve_addresses`.
    """
    running, manifest = update.running, update.manifest
    placement = Placement.load(run)
    slots = manifest.to_dict()["slots"]

    def choose(process: ProcessSpec, processes: Sequence[ProcessSpec]) -> Sequence[str]:
        return job_changes.choose_gpus(process, processes, running, placement, slots)

    update.assign_gpus(choose)
    update.apply(experiment, send, keep_holds=False, accepted=accepted)


def _wait_for_change(reader: StatusReader) -> None:
    """Wait until the events of a change, which another node has written, can be read here."""
    revision = reader.state.revision + 1
    deadline = time.monotonic() + EVENT_ARRIVAL_SECONDS
    while time.monotonic() < deadline:
        reader.read()
        if reader.state.revision >= revision and not reader.state.is_changing:
            return
        time.sleep(_POLL_SECONDS)
