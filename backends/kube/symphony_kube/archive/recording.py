"""Record the runs of experiments on a cluster in the archive of this machine.

A launch creates the record of an active run. A deletion, or a launch that replaces a finished
experiment, adds the status and the logs, and moves the record to the archive when the objects are
gone. A deletion that is repeated continues the record.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.archive import archive, run_record
from symphony.archive.archive import Retention, Run
from symphony.archive.archived_usage import USAGE_FILE
from symphony.archive.code_archives import read_archives, write_archives
from symphony.archive.code_state import CodeCapture
from symphony.errors import BackendError, LaunchIncomplete, SpecError, SymphonyError
from symphony.status import ENDED, ExperimentStatus, ReasonCode, State
from symphony.support.directories.state_home import STATE_VARIABLE, create_state_directory
from symphony.support.replace_file import replace_file
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import RUN, Scope
from symphony_kube.api.listing import list_all
from symphony_kube.api.resources import labels_of, parse_time, run_name_of
from symphony_kube.archive.fetch_logs import LogFetcher, LogLimits
from symphony_kube.lifecycle.supervisor.stored_usage import fetch_usage
from symphony_kube.state.observe import BACKEND
from symphony_kube.status import details, experiments, topology
from symphony_kube.status.container_environment import read_shared_variables
from symphony_kube.status.event_sources import health_results
from symphony_kube.status.find_pod import list_removed_containers

if TYPE_CHECKING:
    from symphony.code.snapshot import CodeArchive
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.process_details import ProcessEvent
    from symphony_kube.api.client import Api
    from symphony_kube.lifecycle.description import NewDescription
    from symphony_kube.state.observe import ExperimentState

Object = dict[str, Any]

# The key of a record with the values that identify the objects of a run.
CLUSTER_KEY = "cluster"
# The keys of a record that a change of a running experiment replaces.
_DESCRIPTION_KEYS = (
    "definition",
    "given",
    "launch_options",
    "source",
    "base_directory",
    "file",
    "origin",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The identity of one launch: the label of its objects, and the identifier that users see."""

    run_id: str
    run: str
    launched: float

    @classmethod
    def new(cls, experiment: str, run_id: str) -> Launch:
        """Return the identity of a launch at this moment."""
        launched = time.time()
        run = run_record.run_name(experiment, launched, run_id)
        return cls(run_id=run_id, run=run, launched=launched)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings for records: which runs to keep, and the limits for the logs of one run."""

    retention: Retention = field(default_factory=lambda: archive.DEFAULT_RETENTION)
    limits: LogLimits = field(default_factory=LogLimits)


def run_id_of(run: Run) -> str:
    """Return the label of the objects of an active run. Raises BackendError if it is unknown."""
    place = run.load_record().get(CLUSTER_KEY)
    if not isinstance(place, dict) or not isinstance(place.get("run_id"), str):
        raise BackendError(f"the record of run {run.name!r} is damaged: {run.path}")
    return str(place["run_id"])


# --- launching ---


@contextlib.contextmanager
def recording_launch(
    api: Api,
    new: NewDescription,
    experiment: Experiment,
    launch: Launch,
    settings: Settings,
) -> Iterator[list[str]]:
    """Record the launch of ``new`` that happens inside the block.

    The value is a list of messages for the user. If the launch fails and is rolled back, no record
    is kept. If the record cannot be written, for example because the disk is full, the launch
    continues.
    """
    path = archive.active_directory() / launch.run
    notes: list[str] = []
    try:
        _create_record(path, api, new, launch)
    except (OSError, SpecError) as exc:
        notes.append(_not_recorded(path, exc))
        _remove(path)
        yield notes
        return
    source = experiment.base_dir or Path.cwd()
    try:
        with CodeCapture(source, path) as code:
            code.start()
            yield notes
    except LaunchIncomplete:
        raise
    except BaseException:
        _remove(path)
        # A launch at the same time that has replaced all earlier runs can have archived the record.
        _remove(archive.archive_directory() / launch.run)
        raise
    # The launch has replaced all earlier runs, also those that another program has deleted.
    with contextlib.suppress(OSError, SpecError):
        for run in _active_runs(KubeExperiment(api, new.manifest.scope)):
            if run.name != launch.run:
                problem = "its objects were deleted by another program"
                _archive(run.path, _identity_of(run), None, [problem], settings.retention)


def _create_record(path: Path, api: Api, new: NewDescription, launch: Launch) -> None:
    create_state_directory(path)
    manifest = new.manifest
    scope = manifest.scope
    options = {
        "kubeconfig": api.kubeconfig,
        "context": api.context,
        "namespace": scope.namespace if scope.shared else None,
    }
    description = {
        **new.record,
        "run": launch.run,
        "launched": launch.launched,
        "options": {key: value for key, value in options.items() if value is not None},
        CLUSTER_KEY: {
            "server": api.host,
            "namespace": scope.namespace,
            "run_id": launch.run_id,
        },
    }
    run_record.write_json(path / run_record.RECORD_FILE, description)
    run_record.write_json(path / run_record.MANIFEST_FILE, manifest.to_dict())
    write_archives(path, new.archives)


def _not_recorded(path: Path, exc: OSError | SpecError) -> str:
    if isinstance(exc, SpecError):
        return f"the run is not recorded: {exc}"
    return (
        f"the run is not recorded, because {path} cannot be written: {exc.strerror}; free some "
        f"space, or set {STATE_VARIABLE} to a directory on another disk"
    )


def _remove(path: Path) -> None:
    archive.remove(Run(path, {}))


# --- changing ---


def record_change(
    experiment: KubeExperiment, new: NewDescription, changes: Changes, changed: Experiment
) -> None:
    """Write the new description of a running experiment into its record on this machine, and the
    state of the code if the code has changed.

    Nothing happens if the experiment was launched on another machine, or if the record cannot be
    written.
    """
    with contextlib.suppress(OSError, SpecError, BackendError):
        runs = _active_runs(experiment)
        if not runs:
            return
        run = max(runs, key=lambda run: run.launched)
        record = {**run.load_record(), **{key: new.record[key] for key in _DESCRIPTION_KEYS}}
        run_record.write_json(run.path / run_record.RECORD_FILE, record)
        with CodeCapture(changed.base_dir or Path.cwd(), run.path) as code:
            if changes.has_new_code:
                code.start()
            write_archives(run.path, new.archives)
            run_record.write_json(run.path / run_record.MANIFEST_FILE, new.manifest.to_dict())


def recorded_code(experiment: KubeExperiment) -> dict[str, CodeArchive]:
    """Return the code of the processes of a running experiment, if it is recorded on this
    machine.
    """
    with contextlib.suppress(OSError, SymphonyError):
        run = find_record(experiment)
        if run is not None:
            return read_archives(run.path)
    return {}


def find_record(experiment: KubeExperiment) -> Run | None:
    """Return the record on this machine of the newest run in a scope, if there is one."""
    try:
        runs = archive.newest_first(_active_runs(experiment))
    except (OSError, SymphonyError):
        return None
    return runs[0] if runs else None


def recorded_usage(experiment: KubeExperiment) -> bytes:
    """Return the resource use of a running experiment that its supervisor has recorded, in the form
    of `symphony.archive.archived_usage`.

    A supervisor in the cluster stores it there, and a detached one in the record on this machine.
    """
    content = fetch_usage(experiment)
    if content is not None:
        return content
    newest = max(_active_runs(experiment), key=lambda run: run.launched, default=None)
    files = {} if newest is None else run_record.read_files(newest.path, USAGE_FILE)
    return files.get(USAGE_FILE, b"")


# --- deleting ---


@contextlib.contextmanager
def keeping_record(
    experiment: KubeExperiment, settings: Settings, *, purge: bool = False, launching: str = ""
) -> Iterator[None]:
    """Keep the record of the experiment that is deleted inside the block.

    If ``experiment`` is limited to a run, the records of other runs are not changed. With
    ``purge``, the record is removed. ``launching`` is the run that replaces the deleted one. If the
    block raises an exception, the record stays that of an active run.

    Raises BackendError before the block if the record cannot be written, because the logs exist
    nowhere else. If a log cannot be read, the record states this.
    """
    collected: _Collected | None = None
    if not purge:
        try:
            collected = _collect(experiment, settings)
        except (OSError, SpecError) as exc:
            raise _cannot_keep(experiment.scope, exc) from exc
    try:
        yield
    except BaseException:
        if collected is not None:
            collected.fetcher.close()
        raise
    with contextlib.suppress(OSError, SpecError):
        if collected is not None:
            collected.fetcher.finish()
            collected.archive(settings.retention)
        for run in _active_runs(experiment):
            if purge:
                archive.remove(run)
            elif run.name != launching:
                problem = "its objects were deleted by another program"
                _archive(run.path, _identity_of(run), None, [problem], settings.retention)


def _cannot_keep(scope: Scope, exc: OSError | SpecError) -> BackendError:
    cause, advice = str(exc), ""
    if isinstance(exc, OSError):
        cause = f"{exc.filename or archive.active_directory()} cannot be written: {exc.strerror}"
        advice = f"free some space, set {STATE_VARIABLE} to a directory on another disk, or "
    return BackendError(
        f"experiment {scope.experiment!r} was not deleted, because its logs cannot be kept: "
        f"{cause}; {advice}delete it without its record: delete --purge"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collected:
    """The record of a run whose objects are being deleted."""

    path: Path
    identity: Mapping[str, Any]
    status: ExperimentStatus | None
    problems: Sequence[str]
    fetcher: LogFetcher

    def archive(self, retention: Retention) -> None:
        """Complete the record, and move it to the archive."""
        cut = [*self.problems, *self.fetcher.problems()]
        _archive(self.path, self.identity, self.status, cut, retention)


def _collect(experiment: KubeExperiment, settings: Settings) -> _Collected | None:
    """Write the status and the logs of an experiment into its record.

    Return None if nothing is known about its processes. Raises OSError if the record cannot be
    written.
    """
    try:
        state, pods = experiments.observe_once(experiment)
        status = experiments.current_status(experiment, state)
        if health_results.awaits_results(status):
            status = experiments.explain(experiment, status, pods, state)
        refs = [*list_removed_containers(experiment), *state.objects.container_refs]
    except SymphonyError:
        # The deletion itself reports what the user may not do.
        return None
    identity = _find_identity(experiment, pods, status)
    if identity is None:
        return None
    path = archive.active_directory() / identity["run"]
    create_state_directory(path)
    if not (path / run_record.RECORD_FILE).exists():
        # The experiment was launched on another machine.
        run_record.write_json(
            path / run_record.RECORD_FILE, {**identity, "launched_elsewhere": True}
        )
    logs = path / run_record.LOG_DIRECTORY
    fetcher = LogFetcher(experiment, refs, logs, settings.limits)
    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = pool.submit(_write_objects, experiment, path, state, pods)
        fetcher.start()
        problems = [*objects.result(), *_write_usage(experiment, path)]
    final = _final_status(status, experiment.api.now())
    if pods and _is_being_deleted(pods):
        # An interrupted deletion is continued, so the status was written before.
        previous = _read_status(path)
        final = final if previous is None else previous
    run_record.write_json(path / run_record.STATUS_FILE, final.to_dict())
    return _Collected(
        path=path, identity=identity, status=final, problems=problems, fetcher=fetcher
    )


def _is_being_deleted(pods: Sequence[Object]) -> bool:
    return all("deletionTimestamp" in pod["metadata"] for pod in pods)


def _read_status(path: Path) -> ExperimentStatus | None:
    data = run_record.read_json(path / run_record.STATUS_FILE)
    if data is None:
        return None
    try:
        return ExperimentStatus.from_dict(data)
    except (KeyError, TypeError, ValueError):
        return None


def _final_status(status: ExperimentStatus, now: float) -> ExperimentStatus:
    """Return the status after the deletion, which stops all processes that have not finished."""
    processes = []
    for process in status:
        if process.state in ENDED:
            processes.append(process)
            continue
        reason = "the experiment was deleted"
        processes.append(
            replace(
                process,
                state=State.FAILED,
                ready=False,
                not_ready_in_time=False,
                next_start=None,
                kill_at=None,
                stopped=True,
                reason=reason,
                reason_code=ReasonCode.STOPPED,
                ended=now if process.started is not None else None,
            )
        )
    return replace(status, processes=tuple(processes))


def _find_identity(
    experiment: KubeExperiment, pods: Sequence[Object], status: ExperimentStatus
) -> dict[str, Any] | None:
    """Return the identity of the run to which the newest Pod belongs.

    If there are no Pods, it is the newest run that was launched on this machine, or None.
    """
    if not pods:
        newest_run = max(_active_runs(experiment), key=lambda run: run.launched, default=None)
        return None if newest_run is None or not status.processes else _identity_of(newest_run)
    newest = max(pods, key=lambda pod: parse_time(pod["metadata"]["creationTimestamp"]) or 0.0)
    run_id = labels_of(newest).get(RUN, "")
    for run in _active_runs(experiment):
        if run.summary[CLUSTER_KEY].get("run_id") == run_id:
            return _identity_of(run)
    launched = status.created or experiment.api.now()
    name = run_name_of(newest)
    # Other users may be able to change the annotation. The name becomes that of a directory.
    if not run_record.is_run_name(name):
        name = run_record.run_name(experiment.name, launched, run_id)
    return {
        "run": name,
        "experiment": experiment.name,
        "backend": BACKEND,
        "launched": launched,
    }


def _identity_of(run: Run) -> dict[str, Any]:
    return {
        "run": run.name,
        "experiment": run.experiment,
        "backend": run.backend,
        "launched": run.launched,
    }


def _active_runs(experiment: KubeExperiment) -> list[Run]:
    """Return the active runs in a scope that were launched on this machine.

    Raises SpecError if another user can change the state directory.
    """
    runs = archive.find_active([archive.active_directory()])
    return [run for run in runs if _is_of(run, experiment)]


def _is_of(run: Run, experiment: KubeExperiment) -> bool:
    scope = experiment.scope
    place = run.summary.get(CLUSTER_KEY)
    if run.experiment != scope.experiment or not isinstance(place, dict):
        return False
    if scope.run and place.get("run_id") != scope.run:
        return False
    return place.get("server") == experiment.api.host and place.get("namespace") == scope.namespace


def _write_objects(
    experiment: KubeExperiment, path: Path, state: ExperimentState, pods: Sequence[Object]
) -> list[str]:
    """Write the details of the processes and the topology, and return what is missing."""
    problems = []
    status = state.observe(experiment.api.now()).status
    processes = {process.name: process for process in status}
    events = _pod_events(experiment)
    by_process: dict[str, Any] = {}
    shared = read_shared_variables(experiment, pods)
    for pod in pods:
        of_pod = events.get(pod["metadata"]["uid"], ())
        for container in pod["spec"]["containers"]:
            process = processes.get(container["name"])
            if process is not None:
                found = details.process_details(process, pod, of_pod, shared)
                by_process[process.name] = found.to_dict()
    try:
        drawn = topology.find_topology(experiment, status, state.units, pods)
        run_record.write_json(path / run_record.TOPOLOGY_FILE, drawn.to_dict())
        run_record.write_json(path / run_record.DETAILS_FILE, by_process)
    except (OSError, SymphonyError) as exc:
        problems.append(f"the connections and details of processes are missing: {exc}")
    return problems


def _write_usage(experiment: KubeExperiment, path: Path) -> list[str]:
    """Write the resource use that a supervisor in the cluster has recorded.

    Return what is missing.
    """
    try:
        content = fetch_usage(experiment)
        if content:
            replace_file(path / USAGE_FILE, [content], mode=0o600)
    except (OSError, SymphonyError) as exc:
        return [f"the recorded resource use is missing: {exc}"]
    return []


def _pod_events(experiment: KubeExperiment) -> dict[str, tuple[ProcessEvent, ...]]:
    """Return the events of all Pods by the UIDs of the Pods, or none if the user may not list
    them.
    """
    path = f"/api/v1/namespaces/{experiment.namespace}/events"
    try:
        query = {"fieldSelector": "involvedObject.kind=Pod"}
        events = list_all(experiment.api, path, _pod_event, query=query).items
    except (ApiError, SymphonyError):
        return {}
    by_uid: dict[str, list[ProcessEvent]] = {}
    for uid, event in events:
        by_uid.setdefault(uid, []).append(event)
    return {uid: details.in_order(of_pod) for uid, of_pod in by_uid.items()}


def _pod_event(item: Object) -> tuple[str, ProcessEvent]:
    """Return the UID of the Pod to which an event belongs, and the event."""
    return item["involvedObject"].get("uid", ""), details.to_process_event(item)


def _archive(
    path: Path,
    identity: Mapping[str, Any],
    status: ExperimentStatus | None,
    cut: Sequence[str],
    retention: Retention,
) -> None:
    """Write how a run ended, and move its record to the archive.

    ``status`` is None if the status is unknown, unless an interrupted deletion has written it.
    """
    if status is None:
        status = _read_status(path)
    # On a full disk, the record is kept without the result.
    with contextlib.suppress(OSError):
        run_record.write_result(path, status, identity, cut)
    directory = archive.archive_directory()
    # Another program can have archived the record at the same time.
    with contextlib.suppress(FileNotFoundError):
        archive.add(path, directory, str(identity["run"]))
    archive.remove_outdated(directory, retention, time.time())
