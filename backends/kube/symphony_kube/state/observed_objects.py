"""The Pods, Jobs and JobSets of an experiment, as lists and watch events show them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from symphony.status import ENDED, State
from symphony.support.causes import group_by_cause
from symphony_kube.record.encoded_record import EncodedRecord
from symphony_kube.state.control_state import after_restarts
from symphony_kube.state.job_status import JobStatus, is_in_job_set, parse_job, parse_job_set
from symphony_kube.state.pod_parser import parse_pod
from symphony_kube.state.pod_status import ContainerRef, PodStatus

PODS, JOBS, JOB_SETS = "pods", "jobs", "jobsets"

# The kinds of objects whose state is a `JobStatus`.
_KINDS = {JOBS: "Job", JOB_SETS: "JobSet"}

Object = Mapping[str, Any]


class ObservedObjects:
    """The objects of all attempts to run the units of an experiment, and those that were deleted.

    A JobSet is the Job of each of its ranks. ``deleted`` maps units to their most recently deleted
    Pods, and ``removed_jobs`` to their Jobs that have finished and no longer exist. ``version`` is
    the number of objects that were created or deleted. ``note_record`` is called with the record in
    each object that is new or has changed.
    """

    def __init__(self, note_record: Callable[[EncodedRecord], None]) -> None:
        self._note_record = note_record
        # These dictionaries map each unit to its Pods and to its Jobs by name.
        self._pods: dict[str, dict[str, PodStatus]] = {}
        self._jobs: dict[str, dict[str, JobStatus]] = {}
        self.deleted: dict[str, PodStatus] = {}
        self.removed_jobs: dict[str, JobStatus] = {}
        self.version = 0
        # The units whose Pods or Jobs have changed since these were taken.
        self._changed_pods: set[str] = set()
        self._changed_jobs: set[str] = set()
        # When logs were found to show that processes are ready, by the UID of the Pod, the process
        # and the restarts of its container.
        self._found_ready: dict[tuple[str, str, int], float] = {}
        # The processes of all Pods and Jobs that have been observed, by the UIDs of these objects.
        self._processes_by_uid: dict[str, tuple[str, ...]] = {}

    # --- input from the API ---

    def replace(self, kind: str, objects: Iterable[Object]) -> None:
        """Replace all Pods, all Jobs or all JobSets with a new list."""
        if kind in _KINDS:
            for job_status in self.jobs():
                if job_status.kind == _KINDS[kind]:
                    self._remove_job(job_status)
            for job in objects:
                self._put_jobs(_parse(kind, job))
            return
        listed = [parse_pod(pod) for pod in objects]
        listed_uids = {pod.uid for pod in listed}
        for pod in self.pods():
            if pod.uid not in listed_uids:
                self._remove_pod(pod)
        for pod in listed:
            self._put_pod(pod)

    def apply(self, kind: str, event: str, changed: Object) -> None:
        """Apply a watch event: ADDED, MODIFIED or DELETED."""
        deleted = event == "DELETED"
        if kind in _KINDS:
            jobs = _parse(kind, changed)
            if not deleted:
                self._put_jobs(jobs)
                return
            for job in jobs:
                self._remove_job(job)
            return
        pod = parse_pod(changed)
        if deleted:
            self._remove_pod(pod)
        else:
            self._put_pod(pod)

    def note_ready(self, unit: str, uid: str, process: str, restarts: int, *, now: float) -> None:
        """Note that a log shows that a process is ready; see `PodStatus.ready_by_log`.

        ``uid`` is that of the Pod of ``unit``, and ``restarts`` is the number of earlier executions
        of the container. ``now`` is in seconds since the epoch.
        """
        self._found_ready.setdefault((uid, process, restarts), now)
        for pod in self.pods_of(unit):
            if pod.uid == uid:
                self._put_pod(pod)

    def take_changes(self) -> tuple[set[str], set[str]]:
        """Return the units whose Pods have changed since the latest call, and those whose Jobs
        have.
        """
        taken = self._changed_pods, self._changed_jobs
        self._changed_pods, self._changed_jobs = set(), set()
        return taken

    def _with_found_ready(self, pod: PodStatus) -> PodStatus:
        if not self._found_ready:
            return pod
        times = {}
        for name, container in pod.containers.items():
            found = self._found_ready.get((pod.uid, name, container.restarts))
            if found is not None and name not in pod.ready_by_log:
                times[name] = found
        if not times:
            return pod
        at = pod.ready_by_log_at or min(times.values())
        return replace(pod, ready_by_log=pod.ready_by_log | set(times), ready_by_log_at=at)

    def _put_pod(self, pod: PodStatus) -> None:
        pods = self._pods.setdefault(pod.unit, {})
        previous = pods.get(pod.name)
        if previous is not None and previous.uid == pod.uid:
            pod = _keep_history(previous, pod)
        else:
            self.version += 1
        pods[pod.name] = self._with_found_ready(pod)
        self._processes_by_uid[pod.uid] = tuple(pod.containers)
        self._note_record(pod.record)
        deleted = self.deleted.get(pod.unit)
        if deleted is not None and deleted.attempt.number <= pod.attempt.number:
            del self.deleted[pod.unit]
        self._changed_pods.add(pod.unit)

    def _put_jobs(self, jobs: Iterable[JobStatus]) -> None:
        processes: tuple[str, ...] = ()
        for job in jobs:
            self._put_job(job)
            processes += job.processes
            self._processes_by_uid[job.uid] = processes

    def _put_job(self, job: JobStatus) -> None:
        jobs = self._jobs.setdefault(job.unit, {})
        if job.name not in jobs:
            self.version += 1
        jobs[job.name] = job
        self.removed_jobs.pop(job.unit, None)
        self._note_record(job.record)
        self._changed_jobs.add(job.unit)

    def _remove_job(self, job: JobStatus) -> None:
        jobs = self._jobs.get(job.unit, {})
        if job.name in jobs and jobs[job.name].uid != job.uid:
            return
        self.version += 1
        jobs.pop(job.name, None)
        if job.result is not None:
            self.removed_jobs[job.unit] = job
        self._changed_jobs.add(job.unit)

    def _remove_pod(self, pod: PodStatus) -> None:
        pods = self._pods.get(pod.unit, {})
        if pod.name in pods and pods[pod.name].uid != pod.uid:
            return
        previous = pods.pop(pod.name, None)
        if previous is not None:
            last = previous if pod.deadline is None else _keep_history(previous, pod)
            earlier = self.deleted.get(pod.unit)
            if earlier is None or earlier.attempt.number <= last.attempt.number:
                self.deleted[pod.unit] = last
        self.version += 1
        self._changed_pods.add(pod.unit)

    # --- what is known ---

    @property
    def is_empty(self) -> bool:
        """True if there are neither Pods nor Jobs nor JobSets."""
        return not any(self._jobs.values()) and not any(self._pods.values())

    @property
    def unit_names(self) -> list[str]:
        """The names of the units that have or had objects."""
        return list(dict.fromkeys([*self._pods, *self._jobs, *self.deleted]))

    @property
    def deleted_units(self) -> frozenset[str]:
        """The units that have no Pods any more."""
        return frozenset(unit for unit in self.deleted if not self._pods.get(unit))

    def has_any_of(self, unit: str) -> bool:
        """Return whether a unit has a Pod or a Job."""
        return bool(self._pods.get(unit) or self._jobs.get(unit))

    def pods(self) -> list[PodStatus]:
        """Return the Pods of all attempts."""
        return [pod for pods in self._pods.values() for pod in pods.values()]

    def jobs(self) -> list[JobStatus]:
        """Return the Jobs of all attempts. A JobSet is contained once for each of its ranks."""
        return [job for jobs in self._jobs.values() for job in jobs.values()]

    def pods_of(self, unit: str) -> list[PodStatus]:
        """Return the Pods of all attempts to run a unit."""
        return list(self._pods.get(unit, {}).values())

    def jobs_of(self, unit: str) -> list[JobStatus]:
        """Return the Jobs of all attempts to run a unit."""
        return list(self._jobs.get(unit, {}).values())

    @property
    def container_refs(self) -> list[ContainerRef]:
        """The containers of all current Pods. The containers in the oldest Pods come first."""
        refs = [ref for pod in self.pods() for ref in pod.refs]
        return sorted(refs, key=lambda ref: (ref.created, ref.attempt))

    def processes_of(self, uid: str) -> tuple[str, ...]:
        """Return the processes of a Pod or Job that exists or was observed earlier."""
        return self._processes_by_uid.get(uid, ())

    def latest_attempt(self, unit: str) -> tuple[list[PodStatus], JobStatus | None]:
        """Return the Pods, oldest first, and the Job of the latest attempt to run a unit.

        There are none if the Pod of the latest attempt was deleted.
        """
        pods = self.pods_of(unit)
        jobs = self.jobs_of(unit)
        numbers = [pod.attempt.number for pod in pods]
        numbers += [job.attempt.number for job in jobs]
        latest = max(numbers, default=1)
        deleted = self.deleted.get(unit)
        if deleted is not None and deleted.attempt.number > latest:
            return [], None
        pods = [pod for pod in pods if pod.attempt.number == latest]
        pods.sort(key=lambda pod: (pod.created, pod.name))
        for job in jobs:
            if job.attempt.number == latest:
                return pods, job
            if job.kind == "JobSet":
                # The Pods of the next attempt can be observed before the JobSet.
                restarts = latest - job.attempt.number
                return pods, replace(job, attempt=after_restarts(job.attempt, restarts))
        return pods, None

    def processes_on_nodes(self) -> set[str]:
        """Return the processes whose latest Pods have been assigned to nodes."""
        names: set[str] = set()
        for unit in self._pods:
            pods, _ = self.latest_attempt(unit)
            names.update(name for pod in pods if pod.node for name in pod.containers)
        return names

    def are_being_deleted(self) -> bool:
        """Return whether the experiment has Pods and all of them are being deleted.

        The controllers of Jobs and JobSets delete Pods, for example after a deadline.
        """
        if any(not job.deleting for job in self.jobs()):
            return False
        found = False
        for pods in self._pods.values():
            for pod in pods.values():
                if pod.deadline is None:
                    return False
                found = True
        return found

    def log_problems(self) -> list[str]:
        """Return the problems of processes whose logs have not shown yet that they are ready."""
        problems = []
        for pod in self.pods():
            for name, message in pod.log_problems:
                container = pod.containers.get(name)
                is_running = container is not None and container.state is State.RUNNING
                if is_running and name not in pod.ready_by_log:
                    problems.append((name, message))
        return [f"{group}: {group.cause}" for group in group_by_cause(sorted(problems))]


def _parse(kind: str, body: Object) -> list[JobStatus]:
    """Return the states in a Job or a JobSet, by unit."""
    if kind == JOB_SETS:
        return parse_job_set(body)
    return [] if is_in_job_set(body) else [parse_job(body)]


def _keep_history(old: PodStatus, new: PodStatus) -> PodStatus:
    """Return the new state of a Pod, completed with facts that only its old state contains.

    A kubelet can reset the status of a container that has exited.
    """
    containers = dict(new.containers)
    for name, container in new.containers.items():
        earlier = old.containers.get(name)
        if earlier is None or earlier.started is None or container.started is not None:
            continue
        if container.state in ENDED:
            restarts = max(container.restarts, earlier.restarts)
            containers[name] = replace(container, started=earlier.started, restarts=restarts)
    before_deletion = old.before_deletion
    delete_requested = new.delete_requested
    if new.deadline is not None and old.deadline is None:
        before_deletion = old.containers
    elif old.delete_requested is not None:
        # The last change before a Pod disappears contains another time.
        delete_requested = old.delete_requested
    return replace(
        new,
        containers=containers,
        before_deletion=before_deletion,
        delete_requested=delete_requested,
    )
