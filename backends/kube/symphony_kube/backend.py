"""The part of the kube backend that `Cluster` calls; see `symphony.cluster.backend`.

Each method delegates to the module that implements it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from symphony.cluster.backend import ChangeRequest, Inspection, LaunchRequest, ProcessRequest
from symphony.cluster.cluster import Manifest
from symphony.errors import SymphonyError
from symphony_kube.kube_inspection import KubeInspection

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.code.snapshot import CodeArchives
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.plan.resolve import Defaults
    from symphony.status import ProcessStatus
    from symphony_kube.access.send_code import CodeSender
    from symphony_kube.api.client import Api
    from symphony_kube.api.labels import Scope
    from symphony_kube.archive.kube_records import KubeRecords
    from symphony_kube.archive.recording import Settings
    from symphony_kube.lifecycle.delete import Keeping
    from symphony_kube.lifecycle.description import Description, NewDescription
    from symphony_kube.render.manifest import KubeManifest


class KubeBackend(KubeInspection):
    """The experiments in a Kubernetes cluster.

    * ``connect``, ``scope``, ``namespace`` and ``run`` are those of `KubeInspection`.
    * With ``jobs_only``, the user may create and delete Jobs, but no Pods.
    * ``manifest`` and ``launch`` render and launch an experiment. ``at_run`` returns a backend that
      reads the record of a run.
    * ``describe`` returns the new description of an experiment. The second argument describes the
      running experiment, if there is one.
    * ``record_settings`` returns which records and logs are kept.
    """

    def __init__(
        self,
        name: str,
        *,
        connect: Callable[[], Api],
        scope: Callable[[str], Scope],
        namespace: str | None,
        jobs_only: bool,
        manifest: Callable[[Experiment], Manifest],
        launch: Callable[..., Manifest],
        at_run: Callable[[Run], Inspection],
        describe: Callable[[Experiment, Description | None], NewDescription],
        record_settings: Callable[[], Settings],
        run: Run | None,
    ) -> None:
        super().__init__(name, connect=connect, scope=scope, namespace=namespace, run=run)
        self._jobs_only = jobs_only
        self._manifest = manifest
        self._launch = launch
        self._at_run = at_run
        self._describe = describe
        self._record_settings = record_settings

    @functools.cached_property
    def records(self) -> KubeRecords:
        """The records of experiments, in their objects and on this machine."""
        from symphony_kube.archive.kube_records import KubeRecords

        return KubeRecords(connect=self._connect, scope=self._scope, observe=self.observe)

    # --- launching ---

    def manifest(self, experiment: Experiment, defaults: Defaults) -> Manifest:
        """Return the objects that a launch would create, without sending any requests."""
        del defaults
        return self._manifest(experiment)

    def launch(self, request: LaunchRequest) -> Manifest:
        """Create an experiment's objects. If any object cannot be created, delete the others."""
        return self._launch(request.experiment, force=request.force, on_change=request.on_change)

    def at_run(self, run: Run) -> Inspection:
        """Return a backend that reads the record of a run, or the objects of an active run."""
        return self._at_run(run)

    def check(self, manifest: Manifest) -> str:
        """Have the API server validate every object without creating it."""
        from symphony_kube.lifecycle import server_check
        from symphony_kube.render.manifest import KubeManifest

        if isinstance(manifest, KubeManifest):
            server_check.check_with_server(self.api, manifest)
        return "the API server would accept all objects"

    def sending_code(
        self, scope: Scope, archives: CodeArchives
    ) -> contextlib.AbstractContextManager[CodeSender | None]:
        """Return a context in which large code is sent to the Pods that wait for it."""
        from symphony_kube.render.file_objects.code_volumes import is_small

        large = [archive for archive in archives.values() if not is_small(archive)]
        if not large:
            return contextlib.nullcontext()
        from symphony_kube.access.send_code import sending

        return sending(self.api, scope, large)

    def sending_recorded_code(
        self, experiment: str
    ) -> contextlib.AbstractContextManager[CodeSender | None]:
        """Do the same for the code in the record of the running experiment on this machine."""
        from symphony_kube.archive import recording

        scope = self._scope(experiment)
        return self.sending_code(scope, recording.recorded_code(self.api, scope))

    def server_warnings(self) -> list[str]:
        """Return the warnings of the API server since the last call, for the user."""
        return [f"the API server warns: {text}" for text in self.api.warnings.take()]

    def usage_notes(self, manifest: KubeManifest) -> list[str]:
        """Return why the resource use of an experiment is not recorded, if it is not."""
        from symphony_kube.status.metrics_server import read_metrics

        if manifest.policies.record_usage:
            # The command does not wait for a metrics server that is down.
            once = threading.Event()
            once.set()
            try:
                read_metrics(self.api, manifest.scope, cancelled=once)
            except SymphonyError as exc:
                return [f"the resource use is not recorded: {exc}"]
        return []

    # --- ending ---

    def stop(self, experiment: str, *, at_once: bool) -> None:
        """Stop an experiment for good, and keep its Pods with their logs."""
        from symphony_kube import stop_experiment

        self.ensure_supervisor(experiment)
        stop_experiment.stop_for_good(self.api, self._scope(experiment), at_once=at_once)

    def delete(self, experiment: str, *, in_order: bool, at_once: bool, purge: bool) -> None:
        """Delete an experiment's objects, and return when they no longer exist."""
        from symphony_kube.lifecycle import delete

        delete.delete(
            self.api,
            self._scope(experiment),
            jobs_only=self._jobs_only,
            keeping=self.keeping_record(purge=purge),
            in_order=in_order,
            at_once=at_once,
        )

    def keeping_record(self, *, purge: bool = False, launching: str = "") -> Keeping:
        """Return a function for `delete.delete` that keeps the record of the deleted run."""
        from symphony_kube.archive import recording

        return functools.partial(
            recording.keeping_record,
            self.api,
            settings=self._record_settings(),
            purge=purge,
            launching=launching,
        )

    # --- observing ---

    # --- changing ---

    def diff(self, request: ChangeRequest) -> Changes:
        """Return how the objects of a running experiment differ from those that are requested."""
        from symphony_kube import apply_changes

        scope = self._scope(request.experiment.name)
        describe = functools.partial(self._describe, request.experiment)
        return apply_changes.diff(self.api, scope, describe, request.start)

    def change(self, request: ChangeRequest) -> Changes:
        """Change the objects of a running experiment."""
        from symphony_kube import apply_changes
        from symphony_kube.archive import recording

        experiment, start = request.experiment, request.start
        scope = self._scope(experiment.name)
        describe = functools.partial(self._describe, experiment)
        difference = apply_changes.change(self.api, scope, describe, self.sending_code, start)
        changes = difference.made_changes
        recording.record_change(self.api, scope, difference.new, changes, experiment)
        notes = [*changes.notes, *self.server_warnings()]
        if changes.policies:
            notes += self.usage_notes(difference.new.manifest)
        return dataclasses.replace(changes, notes=tuple(notes))

    # The processes of a group share a Pod.
    groups_start_together = True

    def request(self, experiment: str, request: ProcessRequest) -> Sequence[ProcessStatus]:
        """Record what is requested in the objects of processes, and carry it out.

        A signal is sent by a shell in the container.
        """
        from symphony_kube import client_requests
        from symphony_kube.user_requests.send_signal import send_signal

        scope, processes = self._scope(experiment), request.processes
        if request.kind == "signal":
            return send_signal(self.api, scope, processes, request.signal, force=request.force)
        grace, timeout = request.grace, request.timeout
        self.ensure_supervisor(experiment)
        if request.kind == "stop":
            return client_requests.stop(self.api, scope, processes, grace=grace, timeout=timeout)
        with self.sending_recorded_code(experiment):
            if request.kind == "start":
                return client_requests.start(self.api, scope, processes, timeout=timeout)
            return client_requests.restart(self.api, scope, processes, grace=grace, timeout=timeout)
