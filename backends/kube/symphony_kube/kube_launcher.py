"""Launching, changing and deleting experiments, and recording them on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import secrets
import threading
from typing import TYPE_CHECKING

from symphony.archive.archive import configured_retention
from symphony.errors import SymphonyError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.archive import recording
from symphony_kube.archive.recording import Settings

if TYPE_CHECKING:
    from symphony.cluster.backend import ChangeRequest, LaunchRequest
    from symphony.code.snapshot import CodeArchives
    from symphony.plan.changes import Changes
    from symphony_kube.access.send_code import CodeSender
    from symphony_kube.api.client import Api
    from symphony_kube.api.labels import Scope
    from symphony_kube.kube_options import KubeOptions
    from symphony_kube.kube_planner import KubePlanner
    from symphony_kube.lifecycle.delete import Keeping
    from symphony_kube.render.manifest import KubeManifest


class KubeLauncher:
    """Launches and changes experiments, whose objects ``planner`` makes."""

    def __init__(self, options: KubeOptions, planner: KubePlanner) -> None:
        self._options = options
        self._planner = planner

    @property
    def _api(self) -> Api:
        return self._options.connection.api

    def launch(self, request: LaunchRequest) -> KubeManifest:
        """Create an experiment's objects. If any object cannot be created, delete the others.

        Return when all objects have been created that do not wait for other processes. The others
        are created by the supervisor.
        """
        from symphony_kube.lifecycle import launch
        from symphony_kube.lifecycle.description import Description

        experiment = request.experiment
        new = self._planner.describe(request, None)
        manifest = new.manifest
        run = recording.Launch.new(experiment.name, secrets.token_hex(6))
        settings = self.record_settings()
        description = Description(
            snapshot=new.snapshot,
            record=new.record,
            run_id=run.run_id,
            run_name=run.run,
            launched=run.launched,
            jobs_only=new.jobs_only,
            options=new.options,
        )
        scope = dataclasses.replace(manifest.scope, run=run.run_id)
        with (
            recording.recording_launch(self._api, new, experiment, run, settings) as record_notes,
            self.sending_code(scope, new.archives) as code,
        ):
            notes = launch.launch(
                self._api,
                manifest,
                run_id=run.run_id,
                force=request.force,
                supervisor=new.supervisor,
                run_name=run.run,
                keeping=self.keeping_record(launching=run.run),
                description=description,
                await_code=lambda: None if code is None else code.finish(),
            )
        return dataclasses.replace(
            manifest,
            notes=(
                *notes,
                *record_notes,
                *self._usage_notes(manifest),
                *self._server_warnings(),
            ),
        )

    # --- changing ---

    def diff(self, request: ChangeRequest) -> Changes:
        """Return how the objects of a running experiment differ from those that are requested."""
        from symphony_kube.changes import apply_changes

        scope = self._options.scopes.of(request.experiment.name)
        describe = functools.partial(self._planner.describe, request)
        return apply_changes.diff(KubeExperiment(self._api, scope), describe, request.start)

    def change(self, request: ChangeRequest) -> Changes:
        """Change the objects of a running experiment, and record the change."""
        from symphony_kube.changes import apply_changes

        experiment = request.experiment
        scope = self._options.scopes.of(experiment.name)
        describe = functools.partial(self._planner.describe, request)
        difference = apply_changes.change(
            KubeExperiment(self._api, scope), describe, self.sending_code, request.start
        )
        changes = difference.made_changes
        recording.record_change(
            KubeExperiment(self._api, scope), difference.new, changes, experiment
        )
        notes = [*changes.notes, *self._server_warnings()]
        if changes.policies:
            notes += self._usage_notes(difference.new.manifest)
        return dataclasses.replace(changes, notes=tuple(notes))

    # --- code ---

    def sending_code(
        self, scope: Scope, archives: CodeArchives
    ) -> contextlib.AbstractContextManager[CodeSender | None]:
        """Return a context in which large code is sent to the Pods that wait for it."""
        from symphony_kube.render.file_objects.code_volumes import is_small

        large = [archive for archive in archives.values() if not is_small(archive)]
        if not large:
            return contextlib.nullcontext()
        from symphony_kube.access.send_code import sending

        return sending(KubeExperiment(self._api, scope), large)

    def sending_recorded_code(
        self, experiment: str
    ) -> contextlib.AbstractContextManager[CodeSender | None]:
        """Do the same for the code in the record of the running experiment on this machine."""
        scope = self._options.scopes.of(experiment)
        return self.sending_code(scope, recording.recorded_code(KubeExperiment(self._api, scope)))

    # --- records ---

    def record_settings(self) -> Settings:
        """Return which records and logs are kept, according to the configuration."""
        from symphony_kube.archive.fetch_logs import configured_limits

        configured = self._options.configuration.get("runs", {})
        retention = configured_retention(configured)
        return Settings(retention=retention, limits=configured_limits(configured))

    def keeping_record(self, *, purge: bool = False, launching: str = "") -> Keeping:
        """Return a function for `delete.delete` that keeps the record of the deleted run."""
        return functools.partial(
            recording.keeping_record,
            settings=self.record_settings(),
            purge=purge,
            launching=launching,
        )

    # --- notes for the user ---

    def _server_warnings(self) -> list[str]:
        """Return the warnings of the API server since the last call."""
        return [f"the API server warns: {text}" for text in self._api.warnings.take()]

    def _usage_notes(self, manifest: KubeManifest) -> list[str]:
        """Return why the resource use of an experiment is not recorded, if it is not."""
        from symphony_kube.status.metrics_server import read_metrics

        if manifest.policies.record_usage:
            # The command does not wait for a metrics server that is down.
            once = threading.Event()
            once.set()
            try:
                read_metrics(KubeExperiment(self._api, manifest.scope), cancelled=once)
            except SymphonyError as exc:
                return [f"the resource use is not recorded: {exc}"]
        return []
