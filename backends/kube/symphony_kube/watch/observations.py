"""Follow the status of an experiment by listing and watching its Pods, and its Jobs and JobSets if
it has any.

`ExperimentWatch` keeps an observer up to date. `ObservationStream` returns an observation whenever
the status changes. `symphony_kube.logs.follow` uses an `ExperimentWatch` to decide which logs to
read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType

from symphony.cluster.matching import experiment_not_found
from symphony.errors import NotFound
from symphony.support.names import is_name
from symphony_kube.api.client import Api, Object
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import RUN, Scope
from symphony_kube.api.resources import NAMESPACES, collection_path, labels_of
from symphony_kube.render.roster import Roster
from symphony_kube.state.observe import JOB_SETS, JOBS, PODS, Observation, PodObserver
from symphony_kube.status.experiments import (
    complete_observer,
    list_again,
    list_if_possible,
    status_without_objects,
)
from symphony_kube.status.permission_errors import cannot_list_pods
from symphony_kube.status.stored_roster import read_stored_roster
from symphony_kube.watch.informer import LISTED, Change, Watcher

# The interval at which Jobs and JobSets are listed again if the user may not watch them. Their
# states decide when their processes have finished.
POLL_SECONDS = 2.0


class ExperimentWatch:
    """A watch that keeps an observer up to date with an experiment's Pods and Jobs.

    If a supervisor passes its ``roster``, the experiment need not exist yet. Without ``follow``,
    the objects are only listed. The caller must close the watch when it is no longer needed. Any
    thread can close it.
    """

    def __init__(
        self, api: Api, scope: Scope, *, roster: Roster | None = None, follow: bool = True
    ) -> None:
        self._api = api
        self._scope = scope
        self._supervising = roster is not None
        self._watched: set[str] = set()
        # The latest run of which a Pod or Job was observed, and when this object was created.
        self._run = ""
        self._run_since = ""
        self._is_replaced = False
        self._watcher = self._make_watcher(api, scope, follow=follow)
        self.observer = PodObserver(scope.experiment, roster=roster)

    def _make_watcher(self, api: Api, scope: Scope, *, follow: bool) -> Watcher:
        paths = {
            PODS: collection_path("Pod", scope.namespace),
            JOBS: collection_path("Job", scope.namespace),
            JOB_SETS: collection_path("JobSet", scope.namespace),
        }
        return Watcher(api, paths, scope.present_selector, follow=follow)

    @property
    def closed(self) -> bool:
        """True if the watch was closed."""
        return self._watcher.closed

    @property
    def silent_seconds(self) -> float:
        """See `Watcher.silent_seconds`."""
        return self._watcher.silent_seconds

    @property
    def is_replaced(self) -> bool:
        """True if objects of a later launch have been observed."""
        return self._is_replaced

    @property
    def has_news(self) -> bool:
        """True if there is something new that the observer does not show."""
        return False

    def close(self) -> None:
        """Stop watching. A caller that is waiting for changes receives an empty list."""
        self._watcher.close()

    def start(self) -> tuple[Object, ...]:
        """List the Pods, and the Jobs and JobSets if any could exist, and begin to watch them.

        Return the Pods. Raises `NotFound` if no experiment can have this name, and `ApiError` if
        the user may not list Pods.
        """
        # The API server rejects a selector with an invalid name.
        if not is_name(self._scope.experiment):
            raise experiment_not_found(self._scope.experiment, [])
        try:
            pods = self._watcher.start(PODS)
        except ApiError as exc:
            if exc.status != 403:
                raise
            raise cannot_list_pods(exc, self._scope) from exc
        self._note_runs(pods)
        self._is_replaced = False
        self.observer.replace(PODS, pods)
        if self.observer.has_jobs or (self.observer.empty and not self._supervising):
            self._start_optional(JOBS)
        if not self._supervising:
            complete_observer(self._api, self._scope, self.observer)
            if self.observer.may_have_missed_launch:
                # The watch also reports these objects, and their later changes.
                pods = tuple(list_again(self._api, self._scope, self.observer))
                self._note_runs(pods)
        if self.observer.has_job_sets or (self.observer.empty and not self._supervising):
            self._start_optional(JOB_SETS)
        return pods

    def changes(self, seconds: float | None = None) -> list[Change]:
        """Wait for changes, and return them.

        Return an empty list if nothing changes within ``seconds`` seconds, or if the watch is
        closed.
        """
        return self._watcher.changes(seconds)

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply changes to the observer, and watch Jobs and JobSets as soon as at least one of them
        is known to exist.
        """
        for change in changes:
            if change.event != "DELETED":
                self._note_runs(change.objects)
            if change.event == LISTED:
                self.observer.replace(change.kind, change.objects)
            else:
                self.observer.apply(change.kind, change.event, *change.objects)
        if self.observer.has_jobs:
            self._start_optional(JOBS)
        if self.observer.has_job_sets:
            self._start_optional(JOB_SETS)

    def _note_runs(self, objects: Iterable[Object]) -> None:
        """Note the runs of objects that exist."""
        for item in objects:
            run = labels_of(item).get(RUN, "")
            created = item["metadata"].get("creationTimestamp", "")
            if not run or run == self._run or created <= self._run_since:
                continue
            self._is_replaced = bool(self._run)
            self._run, self._run_since = run, created

    def _start_optional(self, kind: str) -> None:
        if kind not in self._watched:
            self._watched.add(kind)
            objects = list_if_possible(
                lambda: self._watcher.start(kind, optional=True, poll_seconds=POLL_SECONDS)
            )
            self.observer.replace(kind, objects)


class ObservationStream:
    """An iterator over an experiment's observations.

    The iterator first returns the current observation, and then a new observation after each
    change, or when the watch has other news.

    The iterator ends when the stream is closed. Raises `NotFound` if the experiment does not exist,
    no longer exists, or was replaced by another launch, and `Unreachable` if the server is
    unresponsive for too long. If a supervisor passes its ``roster``, the stream waits without a
    time limit for processes that have not been created yet. The first request is sent when the
    first observation is read. If ``watch`` is given, the stream uses and closes it.
    """

    def __init__(
        self,
        api: Api,
        scope: Scope,
        *,
        roster: Roster | None = None,
        watch: ExperimentWatch | None = None,
    ) -> None:
        self._api = api
        self._scope = scope
        self._supervising = roster is not None
        self._watch = watch or ExperimentWatch(api, scope, roster=roster)
        self._started = False
        self._last: Observation | None = None

    def __enter__(self) -> ObservationStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> ObservationStream:
        return self

    def __next__(self) -> Observation:
        observation = self.next()
        if observation is None:
            raise StopIteration
        return observation

    @property
    def observer(self) -> PodObserver:
        """The observer that computes the observations."""
        return self._watch.observer

    @property
    def silent_seconds(self) -> float:
        """See `Watcher.silent_seconds`."""
        return self._watch.silent_seconds

    def close(self) -> None:
        """End the stream. Any thread can call this method.

        A caller that is waiting for an observation receives None.
        """
        self._watch.close()

    def first(self) -> Observation:
        """Return the current observation. Raises `NotFound` if the stream was closed."""
        observation = self.next()
        if observation is None:
            raise NotFound(f"experiment {self._scope.experiment!r} is no longer observed")
        return observation

    def next(self, seconds: float | None = None) -> Observation | None:
        """Return the next observation that differs from the previous one.

        Return None if there is no new observation within ``seconds`` seconds, or if the stream is
        closed.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        is_over = False
        if not self._started:
            self._start()
        while not self._watch.closed:
            observation = self._watch.observer.observe(self._api.now())
            if self._watch.has_news or not observation.is_same_as(self._last):
                self._check_exists(observation)
                self._last = observation
                return observation
            if is_over:
                return None
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            # Changes that have already arrived are applied even if there is no time to wait.
            is_over = timeout == 0
            if observation.valid_until is not None:
                expires_in = max(0.0, observation.valid_until - self._api.now())
                timeout = expires_in if timeout is None else min(timeout, expires_in)
            self._watch.apply(self._watch.changes(timeout))
            if self._watch.is_replaced and not self._supervising:
                raise NotFound(
                    f"experiment {self._scope.experiment!r} was replaced by another launch in the "
                    "meantime"
                )
        return None

    def _start(self) -> None:
        self._started = True
        self._watch.start()
        if not self._watch.observer.is_known and not self._supervising:
            # This call raises NotFound if the experiment has no other objects either.
            status_without_objects(self._api, self._scope)

    def _check_exists(self, observation: Observation) -> None:
        """Raise `NotFound` if the experiment was observed earlier and has been deleted since."""
        if not observation.empty or self._supervising or self._last is None:
            return
        if not self._has_other_objects():
            raise NotFound(f"experiment {self._scope.experiment!r} was deleted")

    def _has_other_objects(self) -> bool:
        """Return whether the experiment's namespace, or its description in a shared namespace,
        exists and is not being deleted.

        It still exists if only the Pods were deleted, for example by a user or with their node.
        """
        if self._scope.shared:
            return read_stored_roster(self._api, self._scope) is not None
        try:
            namespace = self._api.find(f"{NAMESPACES}/{self._scope.namespace}")
        except ApiError as exc:
            if exc.status != 403:
                raise
            return False
        return namespace is not None and "deletionTimestamp" not in namespace["metadata"]
