"""The backend ``detached``: a directory for each experiment, and a process that supervises it.

The directory has the form of a run directory of symphony, so that symphony can read it. While a
supervisor is running, it holds the lock of the directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from symphony.archive.run_record import RECORD_FILE, read_files
from symphony.cluster import WatchedStatuses
from symphony.cluster.backend import Backend, LaunchRequest, ProcessRequest, Selection, Watch
from symphony.cluster.matching import experiment_exists, experiment_not_found
from symphony.errors import LaunchFailed
from symphony.events import ExperimentEvent
from symphony.log_blocks import LogBlock
from symphony.plan.plan import Plan
from symphony.plan.resolution.addresses import AddressScheme
from symphony.plan.topology import Topology
from symphony.status import ExperimentStatus, ProcessStatus
from symphony.supervised import preflight
from symphony.supervised.read.log_files import growing
from symphony.supervised.read.output import iter_output
from symphony.supervised.read.read_details import topology
from symphony.supervised.record import directory
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.status import StatusReader
from symphony.supervised.render import HONOURED, HostManifest, render
from symphony.supervised.resources.leases import PortLeases
from symphony.supervised.resources.ports import ExperimentPorts
from symphony.supervised.user_requests.stop import stop

HOST = "127.0.0.1"
# The settings of a machine that this backend does not have. A dry run lists them as ignored.
IGNORED = {"code", "log_limit", "record_usage", "resource_limit.gpu", "resume", "tty", "umask"}
IGNORED |= {"healthy", "signal_group", "stop_command", "stop_signal"}


class DetachedBackend(Backend[HostManifest]):
    """The experiments in the directory ``root``."""

    output_includes_events = True

    def __init__(self, name: str, root: Path) -> None:
        super().__init__(name)
        self._root = root
        self._ports = PortLeases()

    # --- launching ---

    def launch(self, request: LaunchRequest) -> HostManifest:
        """Start the processes of an experiment, in the place of a finished one of this name."""
        name = request.experiment.name
        with self._reserve(name) as scheme:
            manifest = self._render(request.resolve(scheme))
            if request.dry_run:
                return manifest
            # An error must be raised before an experiment is deleted.
            request.check_name(self.observe)
            self.check(manifest)
            self.delete(name, in_order=True, at_once=False, purge=False)
            self._create(manifest, request.new_record(self.name))
        return manifest

    @contextlib.contextmanager
    def _reserve(self, experiment: str) -> Iterator[AddressScheme]:
        """Lease the ports that a plan receives. Its supervisor inherits the leases."""
        replaced = directory.find(self._root, experiment)
        with PortLeases(ExperimentPorts(replaced)) as self._ports:
            yield AddressScheme(
                backend=self.name,
                host=lambda _: HOST,
                bind_host=HOST,
                refuse=self._ports.reserve,
                avoid=self._ports.avoid,
            )

    def _render(self, plan: Plan) -> HostManifest:
        """Return the commands, directories and environments of the processes."""
        return render(
            plan,
            run_id=os.urandom(16).hex(),
            launched=time.time(),
            directory=self._root / plan.experiment,
            working_directory=Path.cwd(),
            shell="/bin/sh",
            honoured=HONOURED - IGNORED,
        )

    def check(self, manifest: HostManifest) -> str:
        """Check that the commands, directories and secrets of an experiment exist."""
        preflight.check(manifest)
        return "every command, directory and secret exists"

    def _create(self, manifest: HostManifest, record: Mapping[str, Any]) -> None:
        """Write the directory of an experiment, and start its supervisor."""
        run = RunDirectory(self._root / manifest.experiment)
        with directory.launch_lock(self._root):
            if run.manifest.exists() or run.is_locked():
                raise experiment_exists(manifest.experiment)
            # A program that was killed can have left an incomplete directory behind.
            directory.remove_tree(run.path)
            run.logs.mkdir(mode=0o700, parents=True)
            lock = os.open(run.lock, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            preflight.write_secrets(run, manifest)
            preflight.write_configs(run, manifest)
            run.file(RECORD_FILE).write_text(json.dumps(record))
            run.write_manifest(manifest.to_dict())
            self._start_supervisor(run, lock)
        except BaseException:
            os.close(lock)
            self.delete(manifest.experiment, in_order=False, at_once=True, purge=True)
            raise
        os.close(lock)

    def _start_supervisor(self, run: RunDirectory, lock: int) -> None:
        """Return when all processes have started that wait for nothing."""
        while self._ports.holds:
            # From now on, the servers can bind their ports.
            os.close(self._ports.holds.popitem()[1])
        with run.supervisor_log.open("w+") as log:
            done = subprocess.run(
                [sys.executable, "-m", "symphony_detached.supervisor", str(run.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[lock, *self._ports.leases.values()],
                check=False,
            )
            if done.returncode:
                log.seek(0)
                raise LaunchFailed(f"the supervisor of {run.name!r} failed: {log.read().strip()}")

    # --- ending ---

    def request(self, experiment: str, request: ProcessRequest) -> Sequence[ProcessStatus] | None:
        """Stop an experiment, but keep its directory. Other requests are not supported."""
        if request.kind != "end":
            return super().request(experiment, request)
        with self._find(experiment).pin() as run:
            stop(run, at_once=request.grace == 0)
        return None

    def delete(self, experiment: str, *, in_order: bool, at_once: bool, purge: bool) -> None:
        """Stop an experiment, and remove its directory. This backend keeps no record of it."""
        del purge
        found = directory.find(self._root, experiment)
        if found is not None:
            with found.pin() as run:
                stop(run, in_order=in_order, at_once=at_once)
                run.remove()

    # --- observing ---

    def names(self) -> Collection[str]:
        """Return the names of the directories of experiments."""
        return [run.name for run in directory.find_all(self._root)]

    def observe(self, experiment: str) -> ExperimentStatus:
        """Compute the status from the events, and from what is running."""
        return StatusReader(self._find(experiment)).read()

    @contextlib.contextmanager
    def watch(self, experiment: str | None, *, follow: bool = True) -> Iterator[Watch]:
        """Read the events again as soon as there are new ones."""
        del follow
        name = self._single(experiment)
        with growing({"events": self._find(name).events}) as wait_for_events:
            yield Watch(lambda: WatchedStatuses([self.observe(name)]), wait_for_events)

    def record(self, experiment: str, pattern: str) -> Mapping[str, bytes]:
        """Return files of the directory, such as the description of the launch."""
        return read_files(self._find(experiment).path, pattern)

    def topology(self, experiment: str) -> Topology:
        """Return the connections of the processes."""
        return topology(self._find(experiment).load_manifest(), self.observe(experiment))

    def output(self, experiment: str, selection: Selection) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield what is in the log files and the events, and then what is added to them."""
        run = self._find(experiment)
        return iter_output(run, selection, status=StatusReader(run), clean=str, ignored=None)

    def external_addresses(self, experiment: str, service: str | None = None) -> Mapping[str, str]:
        """Return the addresses of the exposed services, which are those on this machine."""
        del service
        manifest = self._find(experiment).load_manifest()
        return {name: manifest["services"][name] for name in manifest["exposed"]}

    def _find(self, experiment: str) -> RunDirectory:
        run = directory.find(self._root, experiment)
        if run is None:
            raise experiment_not_found(experiment, self.names())
        return run
