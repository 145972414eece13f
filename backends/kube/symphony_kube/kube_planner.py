"""The objects of an experiment: resolving and rendering it for a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symphony.code.take_snapshots import take_snapshots
from symphony.plan.resolution.addresses import AddressScheme
from symphony.plan.resolve import resolve
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.launch_options import LAUNCH_OPTION_NAMES, LaunchOptions, read_launch_options
from symphony_kube.render import experiment as render
from symphony_kube.render.file_objects.files import check_start_directories, read_files
from symphony_kube.render.pod_parts.rank_launcher import with_shared_pods

if TYPE_CHECKING:
    from symphony.cluster.backend import ChangeRequest, LaunchRequest
    from symphony.code.snapshot import CodeArchives
    from symphony.model import Experiment
    from symphony.plan.plan import Plan
    from symphony.plan.resolve import Defaults
    from symphony_kube.kube_options import KubeOptions
    from symphony_kube.lifecycle.description import Description, NewDescription
    from symphony_kube.render.manifest import KubeManifest
    from symphony_kube.render.options import RenderOptions

# The first version of Kubernetes 1 with the field ``lifecycle.stopSignal``.
_FIRST_MINOR_VERSION_WITH_STOP_SIGNALS = 33


class KubePlanner:
    """Makes the objects of experiments, for launches, dry runs and changes.

    Only `describe` sends requests.
    """

    def __init__(self, options: KubeOptions) -> None:
        self._options = options

    def manifest(self, experiment: Experiment, defaults: Defaults) -> KubeManifest:
        """Return the objects that a launch would create, without sending any requests.

        Raises `SpecError`.
        """
        launch = self._options.launch
        plan = self.plan(experiment, defaults, launch)
        archives = take_snapshots(experiment)
        check_start_directories(plan, archives)
        return self._render(plan, read_files(plan), archives, launch, launch.rendering)

    def plan(
        self,
        experiment: Experiment,
        defaults: Defaults,
        launch: LaunchOptions,
        present: Mapping[str, int] | None = None,
    ) -> Plan:
        """Resolve an experiment. ``present`` maps the services of a running experiment to their
        ports.
        """
        scope = self._options.scopes.of(experiment.name)
        scheme = AddressScheme(
            backend=self._options.backend,
            host=scope.object_name,
            bind_host=launch.bind_host,
            present=present or {},
            shares_ports=False,
            rank_host=scope.object_name,
        )
        return with_shared_pods(resolve(experiment, scheme, defaults))

    def describe(
        self, request: LaunchRequest | ChangeRequest, running: Description | None
    ) -> NewDescription:
        """Return the new description of an experiment.

        If ``running`` describes the running experiment, the services keep their ports, and the
        options with which it was launched are kept unless the request has others.
        """
        # A dry run does not need these modules.
        from symphony.archive.run_record import launch_record
        from symphony_kube.lifecycle.description import NewDescription
        from symphony_kube.lifecycle.supervisor.in_cluster import SupervisorOptions
        from symphony_kube.render.snapshot import take_snapshot

        experiment = request.experiment
        present = {} if running is None else running.ports
        earlier = {} if running is None else running.options
        recorded, launch = self.launch_options(request.options, earlier)
        plan = self.plan(experiment, request.defaults, launch, present)
        files = read_files(plan)
        archives = take_snapshots(experiment)
        check_start_directories(plan, archives)
        knows_signals = self._knows_stop_signals(plan)
        rendering = dataclasses.replace(launch.rendering, stop_signals=knows_signals)
        manifest = self._render(plan, files, archives, launch, rendering)
        manifest = self._for_user(manifest, launch)
        record = launch_record(experiment, self._options.backend, "", 0.0, launch_options=recorded)
        supervisor = SupervisorOptions(image=launch.supervisor_image, cluster=launch.rendering)
        return NewDescription(
            manifest=manifest,
            snapshot=take_snapshot(plan, launch.rendering, files, archives),
            archives=archives,
            record=record,
            jobs_only=launch.rendering.jobs_only,
            supervisor=supervisor.like(manifest.units),
            options=recorded,
        )

    def launch_options(
        self, given: Mapping[str, Any], earlier: Mapping[str, Any]
    ) -> tuple[dict[str, Any], LaunchOptions]:
        """Return the options ``given``, and those of ``earlier`` that they do not set: as they are
        recorded, and checked.

        ``given`` are the options of this cluster, and ``earlier`` those of the running experiment.
        """
        from symphony.archive.run_record import known_launch_options

        kept = known_launch_options(earlier, LAUNCH_OPTION_NAMES)
        if kept.keys() <= given.keys():
            return dict(given), self._options.launch
        recorded = {**kept, **given}
        return recorded, read_launch_options(namespace=self._options.scopes.namespace, **recorded)

    def _render(
        self,
        plan: Plan,
        files: Mapping[str, bytes],
        archives: CodeArchives,
        launch: LaunchOptions,
        rendering: RenderOptions,
    ) -> KubeManifest:
        scope = self._options.scopes.of(plan.experiment)
        manifest = render.render(plan, scope, rendering, files, archives)
        manifest = dataclasses.replace(manifest, bind_host=launch.bind_host)
        if not manifest.needs_supervisor:
            return manifest
        where = "starts a supervisor on this machine"
        if launch.supervisor_image is not None:
            where = (
                "creates the objects of a supervisor: a Secret, a ServiceAccount, a Role, a "
                f"RoleBinding and a Job with the image {launch.supervisor_image}"
            )
        return dataclasses.replace(manifest, supervisor=where)

    # --- what the API server and the user can do ---

    def _knows_stop_signals(self, plan: Plan) -> bool:
        """Return whether the API server knows the field for the signal of a container.

        The server is only asked if a process has a signal.
        """
        from symphony_kube.api.server_version import minor_version

        if not any(process.settings.stop_signal for process in plan):
            return False
        api = self._options.connection.api
        return minor_version(api) >= _FIRST_MINOR_VERSION_WITH_STOP_SIGNALS

    def _for_user(self, manifest: KubeManifest, launch: LaunchOptions) -> KubeManifest:
        """Return a manifest whose objects the user may create, if the only obstacle is the
        ConfigMap with the script that stops programs.
        """
        from symphony_kube.lifecycle.rights import may
        from symphony_kube.render.stop_script import scripts_name, with_listed_script

        scope = manifest.scope
        script = scripts_name(scope)
        has_script = any(item["metadata"]["name"] == script for item in manifest.base_objects)
        if (
            not has_script
            or not scope.shared
            or launch.rendering.jobs_only
            or may(KubeExperiment(self._options.connection.api, scope), "create", "ConfigMap")
        ):
            return manifest
        return with_listed_script(manifest)
