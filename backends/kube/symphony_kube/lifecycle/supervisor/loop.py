"""The supervisor's loop: it observes the experiment, and executes what `decisions` decides.

The loop keeps nothing that another supervisor needs. If it is killed, the next supervisor reads the
record and the state of the cluster and continues. Several loops for the same run do no harm:
an object that another supervisor has already created is accepted, and a supervisor whose record is
out of date reads it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from symphony.errors import BackendError, NotFound
from symphony.plan.policies import seconds_to_deadline
from symphony_kube.api import error_messages
from symphony_kube.api.client import ACCEPT_METADATA, MERGE_PATCH
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import ENDING, PROBLEMS, UNIT
from symphony_kube.api.resources import collection_path, items_of, to_resource
from symphony_kube.lifecycle.attempts import with_manifest
from symphony_kube.lifecycle.create import Creation, NameTaken, delete_uid, in_parallel
from symphony_kube.lifecycle.supervisor.decisions import decide
from symphony_kube.lifecycle.supervisor.ready_logs import LOG_POLL_SECONDS, ReadyLogs
from symphony_kube.lifecycle.supervisor.record import Record, RecordChanged, RecordStore, RunGone
from symphony_kube.lifecycle.supervisor.run import Object, SupervisedRun
from symphony_kube.render.deadline import with_deadline
from symphony_kube.render.roster import Unit, roster_unit
from symphony_kube.status.creation_problems import Problem, encode_problems
from symphony_kube.status.ending import StoppedProcesses, encode_ending
from symphony_kube.status.follow_status import ObservationStream
from symphony_kube.status.observe import Observation

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

# The first and the longest pause after an error, for example while the server is unreachable.
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


def supervise(
    api: Api,
    run: SupervisedRun,
    store: RecordStore,
    *,
    owner: Object | None = None,
    on_error: Callable[[str], None],
    on_started: Callable[[], None] | None = None,
) -> None:
    """Supervise a run until nothing is left to decide, or until the run no longer exists.

    Created objects belong to ``owner``, an owner reference. If the owner is deleted, Kubernetes
    deletes these objects. ``on_error`` is called with the message of each new error. After an
    error, the function tries again. ``on_started`` is called when the run has been observed for the
    first time.
    """
    pause = FIRST_PAUSE_SECONDS
    last_message = ""
    while True:
        supervision = _Supervision(api, run, store, owner, on_started)
        try:
            supervision.run_until_finished()
            return
        except (RunGone, NotFound):
            return
        except RecordChanged:
            continue
        except BackendError as exc:
            if isinstance(exc, ApiError) and error_messages.is_terminating(exc):
                return
            if str(exc) != last_message:
                on_error(str(exc))
            last_message = str(exc)
        if supervision.is_started:
            on_started = None
            pause = FIRST_PAUSE_SECONDS
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


class _Supervision:
    """The supervision of a run until the next error."""

    def __init__(
        self,
        api: Api,
        run: SupervisedRun,
        store: RecordStore,
        owner: Object | None,
        on_started: Callable[[], None] | None,
    ) -> None:
        self._api = api
        self._run = run
        self._scope = run.scope
        self._store = store
        self._owner = owner
        self._on_started = on_started
        self._record = store.read()
        self._next_try = 0.0
        self._pause = FIRST_PAUSE_SECONDS
        # The time at which to decide again although nothing has changed.
        self._decide_again: float | None = None
        # The UIDs of the Pods and the names of the units whose processes are being stopped.
        self._stopped_pods: set[str] = set()
        self._stopped_units: set[str] = set()
        self._ending_is_published = False
        self.is_started = False

    def run_until_finished(self) -> None:
        """Observe the run and execute decisions until nothing is left to decide."""
        with (
            ObservationStream(self._api, self._scope, roster=self._run.roster) as observations,
            ReadyLogs(self._api, self._scope, self._run.roster) as logs,
        ):
            # Only the units that existed before the first list call can be known to be deleted.
            observations.observer.created = self._record.created
            observation = observations.first()
            while not observation.empty:
                self._report_start()
                states = logs.add_ready(observation.containers)
                if self._advance(replace(observation, containers=states)):
                    return
                # When a log shows that a process is ready, the Pod is annotated, which causes a new
                # observation. If the user is not allowed to modify Pods, no object changes, so the
                # logs are checked regularly.
                timeout = self._seconds_until_retry()
                if logs.pending:
                    timeout = LOG_POLL_SECONDS
                observation = observations.next(timeout) or observation

    def _report_start(self) -> None:
        self.is_started = True
        if self._on_started is not None:
            self._on_started()
            self._on_started = None

    def _seconds_until_retry(self) -> float | None:
        """Return when to decide again although nothing has changed, or None if never."""
        times = [] if self._decide_again is None else [self._decide_again]
        if any(not problem.permanent for problem in self._record.problems.values()):
            times.append(self._next_try)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _advance(self, observation: Observation) -> bool:
        """Execute the next decisions. Return whether nothing is left to decide."""
        roster = self._run.roster
        existing = {unit.name for unit in roster if unit.name not in observation.missing_units}
        self._write_record(replace(self._record, created=self._record.created | existing))
        # While all Pods are being deleted, the experiment is being deleted.
        if observation.deleting:
            return False
        if self._record.ending is not None:
            self._stop_processes(self._record.ending, observation)
            return observation.status.ended
        excluded = set(self._record.created)
        for unit, problem in self._record.problems.items():
            if problem.permanent:
                excluded.add(unit)
        decisions = decide(
            roster,
            observation,
            excluded,
            policies=self._run.policies,
            launched=self._run.launched,
            now=time.time(),
        )
        self._decide_again = None
        if decisions.seconds is not None:
            self._decide_again = time.monotonic() + decisions.seconds
        if decisions.ending is not None:
            # The decision is recorded first, so that another supervisor can execute it.
            self._write_record(replace(self._record, ending=decisions.ending))
            self._stop_processes(decisions.ending, observation)
            return False
        if decisions.finished:
            return True
        if decisions.create and time.monotonic() >= self._next_try:
            self._create(decisions.create)
        return False

    def _write_record(self, record: Record) -> None:
        if record != self._record:
            self._store.write(record)
            self._record = record

    # --- creation ---

    def _create(self, units: tuple[str, ...]) -> None:
        """Create units, and record which were created and why others could not be created."""
        problems = in_parallel(self._create_unit, units, threads=self._api.connections)
        found = dict(self._record.problems)
        created = set(self._record.created)
        for unit, problem in zip(units, problems, strict=True):
            found.pop(unit, None)
            if problem is None:
                created.add(unit)
            else:
                found[unit] = self._keep_time(unit, problem)
        self._next_try = 0.0
        if any(not problem.permanent for problem in found.values()):
            self._next_try = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        if found != self._record.problems:
            self._publish(PROBLEMS, encode_problems(found))
        self._write_record(replace(self._record, created=frozenset(created), problems=found))

    def _keep_time(self, unit: str, problem: Problem) -> Problem:
        """Return a problem with the time at which it was first found."""
        earlier = self._record.problems.get(unit)
        return problem if earlier is None else replace(problem, time=earlier.time)

    def _create_unit(self, unit: str) -> Problem | None:
        """Create a unit. Return why it cannot be created, or None if it was created.

        Raises `BackendError` if the server cannot be reached, and `RunGone` if the namespace is
        being deleted.
        """
        body = with_deadline(with_manifest(self._run.units[unit]), self._seconds_left())
        if self._owner is not None:
            metadata = {**body["metadata"], "ownerReferences": [self._owner]}
            body = {**body, "metadata": metadata}
        creation = Creation(self._api, self._scope, self._scope.run)
        try:
            creation.create(to_resource(body, self._scope.namespace))
        except NameTaken as exc:
            text = error_messages.name_taken(
                exc.resource.kind, exc.resource.name, self._scope, exc.found
            )
            return Problem(text=text, time=time.time(), permanent=True)
        except BackendError as exc:
            cause = exc.__cause__
            if not isinstance(cause, ApiError):
                raise
            if error_messages.is_terminating(cause):
                raise RunGone from exc
            is_temporary = error_messages.is_trouble(cause) or (
                error_messages.is_quota_exceeded(cause)
            )
            return Problem(text=str(exc), time=time.time(), permanent=not is_temporary)
        return None

    def _seconds_left(self) -> float | None:
        run = self._run
        return seconds_to_deadline(run.policies, launched=run.launched, now=time.time())

    def _publish(self, annotation: str, value: str) -> None:
        """Annotate the object with the roster, so that every reader of the status finds the value.

        If the user is not allowed to modify the object, only this supervisor knows the value.
        """
        unit = roster_unit(self._run.roster)
        patch = {"metadata": {"annotations": {annotation: value}}}
        try:
            self._patch("Job" if unit.job else "Pod", self._scope.object_name(unit.name), patch)
        except ApiError as exc:
            if exc.status not in (403, 404):
                raise

    def _patch(self, kind: str, name: str, patch: Object) -> None:
        path = f"{collection_path(kind, self._scope.namespace)}/{name}"
        self._api.call("PATCH", path, body=patch, content_type=MERGE_PATCH, accept=ACCEPT_METADATA)

    # --- the end of the experiment ---

    def _stop_processes(self, ending: StoppedProcesses, observation: Observation) -> None:
        """Stop processes, and keep their Pods, which contain their logs.

        If the active deadline of a Pod has passed, its node sends TERM to the processes, and KILL
        after the grace period. The Pod remains.
        """
        self._publish_ending(ending)
        stopped = set(ending.processes)
        units = [unit for unit in self._run.roster if stopped.intersection(unit.processes)]
        running = [unit for unit in units if unit.name not in observation.missing_units]
        in_parallel(self._stop_unit, running, threads=self._api.connections)

    def _publish_ending(self, ending: StoppedProcesses) -> None:
        if not self._ending_is_published:
            self._publish(ENDING, encode_ending(ending))
            self._ending_is_published = True

    def _stop_unit(self, unit: Unit) -> None:
        if unit.name in self._stopped_units and not unit.job:
            return
        if unit.job and unit.name not in self._stopped_units:
            # The Job must not create another Pod. It may already be creating one.
            name = self._scope.object_name(unit.name)
            self._ignore_missing(partial(self._patch, "Job", name, {"spec": {"backoffLimit": 0}}))
        path = collection_path("Pod", self._scope.namespace)
        query = {"labelSelector": f"{self._scope.selector},{UNIT}={unit.name}"}
        for pod in items_of(self._api.call("GET", path, query=query)):
            if pod["metadata"]["uid"] not in self._stopped_pods:
                self._ignore_missing(partial(self._stop_pod, unit, pod))
                self._stopped_pods.add(pod["metadata"]["uid"])
        self._stopped_units.add(unit.name)

    def _stop_pod(self, unit: Unit, pod: Object) -> None:
        metadata = pod["metadata"]
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            return
        has_node = bool(pod["spec"].get("nodeName"))
        if not has_node and not unit.job and unit != roster_unit(self._run.roster):
            # A Pod without a node has no deadline and no logs.
            path = f"{collection_path('Pod', self._scope.namespace)}/{metadata['name']}"
            delete_uid(self._api, path, metadata["uid"], grace_seconds=0)
            return
        self._patch("Pod", metadata["name"], {"spec": {"activeDeadlineSeconds": 1}})

    def _ignore_missing(self, call: Callable[[], object]) -> None:
        """Make a call for an object that a user may have deleted."""
        try:
            call()
        except ApiError as exc:
            if exc.status != 404:
                raise
