"""The part of the kube backend that `Cluster` calls; see `symphony.cluster.backend`.

Each method delegates to the module that implements it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.cluster.backend import (
    Access,
    ChangeRequest,
    LaunchRequest,
    ProcessRequest,
    RecordedRuns,
)
from symphony.cluster.cluster import Manifest
from symphony_kube.kube_inspection import KubeInspection

if TYPE_CHECKING:
    from symphony.plan.changes import Changes
    from symphony.status import ProcessStatus
    from symphony_kube.kube_launcher import KubeLauncher
    from symphony_kube.kube_planner import KubePlanner


class KubeBackend(KubeInspection):
    """The experiments in a Kubernetes cluster."""

    # The processes of a group share a Pod.
    groups_start_together = True

    @functools.cached_property
    def planner(self) -> KubePlanner:
        """The object that makes the objects of experiments."""
        from symphony_kube.kube_planner import KubePlanner

        return KubePlanner(self.options)

    @functools.cached_property
    def launcher(self) -> KubeLauncher:
        """The object that launches and changes experiments."""
        from symphony_kube.kube_launcher import KubeLauncher

        return KubeLauncher(self.options, self.planner)

    # --- launching ---

    def launch(self, request: LaunchRequest) -> Manifest:
        """Create an experiment's objects. If any object cannot be created, delete the others.

        A dry run sends no requests.
        """
        if request.dry_run:
            return self.planner.manifest(request.experiment, request.defaults)
        return self.launcher.launch(request)

    def check(self, manifest: Manifest) -> str:
        """Have the API server validate every object without creating it."""
        from symphony_kube.lifecycle import server_check
        from symphony_kube.render.manifest import KubeManifest

        if isinstance(manifest, KubeManifest):
            server_check.check_with_server(self.api, manifest)
        return "the API server would accept all objects"

    # --- ending ---

    def delete(self, experiment: str, *, in_order: bool, at_once: bool, purge: bool) -> None:
        """Delete an experiment's objects, and return when they no longer exist."""
        from symphony_kube.lifecycle import delete

        delete.delete(
            self.target(experiment),
            jobs_only=self.options.launch.rendering.jobs_only,
            keeping=self.launcher.keeping_record(purge=purge),
            in_order=in_order,
            at_once=at_once,
        )

    # --- changing ---

    def change(self, request: ChangeRequest) -> Changes:
        """Compare the objects of a running experiment with the requested ones, and change them."""
        if request.dry_run:
            return self.launcher.diff(request)
        return self.launcher.change(request)

    def request(self, experiment: str, request: ProcessRequest) -> Sequence[ProcessStatus] | None:
        """Record what is requested in the objects of processes, and carry it out.

        A signal is sent by a shell in the container. An experiment that ends keeps its Pods with
        their logs.
        """
        from symphony_kube import client_requests
        from symphony_kube.user_requests.send_signal import send_signal

        target, processes = self.target(experiment), request.processes
        if request.kind == "signal":
            return send_signal(target, processes, request.signal, force=request.force)
        grace, timeout = request.grace, request.timeout
        self.ensure_supervisor(experiment)
        if request.kind == "end":
            from symphony_kube import stop_experiment

            stop_experiment.stop_for_good(target, at_once=grace == 0)
            return None
        if request.kind == "stop":
            return client_requests.stop(target, processes, grace=grace, timeout=timeout)
        with self.launcher.sending_recorded_code(experiment):
            if request.kind == "start":
                return client_requests.start(target, processes, timeout=timeout)
            return client_requests.restart(target, processes, grace=grace, timeout=timeout)

    # --- runs and processes ---

    @property
    def recorded_runs(self) -> RecordedRuns:
        """The object that finds and reads runs by their records and objects."""
        from symphony_kube.kube_recorded_runs import KubeRecordedRuns

        return KubeRecordedRuns(self)

    @property
    def access(self) -> Access:
        """The object that reaches the containers of processes."""
        from symphony_kube.access.kube_access import KubeAccess

        return KubeAccess(self, self.target)
