"""Launching experiments on Slurm: from the description to the job that is submitted."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.archive.code_state import CodeCapture
from symphony.code.take_snapshots import take_snapshots
from symphony.errors import NotFound
from symphony.plan.restart_policy import Backoff
from symphony.supervised import preflight
from symphony.supervised.record import archived_record as records
from symphony.supervised.record import directory
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.note import NOTE_BYTES
from symphony.supervised.record.run_paths import REMOTE_FILE
from symphony.support.import_path import own_import_path
from symphony_slurm import slurm
from symphony_slurm.run_files import JOB_FILE, JOBS_NAME
from symphony_slurm.submit.check_job import check_fits_partition
from symphony_slurm.submit.node_check import check_before_first_launch

if TYPE_CHECKING:
    from symphony.cluster.backend import LaunchRequest
    from symphony.code.snapshot import CodeArchives
    from symphony.supervised.host_deletion import HostDeletion
    from symphony.supervised.host_options import HostOptions
    from symphony.supervised.host_runs import HostRuns
    from symphony_slurm.plan_job import SlurmPlanner
    from symphony_slurm.render import JobOptions, SlurmManifest

_TOKEN_BYTES = 32


class SlurmLauncher:
    """Submits the jobs of experiments.

    ``planner`` makes their manifests, and ``deletion`` removes those that are replaced.
    """

    def __init__(
        self,
        options: HostOptions,
        runs: HostRuns,
        planner: SlurmPlanner,
        deletion: HostDeletion,
        job: JobOptions,
    ) -> None:
        self._options = options
        self._runs = runs
        self._planner = planner
        self._deletion = deletion
        self._job = job

    def launch(self, request: LaunchRequest) -> SlurmManifest:
        """Submit the job of an experiment, and return its manifest."""
        slurm.check_installed()
        experiment, force = request.experiment, request.force
        archives = take_snapshots(experiment)
        manifest = self._planner.render_job(experiment, request.defaults, archives)
        self._check_files(manifest)
        check_fits_partition(manifest, self._job.partition)
        check_before_first_launch(self._runs.root, manifest, self._job)
        if force and directory.find(self._runs.root, experiment.name) is not None:
            slurm.check_replacement(manifest.script, slurm.submission_environment())
        with (
            directory.full_disk_errors(self._runs.root, len(manifest.processes)),
            directory.staging_directory(self._runs.root, experiment.name) as (staging, _),
        ):
            if not force:
                self._deletion.free_name(experiment.name)
            self._write(staging, request, manifest, archives)
            if force:
                # If a file cannot be written, the experiment that is replaced keeps running.
                self._deletion.delete(experiment.name)
            run = self._claim(staging, experiment.name, Path(manifest.directory))
            try:
                number = slurm.submit([], manifest.script, slurm.submission_environment())
                run.file(JOB_FILE).write_text(number)
            except BaseException:
                self._deletion.delete(manifest.experiment, manifest.run_id, purge=True)
                raise
        if manifest.note and request.on_change is not None:
            with contextlib.suppress(NotFound):
                status = self._runs.status(self._runs.find(experiment.name))
                request.on_change(replace(status, note=manifest.note))
        return manifest

    def _check_files(self, manifest: SlurmManifest) -> None:
        """Check that directories, commands and secrets exist on the shared file system.

        Modules and a prologue can provide commands that do not exist on this machine.
        """
        preflight.check(manifest if self._job.checks_commands else replace(manifest, processes=()))

    def _write(
        self,
        staging: RunDirectory,
        request: LaunchRequest,
        manifest: SlurmManifest,
        archives: CodeArchives,
    ) -> None:
        """Write all files of a new run."""
        staging.write_manifest(manifest.to_dict())
        preflight.write_secrets(staging, manifest)
        preflight.write_code(staging, manifest, archives)
        job = {
            "backend": self._options.backend,
            "path": own_import_path(),
            "working_directory": str(Path.cwd()),
            "run_id": manifest.run_id,
            "launched": manifest.launched,
            "defaults": asdict(request.defaults),
            "backoff": (self._options.backoff or Backoff())._asdict(),
            "nodes": manifest.shape.nodes,
            "process_count": len(manifest.processes),
            "requested": manifest.requested,
        }
        staging.file(REMOTE_FILE).touch()
        # On a full disk, the job can overwrite this file.
        staging.note.write_bytes(b" " * NOTE_BYTES)
        staging.file("job.json").write_text(json.dumps(job))
        token = staging.file("token")
        token.touch(mode=0o600)
        token.write_bytes(os.urandom(_TOKEN_BYTES))
        source = request.experiment.base_dir or Path.cwd()
        with CodeCapture(source, staging.file(".")) as code:
            records.write_launch_record(
                staging,
                request.experiment,
                self._options.backend,
                manifest.run_name,
                manifest.launched,
                dict(request.options),
            )
            code.start()

    def _claim(self, staging: RunDirectory, name: str, path: Path) -> RunDirectory:
        """Move a run directory to its own path, and give it the name of the experiment."""
        path.parent.mkdir(mode=0o700, exist_ok=True)
        staging.path.rename(path)
        link = self._runs.root / name
        try:
            link.symlink_to(Path(JOBS_NAME) / path.name)
        except FileExistsError:
            path.rename(staging.path)
            raise self._runs.name_in_use(name) from None
        return RunDirectory(link)
