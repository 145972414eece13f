"""Changing a running experiment: comparing it with a new manifest, and asking its supervisor.

The client prepares the change in a directory of its own, and the supervisor puts it in place in one
step; see `symphony.host.run.change_directory`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.errors import LaunchFailed, SymphonyError
from symphony.host.changes import (
    LIVE_SETTINGS,
    next_manifest,
    secret_digests,
    snapshot,
    with_gpus,
    with_present_gpus,
)
from symphony.host.run.events import previous_processes
from symphony.plan.changes import ADDED, RESTARTED, Changes, compare
from symphony.status import ENDED, ExperimentStatus

# Modules that only a change needs are imported inside functions, so that a comparison is fast.
if TYPE_CHECKING:
    from symphony.host.render import HostManifest
    from symphony.host.resources.leases import GpuLeases, PortLeases
    from symphony.host.run.directory import RunDirectory
    from symphony.host.run.events import RunState
    from symphony.host.run.status import StatusReader
    from symphony.model import Experiment


class Update:
    """The difference between a running experiment and ``manifest``.

    ``reader`` has read ``status``. ``manifest`` has the run identifier and the ports of the running
    experiment.
    """

    def __init__(
        self,
        run: RunDirectory,
        reader: StatusReader,
        status: ExperimentStatus,
        manifest: HostManifest,
    ) -> None:
        self._run = run
        self._running = reader.manifest
        ended = {process.name for process in status if process.state in ENDED}
        processes, self._missing_gpus = with_present_gpus(manifest.processes, self._running, ended)
        self._manifest = replace(manifest, processes=processes)
        self._new_keys = self._keys_to_generate()
        self.changes = self._compare(reader.state)

    def _keys_to_generate(self) -> tuple[str, ...]:
        """Return the names of the keys of encrypted services, or ``()`` if they exist already."""
        keys = self._manifest.keys
        return keys if any(not self._secret_file(key).exists() for key in keys) else ()

    def _secret_file(self, name: str) -> Path:
        from symphony.host.run import change_directory

        return change_directory.secret_file(self._run, self._running, name)

    def _compare(self, state: RunState) -> Changes:
        if self._manifest.secrets:
            from symphony.host import preflight

            preflight.check_processes(self._manifest, ())
        running, new = self._running, self._manifest
        old_secrets = secret_digests(running["secrets"], self._secret_file)
        new_secrets = secret_digests(new.secrets, lambda name: Path(new.secrets[name]))
        # All keys are generated together, so the processes that have keys must be restarted.
        old_secrets.update(dict.fromkeys(self._new_keys, "present"))
        new_secrets.update(dict.fromkeys(self._new_keys, "generated"))
        # A change in progress has not stopped these processes yet.
        leaving = [item for item in previous_processes(running) if item["name"] in state.leaving]
        present = {**running, "processes": [*running["processes"], *leaving]}
        changes = compare(
            snapshot(present, old_secrets),
            snapshot(new.to_dict(), new_secrets),
            live_settings=LIVE_SETTINGS,
            unfinished=[name for name, track in state.tracks.items() if track.outdated],
        )
        started = {*changes.names(ADDED), *changes.names(RESTARTED)}
        if started:
            from symphony.host import preflight

            preflight.check_processes(new, started)
        return changes

    def apply(
        self, experiment: Experiment, ports: PortLeases, gpus: GpuLeases, *, keep_holds: bool
    ) -> None:
        """Make the supervisor change the experiment, and return when this is done.

        ``ports`` and ``gpus`` contain the leases for new ports and GPUs, which the supervisor takes
        over. With ``keep_holds``, the holds on ports are kept until the experiment has finished.
        Raises BackendError if the supervisor refuses the change, and LaunchFailed if too few GPUs
        are free. In these cases, nothing is changed.
        """
        from symphony.host.control import send_request
        from symphony.host.run import change_directory

        self._lease_gpus(gpus)
        path = change_directory.create(self._run, self._running)
        is_sent = False

        def note_sent() -> None:
            nonlocal is_sent
            is_sent = True
            # From now on, only the supervisor determines when the leases are released.
            ports.release()
            gpus.release()

        try:
            self._write(path, experiment)
            request = {"request": "change", "directory": path.name, "keep_holds": keep_holds}
            descriptors = [
                *ports.leases.values(),
                *ports.holds.values(),
                *gpus.leases.values(),
            ]
            send_request(self._run, request, descriptors=descriptors, on_sent=note_sent)
        except BaseException as exc:
            # Without the manifest, the change has happened, and its other files are needed. A
            # caller that is interrupted does not know whether the change has begun.
            is_refused = (
                isinstance(exc, SymphonyError) and (path / change_directory.MANIFEST).exists()
            )
            if is_refused or not is_sent:
                shutil.rmtree(path, ignore_errors=True)
            raise

    def _lease_gpus(self, gpus: GpuLeases) -> None:
        """Lease the GPUs that processes need in addition."""
        from symphony.host.resources.gpus import too_few_gpus_message

        processes = []
        for process in self._manifest.processes:
            missing = self._missing_gpus.get(process.name)
            if missing:
                devices = gpus.lease(missing)
                if devices is None:
                    raise LaunchFailed(too_few_gpus_message(replace(process, gpus=missing), gpus))
                process = with_gpus(process, devices)
            processes.append(process)
        self._manifest = replace(self._manifest, processes=tuple(processes))

    def _write(self, path: Path, experiment: Experiment) -> None:
        """Write the files of the change."""
        from symphony.host.run import change_directory
        from symphony.plan.encryption_keys import generate
        from symphony.runs import record

        manifest, running = self._manifest, self._running
        data = next_manifest(running, manifest.to_dict(), self.changes, path.name)
        change_directory.write_private(path / change_directory.MANIFEST, json.dumps(data).encode())
        launched = running.get("launched", 0.0)
        description = record.launch_record(
            experiment, running["backend"], running.get("run_name", ""), launched
        )
        record.write_json(path / change_directory.RECORD, description)
        secrets = path / change_directory.SECRETS
        for name, source in manifest.secrets.items():
            content = Path(source).read_bytes()
            with contextlib.suppress(FileNotFoundError):
                if self._secret_file(name).read_bytes() == content:
                    continue
            change_directory.write_private(secrets / name, content)
        for name, key in generate(self._new_keys).items():
            change_directory.write_private(secrets / name, key.encode())
