"""Changing a running experiment: comparing it with a new manifest, and asking its supervisor.

The client prepares the change in a directory of its own, and the supervisor puts it in place in one
step; see `symphony.supervised.record.change_directory`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from symphony.errors import SymphonyError
from symphony.plan.changes import ADDED, STARTED_AGAIN, Changes, compare, idle_processes
from symphony.plan.one_shots import finished_one_shots
from symphony.status import ENDED, ExperimentStatus, State
from symphony.supervised.changed_resources import (
    LIVE_SETTINGS,
    next_manifest,
    secret_digests,
    snapshot,
    with_gpus,
    with_present_gpus,
)
from symphony.supervised.record.event_file import previous_processes

# Modules that only a change needs are imported inside functions, so that a comparison is fast.
if TYPE_CHECKING:
    from symphony.code.snapshot import CodeArchives
    from symphony.model import Experiment
    from symphony.plan.state import RunState
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony.supervised.record.directory import RunDirectory
    from symphony.supervised.record.status import StatusReader
    from symphony.supervised.render import HostManifest


class SendRequest(Protocol):
    """A function that sends a request to the supervisor, and returns when it is done.

    ``on_sent`` is called when the request has been sent. From then on, it is done even if the
    caller is interrupted.
    """

    def __call__(self, request: dict[str, Any], on_sent: Callable[[], None]) -> None:
        """Send a request."""


class ChooseGpus(Protocol):
    """A function that returns GPUs for a process, whose ``gpus`` is their number.

    ``processes`` are all processes with the GPUs that they have.
    """

    def __call__(self, process: ProcessSpec, processes: Sequence[ProcessSpec]) -> Sequence[str]:
        """Return GPUs for a process."""


class Update:
    """The difference between a running experiment and ``manifest``.

    ``reader`` has read ``status``. ``manifest`` has the run identifier and the ports of the running
    experiment. ``archives`` contains the code of its processes. ``start`` contains the processes
    that are started if they have exited; None means all. If ``checks_commands`` is false, commands
    and directories of processes need not exist on this machine.
    """

    def __init__(
        self,
        run: RunDirectory,
        reader: StatusReader,
        status: ExperimentStatus,
        manifest: HostManifest,
        archives: CodeArchives,
        *,
        start: Sequence[str] | None = None,
        checks_commands: bool = True,
    ) -> None:
        self._run = run
        self._archives = archives
        self._checks_commands = checks_commands
        self.running = reader.manifest
        ended = {process.name for process in status if process.state in ENDED}
        processes, self._missing_gpus = with_present_gpus(manifest.processes, self.running, ended)
        self.manifest = replace(manifest, processes=processes)
        self._new_keys = self._keys_to_generate()
        self.changes = self._compare(reader.state, status, start)

    def _keys_to_generate(self) -> tuple[str, ...]:
        """Return the names of the keys of encrypted services, or ``()`` if they exist already."""
        keys = self.manifest.keys
        return keys if any(not self._secret_file(key).exists() for key in keys) else ()

    def _secret_file(self, name: str) -> Path:
        from symphony.supervised.record import change_directory

        return change_directory.secret_file(self._run, self.running, name)

    def _compare(
        self, state: RunState, status: ExperimentStatus, start: Sequence[str] | None
    ) -> Changes:
        if self.manifest.secrets:
            from symphony.supervised import preflight

            preflight.check_processes(self.manifest, ())
        running, new = self.running, self.manifest
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
            idle=idle_processes(status, start),
            ended=[process.name for process in status if process.state is not State.RUNNING],
            finished=finished_one_shots(status, [item.starts_after for item in new.processes]),
            scaled=start,
        )
        started = set(changes.names(ADDED, *STARTED_AGAIN))
        if started and self._checks_commands:
            from symphony.supervised import preflight

            preflight.check_processes(new, started)
        return changes

    def apply(
        self,
        experiment: Experiment,
        send: SendRequest,
        *,
        keep_holds: bool,
        accepted: Collection[int] = (),
    ) -> None:
        """Make the supervisor change the experiment, and return when this is done.

        ``send`` also gives it the leases for new ports and GPUs. With ``keep_holds``, the holds on
        ports are kept until the experiment has finished. For ``accepted``, see
        `ProcessHost.reserve_addresses`. Raises BackendError if the supervisor
        refuses the change. In this case, nothing is changed.
        """
        from symphony.archive.code_state import CodeCapture

        with CodeCapture(experiment.base_dir or Path.cwd(), self._run.file(".")) as code:
            if self.changes.has_new_code:
                code.start()
            self._apply(experiment, send, keep_holds=keep_holds, accepted=accepted)

    def _apply(
        self,
        experiment: Experiment,
        send: SendRequest,
        *,
        keep_holds: bool,
        accepted: Collection[int],
    ) -> None:
        from symphony.supervised.record import change_directory

        path = change_directory.create(self._run, self.running)
        is_sent = False

        def note_sent() -> None:
            nonlocal is_sent
            is_sent = True

        try:
            self._write(path, experiment)
            request: dict[str, Any] = {
                "request": "change",
                "directory": path.name,
                "keep_holds": keep_holds,
            }
            if accepted:
                request["accepted"] = sorted(accepted)
            send(request, on_sent=note_sent)
        except BaseException as exc:
            # Without the manifest, the change has happened, and its other files are needed. A
            # caller that is interrupted does not know whether the change has begun.
            is_refused = (
                isinstance(exc, SymphonyError) and (path / change_directory.MANIFEST).exists()
            )
            if is_refused or not is_sent:
                shutil.rmtree(path, ignore_errors=True)
            raise

    def assign_gpus(self, choose: ChooseGpus) -> None:
        """Give processes the GPUs that they need in addition. ``choose`` returns them."""
        processes = list(self.manifest.processes)
        for index, process in enumerate(processes):
            missing = self._missing_gpus.get(process.name)
            if missing:
                devices = choose(replace(process, gpus=missing), processes)
                processes[index] = with_gpus(process, devices)
        self.manifest = replace(self.manifest, processes=tuple(processes))

    def _write(self, path: Path, experiment: Experiment) -> None:
        """Write the files of the change."""
        from symphony.archive import run_record
        from symphony.plan.resolution.encryption_keys import generate
        from symphony.supervised import preflight
        from symphony.supervised.record import change_directory

        manifest, running = self.manifest, self.running
        preflight.write_code(self._run, manifest, self._archives)
        started = [
            name for action in (ADDED, *STARTED_AGAIN) for name in self.changes.names(action)
        ]
        preflight.write_configs(self._run, manifest, started)
        data = next_manifest(running, manifest.to_dict(), self.changes, path.name)
        change_directory.write_private(path / change_directory.MANIFEST, json.dumps(data).encode())
        launched = running.get("launched", 0.0)
        earlier = run_record.read_json(self._run.file(run_record.RECORD_FILE)) or {}
        description = run_record.launch_record(
            experiment,
            running["backend"],
            running.get("run_name", ""),
            launched,
            launch_options=earlier.get("launch_options") or {},
        )
        run_record.write_json(path / change_directory.RECORD, description)
        secrets = path / change_directory.SECRETS
        for name, source in manifest.secrets.items():
            content = Path(source).read_bytes()
            with contextlib.suppress(FileNotFoundError):
                if self._secret_file(name).read_bytes() == content:
                    continue
            change_directory.write_private(secrets / name, content)
        for name, key in generate(self._new_keys).items():
            change_directory.write_private(secrets / name, key.encode())
