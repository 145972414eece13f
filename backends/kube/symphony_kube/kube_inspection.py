"""The part of the kube backend that reads experiments: their states, events, logs and details."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.cluster.backend import Backend, Selection, WaitGoal, Watch, wait_for_poll
from symphony.cluster.cluster import Manifest
from symphony.errors import NotFound
from symphony_kube.api.kube_experiment import KubeExperiment

if TYPE_CHECKING:
    from symphony.cluster import OnChange, WatchedStatuses
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock
    from symphony.plan.topology import Topology
    from symphony.process_details import ProcessDetails
    from symphony.status import ExperimentStatus, ProcessStatus
    from symphony.usage import ExperimentUsage
    from symphony_kube.api.client import Api
    from symphony_kube.kube_options import KubeOptions


class KubeInspection(Backend[Manifest]):
    """Read experiments from their objects. Each method delegates to the module that implements it.

    The objects are those of the launch ``options.run``, or of any launch if it is None.
    """

    followed_output_includes_events = True
    keeps_previous_output = True

    def __init__(self, options: KubeOptions) -> None:
        super().__init__(options.backend)
        self.options = options

    @property
    def api(self) -> Api:
        """The client for the API server."""
        return self.options.connection.api

    def target(self, experiment: str) -> KubeExperiment:
        """Return an experiment with its client."""
        return KubeExperiment(self.api, self.options.scopes.of(experiment))

    def ensure_supervisor(self, experiment: str) -> None:
        """Start the supervisor that runs on this machine again, if it was killed."""
        from symphony_kube.lifecycle.supervisor import detached

        detached.ensure_running(detached.directory_of(self.target(experiment)))

    def names(self) -> Collection[str]:
        """Return the names of the experiments in the shared namespace.

        If no shared namespace is set, return the names of all experiments that have their own
        namespace.
        """
        from symphony_kube.status import experiments

        return experiments.list_experiments(self.api, namespace=self.options.scopes.namespace)

    @property
    def location(self) -> str:
        """The shared namespace, if it is set, and the API server."""
        from symphony_kube.status import experiments

        return experiments.location(self.api, self.options.scopes.namespace)

    def observe(self, experiment: str) -> ExperimentStatus:
        """Return the status that the objects of an experiment show."""
        from symphony_kube.api.background import Background
        from symphony_kube.status.list_objects import list_pods

        target = self.target(experiment)
        pods_request = Background(functools.partial(list_pods, target))
        # Import the modules that evaluate the Pods while the API server lists them, because both
        # take time.
        from symphony_kube.status import experiments

        self.ensure_supervisor(experiment)
        status = experiments.experiment_status(target, pods_request)
        run = self.options.run
        if run is not None and not status.processes:
            raise NotFound(f"the objects of run {run.name!r} were deleted by another program")
        return status

    @contextlib.contextmanager
    def watch(self, experiment: str | None, *, follow: bool = True) -> Iterator[Watch]:
        """Watch an experiment's objects, or those of all experiments if the user may list all Pods.

        During an outage, the latest known statuses are returned.
        """
        from symphony_kube.api.errors import ApiError
        from symphony_kube.watch import statuses

        namespace = self.options.scopes.namespace
        if experiment is not None:
            watch = statuses.watch_experiment(self.target(experiment))
        elif follow:
            watch = statuses.watch_experiments(self.api, namespace=namespace)
        else:
            watch = statuses.list_statuses(self.api, namespace=namespace)
        with contextlib.ExitStack() as opened:
            try:
                read = opened.enter_context(watch)
            except ApiError as exc:
                # A user who may not list all Pods may list those of single experiments.
                if exc.status == 403 or not follow:
                    self._single(experiment)
                raise

            def read_supervised() -> WatchedStatuses:
                if experiment is not None:
                    self.ensure_supervisor(experiment)
                watched = read()
                if experiment is None:
                    for status in watched.statuses:
                        self.ensure_supervisor(status.name)
                return watched

            yield Watch(read_supervised, wait_for_poll)

    def wait(self, experiment: str, goal: WaitGoal, on_change: OnChange = None) -> ExperimentStatus:
        """Wait until every process has reached the given state, and report what delays it."""
        from symphony_kube.watch import wait

        self.ensure_supervisor(experiment)
        return wait.wait(
            self.target(experiment),
            timeout=goal.timeout,
            on_change=on_change,
            until=goal.until,
            processes=goal.processes,
        )

    def record(self, experiment: str, pattern: str) -> Mapping[str, bytes]:
        """Return files of the record, most of which are in the objects of an experiment."""
        from symphony.archive.archived_usage import USAGE_FILE
        from symphony.archive.run_record import RECORD_FILE
        from symphony_kube.archive.record_files import read_files

        if pattern == RECORD_FILE:
            from symphony_kube.changes import apply_changes

            record = apply_changes.read_description(self.target(experiment)).record
            return {RECORD_FILE: json.dumps(record).encode()}
        if pattern == USAGE_FILE and self.options.run is None:
            # An experiment without recorded use is no error, but it must exist.
            self.observe(experiment)
        return read_files(self.target(experiment), pattern)

    def events(
        self, experiment: str, names: Collection[str] | None, *, follow: bool
    ) -> Iterator[ExperimentEvent]:
        """Yield the events of the supervisor, the Pods and Kubernetes."""
        from symphony_kube.watch import experiment_events

        self.ensure_supervisor(experiment)
        target = self.target(experiment)
        return experiment_events.iter_events(target, names, follow=follow)

    def details(self, experiment: str, process: ProcessStatus) -> ProcessDetails:
        """Return the details of a process, based on its Pod and the Pod's events."""
        from symphony_kube.status import details

        return details.describe_in_detail(self.target(experiment), process)

    def topology(self, experiment: str) -> Topology:
        """Return the topology of a running experiment, based on its Pods and Services."""
        from symphony_kube.status import topology

        return topology.describe_topology(self.target(experiment))

    def external_addresses(
        self, experiment: str, service: str | None = None
    ) -> Mapping[str, str | None]:
        """Return the addresses that load balancers have assigned.

        The address of a node port requires further requests, so only that of ``service`` is found.
        """
        from symphony_kube.access import external_services

        target = self.target(experiment)
        if service is not None:
            return {service: external_services.external_address(target, service)}
        return external_services.exposed_services(target)

    def usage(
        self, experiment: str, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        """Yield what the metrics server reports."""
        from symphony_kube.status.metrics_server import read_metrics

        # A cluster without metrics is reported before the iteration.
        read_metrics(self.target(experiment))
        return self._followed_usage(experiment, names, interval)

    def _followed_usage(
        self, experiment: str, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        from symphony.cluster.watch_experiment import watch_experiment
        from symphony.usage import select_usage
        from symphony_kube.status.metrics_server import follow_usage

        with watch_experiment(self, experiment) as read:
            for usage in follow_usage(self.target(experiment), read, interval):
                yield select_usage(usage, names)

    def output(self, experiment: str, selection: Selection) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield the logs of containers, and the events if the logs are followed."""
        from symphony.log_blocks import to_blocks
        from symphony_kube.logs import read

        if selection.as_written:
            return self._read_log(experiment, selection)
        target = self.target(experiment)
        since, tail = self._start_time(selection.given_since), selection.tail
        if selection.follow and selection.events:
            return read.follow_output(target, selection.processes, since=since, tail=tail)
        lines = read.iter_log_lines(
            target,
            selection.processes,
            follow=selection.follow,
            since=since,
            tail=tail,
        )
        return to_blocks(lines)

    def _read_log(self, experiment: str, selection: Selection) -> Iterator[LogBlock]:
        """Yield the logs of a process's containers."""
        from symphony.log_blocks import LogBlock
        from symphony_kube.logs import read

        (name,) = selection.names
        pieces = read.iter_log(
            self.target(experiment),
            name,
            since=self._start_time(selection.given_since),
            tail=selection.tail,
            previous=selection.previous,
        )
        for piece in pieces:
            yield LogBlock(name, piece)

    def _start_time(self, given: float | str | None) -> float | None:
        """Return the time since which logs are read, by the clock of the API server."""
        from symphony_kube.logs import read

        return None if given is None else read.start_time(self.api, given)

    def logs(self, experiment: str, names: Sequence[str] | None = None) -> Mapping[str, int]:
        """Return the removed processes whose Pods still exist. Kubernetes limits all logs."""
        from symphony_kube.status import find_pod

        if names is not None:
            return {}
        return dict.fromkeys(find_pod.removed_processes(self.target(experiment)), 0)
