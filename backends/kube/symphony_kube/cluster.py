"""The kube backend's `Cluster` class. Each method delegates to the module that implements it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.cluster import Cluster
from symphony.errors import SpecError, shown
from symphony.model.settings import validators
from symphony.model.settings.durations import parse_exact_seconds
from symphony.support.names import MAX_LENGTH, is_name
from symphony_kube.api.labels import Scope
from symphony_kube.api.retries import PATIENCE_SECONDS, Timeouts
from symphony_kube.backend import KubeBackend
from symphony_kube.render.options import EXPOSE, GPU, RESTRICTED, Expose, RenderOptions
from symphony_kube.state.ip_families import ALL_OF_IPV4

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.cluster import Manifest, OnChange
    from symphony.cluster.backend import Inspection
    from symphony.code.snapshot import CodeArchives
    from symphony.model import Experiment
    from symphony.model.settings.validators import Strings
    from symphony.plan.plan import Plan
    from symphony_kube.api.client import Api
    from symphony_kube.archive.recording import Settings
    from symphony_kube.lifecycle.description import Description, NewDescription
    from symphony_kube.lifecycle.supervisor.in_cluster import SupervisorOptions
    from symphony_kube.render.manifest import KubeManifest

# The addresses on which processes can listen: all of IPv4, or all of IPv6 and usually also IPv4.
BIND_HOST = ALL_OF_IPV4
BIND_HOSTS = (BIND_HOST, "::")
# The first version of Kubernetes 1 with the field ``lifecycle.stopSignal``.
_FIRST_MINOR_VERSION_WITH_STOP_SIGNALS = 33


class KubeCluster(Cluster):
    """A Kubernetes cluster that runs experiments as Pods, Services and Jobs.

    By default, each experiment gets its own namespace. Users who may not create namespaces can set
    ``namespace`` to an existing namespace for all experiments. Object names then begin with the
    experiment's name. Users who may create Jobs but not Pods can set ``jobs_only``. With this
    setting, symphony creates a Job for every Pod.

    ``kubeconfig`` and ``context`` select the cluster as in kubectl. The kubeconfig is never
    modified. ``image`` is the default image for processes. ``expose`` is the type of the Services
    that are created for exposed services: LoadBalancer, NodePort or none. ``supervisor_image`` is
    an image that contains symphony with its extra ``kube``. If it is set, the supervisors of
    experiments run in the cluster instead of on this machine. ``connections`` is the maximum number
    of concurrent API requests. ``patience`` is the time for which an API server that has answered
    before can be unreachable before a method fails, in seconds or with a unit such as ``"5m"``.
    ``pod_yml``, ``job_yml``, ``service_yml`` and ``namespace_yml`` are merged into all objects of
    these kinds. With ``security="restricted"``, all Pods pass this Pod security level.
    ``bind_host`` is the address on which processes listen, which must be ``::`` in clusters without
    IPv4. ``code_image`` is an image with sh, tar and gzip that unpacks the code of processes whose
    images lack them.
    """

    backend: ClassVar[str] = "kube"
    shares_ports: ClassVar[bool] = False
    dry_run_checks_name: ClassVar[bool] = False
    exec_runs_preamble: ClassVar[bool] = False
    launch_option_names: ClassVar[tuple[str, ...]] = (
        "jobs_only",
        "image",
        "expose",
        "service_account",
        "image_pull_secrets",
        "gpu_resource",
        "code_image",
        "supervisor_image",
        "pod_yml",
        "job_yml",
        "service_yml",
        "namespace_yml",
        "security",
        "bind_host",
    )
    _removed_options: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"git_image": "no volume needs it, because code has replaced git_repo; remove the option"}
    )
    # The active run whose objects are read instead of those of any launch, and the label of these
    # objects; see `at_run`.
    _run: Run | None = None
    _run_id: str = ""

    def __init__(
        self,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        jobs_only: bool = False,
        image: str | None = None,
        expose: Expose = "LoadBalancer",
        service_account: str | None = None,
        image_pull_secrets: Sequence[str] = (),
        gpu_resource: str = GPU,
        code_image: str | None = None,
        supervisor_image: str | None = None,
        connections: int = 16,
        patience: int | str = PATIENCE_SECONDS,
        pod_yml: Mapping[str, Any] | None = None,
        job_yml: Mapping[str, Any] | None = None,
        service_yml: Mapping[str, Any] | None = None,
        namespace_yml: Mapping[str, Any] | None = None,
        security: str | None = None,
        bind_host: str = BIND_HOST,
        preamble_cmds: Strings | None = None,
        start_dir: str | None = None,
    ) -> None:
        super().__init__(preamble_cmds=preamble_cmds, start_dir=start_dir)
        for name, value in (
            ("context", context),
            ("image", image),
            ("service_account", service_account),
            ("gpu_resource", gpu_resource),
            ("code_image", code_image),
            ("supervisor_image", supervisor_image),
        ):
            if value is not None:
                validators.nonempty_text(value, name)
        if kubeconfig is not None:
            validators.path(kubeconfig, "kubeconfig")
        if isinstance(image_pull_secrets, str):
            raise SpecError(
                f"image_pull_secrets must be a list of names, not {shown(image_pull_secrets)}"
            )
        pull_secrets = validators.strings(image_pull_secrets, "image_pull_secrets")
        validators.flag(jobs_only, "jobs_only")
        validators.whole_number(connections, "connections", least=1)
        overrides: dict[str, Mapping[str, Any]] = {}
        for name, fields in (
            ("pod_yml", pod_yml),
            ("job_yml", job_yml),
            ("service_yml", service_yml),
            ("namespace_yml", namespace_yml),
        ):
            overrides[name] = {} if fields is None else validators.plain_mapping(fields, name)
        self._bind_host = validators.one_of(bind_host, BIND_HOSTS, "bind_host")
        if security not in (None, RESTRICTED):
            raise SpecError(f"security must be {RESTRICTED!r} or None, not {shown(security)}")
        if expose not in EXPOSE:
            raise SpecError(f"expose must be LoadBalancer, NodePort or none, not {shown(expose)}")
        if jobs_only and namespace is None:
            raise SpecError(
                "jobs_only requires a namespace in which you may create Jobs: set namespace"
            )
        is_valid = namespace is None or (isinstance(namespace, str) and is_name(namespace))
        if not is_valid:
            raise SpecError(
                f"a namespace consists of a-z, 0-9 and '-', at most {MAX_LENGTH} characters, "
                f"not {shown(namespace)}"
            )
        # A default image applies to every process without an image of its own.
        self.requires_image = image is None
        self._namespace = namespace
        self._options = RenderOptions(
            image=image,
            expose=expose,
            jobs_only=jobs_only,
            service_account=service_account,
            image_pull_secrets=tuple(pull_secrets),
            gpu_resource=gpu_resource,
            code_image=code_image,
            limits_pods=supervisor_image is None,
            security=security,
            stop_signals=False,
            **overrides,
        )
        self._context = context
        self._kubeconfig = kubeconfig
        self._connections = connections
        self._patience = parse_exact_seconds(patience, "patience")
        self._supervisor_image = supervisor_image

    @property
    def namespace(self) -> str | None:
        """The namespace for all experiments, or None if each experiment gets its own namespace."""
        return self._namespace

    @property
    def options(self) -> RenderOptions:
        """The options that determine how experiments are rendered."""
        return self._options

    @functools.cached_property
    def api(self) -> Api:
        """The client for the API server. It is created on first use. A dry run uses it only with
        ``dry_run="server"``.
        """
        from symphony_kube.api.client import Api

        return Api(
            kubeconfig=self._kubeconfig,
            context=self._context,
            connections=self._connections,
            timeouts=Timeouts(outage=self._patience),
        )

    @functools.cached_property
    def implementation(self) -> KubeBackend:
        """The part of the cluster that sends requests to the API server."""
        return KubeBackend(
            self.backend,
            connect=lambda: self.api,
            scope=self.scope,
            namespace=self.namespace,
            jobs_only=self.options.jobs_only,
            manifest=self._manifest,
            launch=self._launch,
            at_run=self._at_run,
            describe=self._describe,
            record_settings=self._record_settings,
            run=self._run,
        )

    def scope(self, experiment: str) -> Scope:
        """Return the namespace, names and labels of an experiment's objects."""
        if self.namespace is None:
            return Scope(experiment=experiment, namespace=experiment, run=self._run_id)
        return Scope(experiment=experiment, namespace=self.namespace, shared=True, run=self._run_id)

    # --- launching ---

    def plan(self, experiment: Experiment) -> Plan:
        """Resolve an experiment for this cluster without sending any requests.

        Raises `SpecError`.
        """
        return self._plan(experiment, {})

    def _plan(self, experiment: Experiment, present: Mapping[str, int]) -> Plan:
        """Resolve an experiment. ``present`` maps the services of a running experiment to their
        ports.
        """
        from symphony.plan.resolution.addresses import AddressScheme
        from symphony.plan.resolve import resolve
        from symphony_kube.render.pod_parts.rank_launcher import with_shared_pods

        scope = self.scope(experiment.name)
        scheme = AddressScheme(
            backend=self.backend,
            host=scope.object_name,
            bind_host=self._bind_host,
            present=present,
            shares_ports=self.shares_ports,
            rank_host=scope.object_name,
        )
        return with_shared_pods(resolve(experiment, scheme, self.defaults))

    def _manifest(self, experiment: Experiment) -> KubeManifest:
        """Return the objects that a launch would create, without sending any requests.

        Raises `SpecError`.
        """
        from symphony.code.take_snapshots import take_snapshots
        from symphony_kube.render.file_objects.files import check_start_directories, read_files

        plan = self.plan(experiment)
        archives = take_snapshots(experiment)
        check_start_directories(plan, archives)
        return self._render(plan, read_files(plan), archives, self.options)

    def _render(
        self,
        plan: Plan,
        files: Mapping[str, bytes],
        archives: CodeArchives,
        options: RenderOptions,
    ) -> KubeManifest:
        from symphony_kube.render import experiment as render

        scope = self.scope(plan.experiment)
        manifest = render.render(plan, scope, options, files, archives)
        manifest = dataclasses.replace(manifest, bind_host=self._bind_host)
        if not manifest.needs_supervisor:
            return manifest
        where = "starts a supervisor on this machine"
        if self._supervisor_image is not None:
            where = (
                "creates the objects of a supervisor: a Secret, a ServiceAccount, a Role, a "
                f"RoleBinding and a Job with the image {self._supervisor_image}"
            )
        return dataclasses.replace(manifest, supervisor=where)

    def _launch(
        self, experiment: Experiment, *, force: bool, on_change: OnChange = None
    ) -> Manifest:
        """Create an experiment's objects. If any object cannot be created, delete the others.

        Return when all objects have been created that do not wait for other processes. The others
        are created by the supervisor.
        """
        import secrets

        from symphony_kube.archive import recording
        from symphony_kube.lifecycle import launch
        from symphony_kube.lifecycle.description import Description

        del on_change
        new = self._describe(experiment, None)
        manifest = new.manifest
        run = recording.Launch.new(experiment.name, secrets.token_hex(6))
        settings = self._record_settings()
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
            recording.recording_launch(self.api, new, experiment, run, settings) as record_notes,
            self.implementation.sending_code(scope, new.archives) as code,
        ):
            notes = launch.launch(
                self.api,
                manifest,
                run_id=run.run_id,
                force=force,
                supervisor=new.supervisor,
                run_name=run.run,
                keeping=self.implementation.keeping_record(launching=run.run),
                description=description,
                await_code=lambda: None if code is None else code.finish(),
            )
        return dataclasses.replace(
            manifest,
            notes=(
                *notes,
                *record_notes,
                *self.implementation.usage_notes(manifest),
                *self.implementation.server_warnings(),
            ),
        )

    def _supervisor_options(self, manifest: KubeManifest) -> SupervisorOptions:
        """Return the options for the supervisor of an experiment with a manifest."""
        from symphony_kube.lifecycle.supervisor.in_cluster import SupervisorOptions

        return SupervisorOptions(image=self._supervisor_image, cluster=self.options).like(
            manifest.units
        )

    def node_gpus(self, resource: str | None = None) -> dict[str, int]:
        """Return the number of allocatable GPUs on each node that is not cordoned, keyed by node
        name.

        ``resource`` is the name of their resource. The default is the option ``gpu_resource``.
        Raises `BackendError`.
        """
        from symphony.model.settings.validators import resource_name
        from symphony_kube.node_pools.live_nodes import allocatable_gpus

        if resource is None:
            resource = self.options.gpu_resource
        return allocatable_gpus(self.api, resource_name(resource, "resource"))

    # --- runs ---

    def _at_run(self, run: Run) -> Inspection:
        """Return a backend that reads the record of ``run``, or the objects of an active run."""
        from symphony.cluster.recorded_run import RecordBackend
        from symphony_kube.archive.recording import run_id_of

        if run.is_archived:
            return RecordBackend(run)
        reader = copy.copy(self)
        reader._run = run
        reader._run_id = run_id_of(run)
        return reader.implementation

    def _record_settings(self) -> Settings:
        from symphony_kube.archive.fetch_logs import configured_limits
        from symphony_kube.archive.recording import Settings

        limits = configured_limits(self.configuration.get("runs", {}))
        return Settings(retention=self._retention(), limits=limits)

    # --- changing ---

    def _describe(self, experiment: Experiment, running: Description | None) -> NewDescription:
        """Return the new description of an experiment.

        If ``running`` describes the running experiment, the services keep their ports, and the
        options with which it was launched are kept unless this cluster has others.
        """
        present = {} if running is None else running.ports
        earlier = {} if running is None else running.options
        return self._with_options_of(earlier)._new_description(experiment, present)

    def _with_options_of(self, earlier: Mapping[str, Any]) -> KubeCluster:
        """Return a cluster with the options ``earlier`` that this cluster does not set."""
        from symphony.archive.run_record import known_launch_options

        kept = known_launch_options(earlier, self.launch_option_names)
        if kept.keys() <= self.given_options.keys():
            return self
        options = {**kept, **self.given_options}
        configured = type(self)(**options)
        result = copy.copy(self)
        vars(result).update(
            given_options=options,
            requires_image=configured.requires_image,
            _options=configured._options,
            _supervisor_image=configured._supervisor_image,
            _bind_host=configured._bind_host,
        )
        return result

    def _new_description(
        self, experiment: Experiment, present: Mapping[str, int]
    ) -> NewDescription:
        """Return the description of an experiment. ``present`` maps services to their ports."""
        from symphony.archive.run_record import launch_record
        from symphony.code.take_snapshots import take_snapshots
        from symphony_kube.lifecycle.description import NewDescription
        from symphony_kube.render.file_objects.files import check_start_directories, read_files
        from symphony_kube.render.snapshot import take_snapshot

        plan = self._plan(experiment, present)
        files = read_files(plan)
        archives = take_snapshots(experiment)
        check_start_directories(plan, archives)
        options = self._options_to_record()
        knows_signals = self._knows_stop_signals(plan)
        render_options = dataclasses.replace(self.options, stop_signals=knows_signals)
        manifest = self._for_user(self._render(plan, files, archives, render_options))
        return NewDescription(
            manifest=manifest,
            snapshot=take_snapshot(plan, self.options, files, archives),
            archives=archives,
            record=launch_record(experiment, self.backend, "", 0.0, launch_options=options),
            jobs_only=self.options.jobs_only,
            supervisor=self._supervisor_options(manifest),
            options=options,
        )

    def _knows_stop_signals(self, plan: Plan) -> bool:
        """Return whether the API server knows the field for the signal of a container.

        The server is only asked if a process has a signal.
        """
        from symphony_kube.api.server_version import minor_version

        if not any(process.settings.stop_signal for process in plan):
            return False
        return minor_version(self.api) >= _FIRST_MINOR_VERSION_WITH_STOP_SIGNALS

    def _for_user(self, manifest: KubeManifest) -> KubeManifest:
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
            or self.options.jobs_only
            or may(self.api, scope, "create", "ConfigMap")
        ):
            return manifest
        return with_listed_script(manifest)

    # --- controlling processes ---

    # --- observing ---

    # --- using ---
