"""The kube backend's `Cluster` class, which adds the options of the backend."""

from __future__ import annotations

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
from symphony_kube.api.connection import ApiConnection
from symphony_kube.api.labels import Scope, Scopes
from symphony_kube.api.retries import PATIENCE_SECONDS
from symphony_kube.backend import KubeBackend
from symphony_kube.kube_options import KubeOptions
from symphony_kube.launch_options import BIND_HOST, LAUNCH_OPTION_NAMES, read_launch_options
from symphony_kube.render.options import GPU, Expose, RenderOptions

if TYPE_CHECKING:
    from symphony.model import Experiment
    from symphony.model.settings.validators import Strings
    from symphony.plan.plan import Plan
    from symphony_kube.api.client import Api


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
    launch_option_names: ClassVar[tuple[str, ...]] = LAUNCH_OPTION_NAMES
    _removed_options: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"git_image": "no volume needs it, because code has replaced git_repo; remove the option"}
    )

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
        if context is not None:
            validators.nonempty_text(context, "context")
        if kubeconfig is not None:
            validators.path(kubeconfig, "kubeconfig")
        validators.whole_number(connections, "connections", least=1)
        self._launch_options = read_launch_options(
            namespace=namespace,
            jobs_only=jobs_only,
            image=image,
            expose=expose,
            service_account=service_account,
            image_pull_secrets=image_pull_secrets,
            gpu_resource=gpu_resource,
            code_image=code_image,
            supervisor_image=supervisor_image,
            pod_yml=pod_yml,
            job_yml=job_yml,
            service_yml=service_yml,
            namespace_yml=namespace_yml,
            security=security,
            bind_host=bind_host,
        )
        is_valid = namespace is None or (isinstance(namespace, str) and is_name(namespace))
        if not is_valid:
            raise SpecError(
                f"a namespace consists of a-z, 0-9 and '-', at most {MAX_LENGTH} characters, "
                f"not {shown(namespace)}"
            )
        # A default image applies to every process without an image of its own.
        self.requires_image = image is None
        self._scopes = Scopes(namespace)
        self._connection = ApiConnection(
            kubeconfig=kubeconfig,
            context=context,
            connections=connections,
            patience=parse_exact_seconds(patience, "patience"),
        )

    @property
    def namespace(self) -> str | None:
        """The namespace for all experiments, or None if each experiment gets its own namespace."""
        return self._scopes.namespace

    @property
    def options(self) -> RenderOptions:
        """The options that determine how experiments are rendered."""
        return self._launch_options.rendering

    @property
    def api(self) -> Api:
        """The client for the API server. It is created on first use. A dry run uses it only with
        ``dry_run="server"``.
        """
        return self._connection.api

    @functools.cached_property
    def implementation(self) -> KubeBackend:
        """The part of the cluster that sends requests to the API server."""
        return KubeBackend(
            KubeOptions(
                backend=self.backend,
                connection=self._connection,
                scopes=self._scopes,
                launch=self._launch_options,
                configuration=self.configuration,
            )
        )

    def scope(self, experiment: str) -> Scope:
        """Return the namespace, names and labels of an experiment's objects."""
        return self._scopes.of(experiment)

    def plan(self, experiment: Experiment) -> Plan:
        """Resolve an experiment for this cluster without sending any requests.

        Raises `SpecError`.
        """
        return self.implementation.planner.plan(experiment, self.defaults, self._launch_options)

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
