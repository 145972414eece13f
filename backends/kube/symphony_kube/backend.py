"""The part of the kube backend that `Cluster` calls; see `symphony.cluster.backend`.

Each method delegates to the module that implements it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.cluster.backend import Backend, LogPart, ProcessRequest, Selection, WaitGoal
from symphony.cluster.cluster import Manifest
from symphony.errors import NotFound, SymphonyError
from symphony_kube.access.kube_access import KubeAccess

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.cluster import OnChange, WatchedStatuses
    from symphony.code.snapshot import CodeArchives
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.plan.topology import Topology
    from symphony.process_details import ProcessDetails
    from symphony.status import ExperimentStatus, ProcessStatus
    from symphony.usage import ExperimentUsage
    from symphony_kube.access.send_code import CodeSender
    from symphony_kube.api.client import Api
    from symphony_kube.api.labels import Scope
    from symphony_kube.archive.kube_records import KubeRecords
    from symphony_kube.archive.recording import Settings
    from symphony_kube.lifecycle.delete import Keeping
    from symphony_kube.lifecycle.description import Description, NewDescription
    from symphony_kube.render.manifest import KubeManifest


class KubeBackend(KubeAccess, Backend[Manifest]):
    """The experiments in a Kubernetes cluster.

    * ``connect`` and ``scope`` are those of `KubeAccess`.
    * ``namespace`` is the namespace for all experiments, or None.
    * With ``jobs_only``, the user may create and delete Jobs, but no Pods.
    * ``describe`` returns the new description of an experiment. The second argument describes the
      running experiment, if there is one.
    * ``record_settings`` returns which records and logs are kept.
    * ``run`` is the active run whose objects are read, or None for those of any launch.
    """

    def __init__(
        self,
        name: str,
        *,
        connect: Callable[[], Api],
        scope: Callable[[str], Scope],
        namespace: str | None,
        jobs_only: bool,
        describe: Callable[[Experiment, Description | None], NewDescription],
        record_settings: Callable[[], Settings],
        run: Run | None,
    ) -> None:
        super().__init__(name, connect=connect, scope=scope)
        self._namespace = namespace
        self._jobs_only = jobs_only
        self._describe = describe
        self._record_settings = record_settings
        self._run = run

    @functools.cached_property
    def records(self) -> KubeRecords:
        """What is kept of experiments, in their objects and on this machine."""
        from symphony_kube.archive.kube_records import KubeRecords

        return KubeRecords(connect=self._connect, scope=self._scope, observe=self.observe)

    def ensure_supervisor(self, experiment: str) -> None:
        """Start the supervisor that runs on this machine again, if it was killed."""
        from symphony_kube.lifecycle.supervisor import detached

        detached.ensure_running(detached.directory_of(self.api, self._scope(experiment)))

    # --- launching ---

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

    def names(self) -> Collection[str]:
        """Return the names of the experiments in the shared namespace.

        If no shared namespace is set, return the names of all experiments that have their own
        namespace.
        """
        from symphony_kube.status import experiments

        return experiments.list_experiments(self.api, namespace=self._namespace)

    @property
    def location(self) -> str:
        """The shared namespace, if it is set, and the API server."""
        from symphony_kube.status import experiments

        return experiments.location(self.api, self._namespace)

    def observe(self, experiment: str) -> ExperimentStatus:
        """Return the status that the objects of an experiment show."""
        from symphony_kube.api.background import Background
        from symphony_kube.status.list_objects import list_pods

        scope = self._scope(experiment)
        pods_request = Background(functools.partial(list_pods, self.api, scope))
        # Import the modules that evaluate the Pods while the API server lists them, because both
        # take time.
        from symphony_kube.status import experiments

        self.ensure_supervisor(experiment)
        status = experiments.experiment_status(self.api, scope, pods_request)
        if self._run is not None and not status.processes:
            raise NotFound(f"the objects of run {self._run.name!r} were deleted by another program")
        return status

    @contextlib.contextmanager
    def watch_statuses(self, experiment: str) -> Iterator[Callable[[], WatchedStatuses]]:
        """Watch an experiment's objects."""
        from symphony_kube.watch import statuses

        with statuses.watch_experiment(self.api, self._scope(experiment)) as read:

            def read_supervised() -> WatchedStatuses:
                self.ensure_supervisor(experiment)
                return read()

            yield read_supervised

    def observe_all(self, names: Sequence[str]) -> Mapping[str, ExperimentStatus]:
        """List the Pods of all experiments with one request, if the user may list them."""
        from symphony_kube.api.errors import ApiError
        from symphony_kube.watch.all_experiments import describe_together

        found: Mapping[str, ExperimentStatus] = {}
        if len(names) > 1:
            # Without the right to list the Pods of all namespaces, each experiment is listed.
            with contextlib.suppress(ApiError):
                found = describe_together(self.api, names, namespace=self._namespace)
        for name in found:
            self.ensure_supervisor(name)
        return found

    @contextlib.contextmanager
    def watch_all(self) -> Iterator[Callable[[], WatchedStatuses] | None]:
        """Watch the objects of all experiments, if the user may list all Pods."""
        from symphony_kube.api.errors import ApiError
        from symphony_kube.watch import statuses

        with contextlib.ExitStack() as opened:
            try:
                watch = statuses.watch_experiments(self.api, namespace=self._namespace)
                read = opened.enter_context(watch)
            except ApiError as exc:
                if exc.status != 403:
                    raise
                # A user who may not list all Pods may list those of single experiments.
                yield None
                return

            def read_supervised() -> WatchedStatuses:
                watched = read()
                for status in watched.statuses:
                    self.ensure_supervisor(status.name)
                return watched

            yield read_supervised

    def wait(self, experiment: str, goal: WaitGoal, on_change: OnChange = None) -> ExperimentStatus:
        """Wait until every process has reached the given state, and report what delays it."""
        from symphony_kube.watch import wait

        self.ensure_supervisor(experiment)
        return wait.wait(
            self.api,
            self._scope(experiment),
            timeout=goal.timeout,
            on_change=on_change,
            until=goal.until,
            processes=goal.processes,
        )

    def record(self, experiment: str) -> Mapping[str, Any]:
        """Return the description of the launch in the objects of an experiment."""
        from symphony_kube import apply_changes

        return apply_changes.read_description(self.api, self._scope(experiment)).record

    def events(
        self, experiment: str, names: Collection[str] | None, *, follow: bool
    ) -> Iterator[ExperimentEvent]:
        """Yield the events of the supervisor, the Pods and Kubernetes."""
        from symphony_kube.watch import experiment_events

        self.ensure_supervisor(experiment)
        scope = self._scope(experiment)
        return experiment_events.iter_events(self.api, scope, names, follow=follow)

    def details(self, experiment: str, process: ProcessStatus) -> ProcessDetails:
        """Return the details of a process, based on its Pod and the Pod's events."""
        from symphony_kube.status import details

        return details.describe_in_detail(self.api, self._scope(experiment), process)

    def topology(self, experiment: str) -> Topology:
        """Return the topology of a running experiment, based on its Pods and Services."""
        from symphony_kube.status import topology

        return topology.describe_topology(self.api, self._scope(experiment))

    def usage(
        self, experiment: str, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        """Yield what the metrics server reports."""
        from symphony_kube.status.metrics_server import read_metrics

        # A cluster without metrics is reported before the iteration.
        read_metrics(self.api, self._scope(experiment))
        return self._followed_usage(experiment, names, interval)

    def _followed_usage(
        self, experiment: str, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        from symphony.usage import select_usage
        from symphony_kube.status.metrics_server import follow_usage

        with self.watch_statuses(experiment) as read:
            for usage in follow_usage(self.api, self._scope(experiment), read, interval):
                yield select_usage(usage, names)

    followed_output_includes_events = True

    def output(self, experiment: str, selection: Selection) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield the logs of containers, and the events if the logs are followed."""
        from symphony.log_blocks import to_blocks
        from symphony_kube.logs import read

        scope = self._scope(experiment)
        since, tail = selection.since, selection.tail
        if selection.follow and selection.events:
            return read.follow_output(self.api, scope, selection.processes, since=since, tail=tail)
        lines = read.iter_log_lines(
            self.api, scope, selection.processes, follow=selection.follow, since=since, tail=tail
        )
        return to_blocks(lines)

    def log(self, experiment: str, process: str, part: LogPart) -> Iterator[str]:
        """Yield the logs of a process's containers."""
        from symphony_kube.logs import read

        yield read.read_log(
            self.api,
            self._scope(experiment),
            process,
            since=part.since,
            tail=part.tail,
            previous=part.previous,
        )

    def start_time(self, since: float | str) -> float:
        """Return a time by the clock of the API server."""
        from symphony_kube.logs import read

        return read.start_time(self.api, since)

    # --- changing ---

    def diff(self, experiment: Experiment, *, start: Sequence[str] | None) -> Changes:
        """Return how the objects of a running experiment differ from those of ``experiment``."""
        from symphony_kube import apply_changes

        scope = self._scope(experiment.name)
        describe = functools.partial(self._describe, experiment)
        return apply_changes.diff(self.api, scope, describe, start)

    def change(self, experiment: Experiment, *, start: Sequence[str] | None) -> Changes:
        """Change the objects of a running experiment."""
        from symphony_kube import apply_changes
        from symphony_kube.archive import recording

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

        scope, processes = self._scope(experiment), request.processes
        if request.kind == "signal":
            return client_requests.send_signal(
                self.api, scope, processes, request.signal, force=request.force
            )
        grace, timeout = request.grace, request.timeout
        self.ensure_supervisor(experiment)
        if request.kind == "stop":
            return client_requests.stop(self.api, scope, processes, grace=grace, timeout=timeout)
        with self.sending_recorded_code(experiment):
            if request.kind == "start":
                return client_requests.start(self.api, scope, processes, timeout=timeout)
            return client_requests.restart(self.api, scope, processes, grace=grace, timeout=timeout)
