"""The kube backend's verbs: each hands over to the module that does it."""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from symphony.cluster import Cluster, ExecResult
from symphony.errors import SpecError
from symphony.names import MAX_LENGTH, is_name
from symphony_kube.api.labels import Scope
from symphony_kube.render.options import EXPOSE, GIT_IMAGE, GPU, Expose, Options

if TYPE_CHECKING:
    from symphony.cluster import Manifest, OnChange, Progress, Tunnel
    from symphony.cluster.matching import Until
    from symphony.model import Experiment
    from symphony.model.validators import Strings
    from symphony.plan.resolve import Plan
    from symphony.plan.topology import Topology
    from symphony.process_details import ProcessDetails
    from symphony.status import ExperimentStatus, LogLine
    from symphony_kube.api.client import Api
    from symphony_kube.render.manifest import KubeManifest

BIND_HOST = "0.0.0.0"


class KubeCluster(Cluster):
    """Pods, Services and Jobs of a Kubernetes cluster, each experiment in a namespace of its own.

    ``namespace`` puts all experiments into one namespace that exists, for users who may not create any; there the
    names of objects begin with the experiment's. ``jobs_only`` makes every Pod a Job, for users who may create
    nothing else. ``kubeconfig`` and ``context`` choose the cluster as kubectl does; the kubeconfig is only read.
    ``image`` is for processes that have none. ``expose`` is what Services of exposed services are: LoadBalancer,
    NodePort, or none. ``connections`` is how many calls may be under way at once.
    """

    backend: ClassVar[str] = "kube"
    dry_run_checks_name: ClassVar[bool] = False
    requires_image: ClassVar[bool] = True

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
        git_image: str = GIT_IMAGE,
        connections: int = 16,
        preamble_cmds: Strings | None = None,
        start_dir: str | None = None,
    ) -> None:
        super().__init__(preamble_cmds=preamble_cmds, start_dir=start_dir)
        if expose not in EXPOSE:
            raise SpecError(f"expose is LoadBalancer, NodePort or none, not {expose!r}")
        if jobs_only and namespace is None:
            raise SpecError(
                "jobs_only is for users who may create Jobs alone, in a namespace that exists: name it"
            )
        if namespace is not None and not is_name(namespace):
            raise SpecError(
                f"a namespace is a-z, 0-9 and '-', at most {MAX_LENGTH}, not {namespace!r}"
            )
        self.namespace = namespace
        self.options = Options(
            image=image,
            expose=expose,
            jobs_only=jobs_only,
            service_account=service_account,
            image_pull_secrets=tuple(image_pull_secrets),
            gpu_resource=gpu_resource,
            git_image=git_image,
        )
        self._context = context
        self._kubeconfig = kubeconfig
        self._connections = connections

    @functools.cached_property
    def api(self) -> Api:
        """The API server; opened when it is first needed, which a dry run never does."""
        from symphony_kube.api.client import Api

        return Api(
            kubeconfig=self._kubeconfig, context=self._context, connections=self._connections
        )

    def scope(self, experiment: str) -> Scope:
        """Where an experiment's objects live."""
        if self.namespace is None:
            return Scope(experiment=experiment, namespace=experiment)
        return Scope(experiment=experiment, namespace=self.namespace, shared=True)

    # --- launching ---

    def plan(self, experiment: Experiment) -> Plan:
        """Everything about an experiment decided for this cluster, without asking it. Raises `SpecError`."""
        from symphony.plan.addresses import AddressScheme
        from symphony.plan.resolve import resolve

        scope = self.scope(experiment.name)
        scheme = AddressScheme(backend=self.backend, host=scope.object_name, bind_host=BIND_HOST)
        return resolve(experiment, scheme, self.defaults)

    def manifest(self, experiment: Experiment) -> KubeManifest:
        """The objects that a launch would create, without asking the cluster. Raises `SpecError`."""
        from symphony_kube.render import experiment as render

        plan = self.plan(experiment)
        return render.render(
            plan, self.scope(plan.experiment), self.options, render.read_files(plan)
        )

    def _launch(
        self, experiment: Experiment, *, force: bool, on_change: OnChange = None
    ) -> Manifest:
        """Create an experiment's objects, all or nothing.

        Processes that start after others are created once those are ready, have started or succeeded, and until
        then this does not return.
        """
        from symphony_kube.lifecycle import launch

        manifest = self.manifest(experiment)
        launch.launch(
            self.api, manifest, run_id=secrets.token_hex(6), force=force, on_change=on_change
        )
        return manifest

    def check(self, manifest: Manifest) -> None:
        """Have the API server check every object, and create nothing."""
        from symphony_kube.lifecycle import server_check
        from symphony_kube.render.manifest import KubeManifest

        if isinstance(manifest, KubeManifest):
            server_check.check(self.api, manifest)

    def node_gpus(self) -> dict[str, int]:
        """By node, how many GPUs a Pod can get there. Raises `BackendError`."""
        from symphony_kube.node_pools.live_nodes import allocatable_gpus

        return allocatable_gpus(self.api, self.options.gpu_resource)

    def delete(self, experiment: str) -> None:
        """Delete an experiment's objects, and return when they are gone. One that is not there is no error."""
        from symphony_kube.lifecycle import delete

        delete.delete(self.api, self.scope(experiment), jobs_only=self.options.jobs_only)

    # --- observing ---

    def list_experiments(self) -> list[str]:
        """The names of the experiments that symphony made here."""
        from symphony_kube.status import experiments

        return experiments.list_experiments(self.api, namespace=self.namespace)

    def describe_experiment(self, experiment: str) -> ExperimentStatus:
        """An experiment and its processes as they are now: one list of its Pods."""
        from symphony_kube.status import experiments

        return experiments.describe(self.api, self.scope(experiment))

    def explain_process(
        self, experiment: str, process: str, process_group: str | None = None
    ) -> ProcessDetails:
        """All that matters about one process: its Pod, and the events that the server keeps of that."""
        from symphony_kube.status import details

        return details.describe_in_detail(self.api, self.scope(experiment), process, process_group)

    def describe_topology(self, experiment: str) -> Topology:
        """Who is joined with whom: from the Pods, the roster on the first, and the Services."""
        from symphony_kube.status import topology

        return topology.describe_topology(self.api, self.scope(experiment))

    def wait(
        self,
        experiment: str,
        *,
        timeout: float | None = None,
        on_change: OnChange = None,
        until: Until = "ended",
    ) -> ExperimentStatus:
        """Return when every process has ended; see `Cluster.wait`. One list and one watch."""
        from symphony_kube.status import wait

        return wait.wait(
            self.api, self.scope(experiment), timeout=timeout, on_change=on_change, until=until
        )

    # --- using ---

    def _read_log(
        self, experiment: str, process: str, *, since: float | str | None, tail: int | None
    ) -> str:
        from symphony_kube.logs import read

        return read.read(self.api, self.scope(experiment), process, since=since, tail=tail)

    def _read_previous_log(
        self, experiment: str, process: str, *, since: float | str | None, tail: int | None
    ) -> str:
        from symphony_kube.logs import read

        return read.read(
            self.api, self.scope(experiment), process, since=since, tail=tail, previous=True
        )

    def iter_logs(
        self,
        experiment: str,
        processes: Sequence[str] | None = None,
        *,
        follow: bool = False,
        since: float | str | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """What processes wrote, line by line; see `Cluster.iter_logs`. A restart does not end it."""
        from symphony_kube.logs import read

        return read.lines(
            self.api, self.scope(experiment), processes, follow=follow, since=since, tail=tail
        )

    def exec_command(
        self,
        experiment: str,
        process: str,
        command: Strings,
        process_group: str | None = None,
        *,
        interactive: bool = False,
    ) -> ExecResult:
        """Run a command in a process's container; see `Cluster.exec_command`."""
        from symphony_kube.access import exec

        return exec.command(
            self.api,
            self.scope(experiment),
            process,
            command,
            process_group,
            interactive=interactive,
        )

    def login(self, experiment: str, process: str, process_group: str | None = None) -> None:
        """A shell in a process's container, on this terminal."""
        from symphony_kube.access import exec

        exec.login(self.api, self.scope(experiment), process, process_group)

    def transfer_file(
        self,
        experiment: str,
        source: str,
        target: str,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Copy files or folders from or to a process (``process:path``); see `symphony_kube.access.copy`."""
        from symphony_kube.access import copy

        transfer = copy.dry_run if dry_run else functools.partial(copy.transfer, progress=progress)
        transfer(self.api, self.scope(experiment), source, target)

    def external_url(self, experiment: str, service: str) -> str:
        """Where an exposed service is reached from outside: ``host:port`` of its load balancer or node port."""
        from symphony_kube.access import port_forward as forward

        return forward.external(self.api, self.scope(experiment), service)

    def port_forward(
        self,
        experiment: str,
        process_or_service: str,
        port: int | None = None,
        *,
        local_port: int | None = None,
        on_error: Callable[[str], None] | None = None,
    ) -> Tunnel:
        """Forward a port of this machine through the API server; see `Cluster.port_forward`."""
        from symphony_kube.access import port_forward as forward

        scope = self.scope(experiment)
        return forward.port_forward(
            self.api, scope, process_or_service, port, local_port, on_error=on_error
        )

    def visit(
        self, experiment: str, service: str, *, on_error: Callable[[str], None] | None = None
    ) -> Tunnel:
        """A way to a service: its address outside where that answers, else a forwarded port."""
        from symphony_kube.access import port_forward as forward

        return forward.visit(self.api, self.scope(experiment), service, on_error=on_error)
