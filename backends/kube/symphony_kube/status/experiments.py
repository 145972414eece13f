"""Looking at experiments: which there are, how one is, and how that changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from symphony.cluster.matching import experiment_not_found, still_awaited, wait_timeout
from symphony.errors import NotFound, SymphonyError
from symphony.names import is_name
from symphony.status import ExperimentStatus
from symphony_kube.api import labels
from symphony_kube.api.client import ACCEPT_METADATA_LIST, Api, Object
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.api.watch import LISTED, Change, Watcher
from symphony_kube.render.roster import Roster
from symphony_kube.status import pod_events
from symphony_kube.status.observe import JOBS, PODS, Observation, Observer

if TYPE_CHECKING:
    from symphony.cluster import OnChange
    from symphony.cluster.matching import Until

NAMESPACES = "/api/v1/namespaces"
NOTHING_LEFT = (
    "nothing of it is left but its namespace: its Pods were deleted, or its launch was cut short"
)
# After a Pod has vanished, how long to see whether the rest goes too, in seconds.
SETTLING = 1.0


def experiments(api: Api, *, namespace: str | None) -> list[str]:
    """The names of the experiments that symphony made: in one namespace, or each in its own."""
    if namespace is not None:
        return _shared(api, namespace)
    try:
        spaces = api.call(
            "GET",
            NAMESPACES,
            query={"labelSelector": f"{labels.MANAGED_SELECTOR},{labels.EXPERIMENT}"},
        )
    except ApiError as exc:
        if exc.status != 403:
            raise
        raise _refused(
            exc, "list experiments", "choose the namespace that you may use with namespace="
        ) from exc
    metas = [item["metadata"] for item in spaces.get("items") or ()]
    return sorted(
        meta["name"] for meta in metas if meta["labels"][labels.EXPERIMENT] == meta["name"]
    )


def _shared(api: Api, namespace: str) -> list[str]:
    """The experiments that have objects in a namespace, as far as these may be listed."""
    found: set[str] = set()
    refusals: list[ApiError] = []
    for path in _listable(namespace):
        try:
            listed = api.call(
                "GET",
                path,
                query={"labelSelector": f"{labels.MANAGED_SELECTOR},{labels.EXPERIMENT}"},
                accept=ACCEPT_METADATA_LIST,
            )
        except ApiError as exc:
            if exc.status != 403:
                raise
            refusals.append(exc)
            continue
        found.update(
            item["metadata"]["labels"][labels.EXPERIMENT] for item in listed.get("items") or ()
        )
    if len(refusals) == len(_listable(namespace)):
        raise _refused(
            refusals[0],
            f"list experiments in namespace {namespace!r}",
            "ask for the right to list Pods",
        )
    return sorted(found)


def _listable(namespace: str) -> tuple[str, ...]:
    return (*_paths(namespace).values(), f"{NAMESPACES}/{namespace}/services")


def _paths(namespace: str) -> dict[str, str]:
    return {
        PODS: f"{NAMESPACES}/{namespace}/pods",
        JOBS: f"/apis/batch/v1/namespaces/{namespace}/jobs",
    }


def describe(api: Api, scope: Scope) -> ExperimentStatus:
    """How an experiment is: one list of its Pods, and one of its Jobs where it has any. `NotFound` without it.

    What a Pod waits for that is being set up for long is asked as well.
    """
    observer, pods = observed(api, scope)
    return pod_events.explained(api, scope, status_of(api, scope, observer), pods, now=time.time())


def observed(api: Api, scope: Scope) -> tuple[Observer, list[Object]]:
    """What there is of an experiment: an observer that knows its Pods and Jobs, and the Pods themselves."""
    observer = Observer(scope.experiment)
    pods = _list(api, scope, PODS)
    observer.replace(PODS, pods)
    if observer.has_jobs or observer.empty:
        observer.replace(JOBS, _jobs(lambda: _list(api, scope, JOBS)))
    return observer, pods


def status_of(api: Api, scope: Scope, observer: Observer) -> ExperimentStatus:
    """How what was observed is now. `NotFound` where there is nothing of it."""
    return _without_objects(api, scope) if observer.empty else observer.look(time.time()).status


def _list(api: Api, scope: Scope, kind: str) -> list[Object]:
    if not is_name(scope.experiment):  # a selector would not take it
        return []
    try:
        listed = api.call(
            "GET", _paths(scope.namespace)[kind], query={"labelSelector": scope.selector}
        )
    except ApiError as exc:
        if exc.status != 403 or kind == JOBS:
            raise
        raise _no_right(exc, scope) from exc
    return listed.get("items") or []


def _jobs(ask: Callable[[], list[Object]]) -> list[Object]:
    """Jobs, or none where they may not be listed: what Pods there are is then what is told."""
    try:
        return ask()
    except ApiError as exc:
        if exc.status != 403:
            raise
        return []


def _without_objects(api: Api, scope: Scope) -> ExperimentStatus:
    """An experiment of which there is no Pod and no Job; `NotFound` where nothing else is left of it either."""
    try:
        known = experiments(api, namespace=scope.namespace if scope.shared else None)
    except ApiError as exc:
        if exc.status != 403:
            raise
        known = []
    if scope.experiment not in known:
        raise experiment_not_found(scope.experiment, known)
    return ExperimentStatus(name=scope.experiment, backend="kube", note=NOTHING_LEFT)


def wait(
    api: Api,
    scope: Scope,
    *,
    timeout: float | None,
    on_change: OnChange,
    until: Until = "ended",
) -> ExperimentStatus:
    """Return when every process has come so far; see `Cluster.wait`. One list and one watch of each kind.

    What a Pod waits for that is being set up for long is asked as well, for ``on_change``.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    with follow(api, scope) as following:
        seen = following.first()
        while True:
            if on_change is not None:
                on_change(seen.status)
            going = still_awaited(seen.status, until)
            if not going and seen.gone:
                # Its Pods go one after the other when an experiment is deleted: then there is none any more.
                later = following.next(SETTLING)
                if later is None:
                    return seen.status
                seen = later
                continue
            if not going:
                return seen.status
            later = _next(api, scope, following, seen, deadline, on_change)
            if later is None:
                raise wait_timeout(scope.experiment, until, going, timeout or 0.0)
            seen = later


def _next(
    api: Api,
    scope: Scope,
    following: Following,
    seen: Observation,
    deadline: float | None,
    on_change: OnChange,
) -> Observation | None:
    """The next observation after ``seen``; None at the deadline.

    No Pod changes when it cannot be set up, so ``on_change`` is told now and then why that is.
    """
    tell = on_change if pod_events.setting_up(seen.status) else None
    told = seen.status
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return None
        later = following.next(_least(left, pod_events.SLOW if tell else None))
        if later is not None or tell is None:
            return later
        try:
            now = pod_events.explained(
                api, scope, seen.status, _list(api, scope, PODS), now=time.time()
            )
        except SymphonyError:  # who follows hears it too, and knows whether it heals
            continue
        if now != told:
            told = now
            tell(now)


def follow(api: Api, scope: Scope, *, roster: Roster | None = None) -> Following:
    """How an experiment is, first now and then whenever that changes.

    ``roster`` is given by a launcher: the experiment need not be there yet, and who has not been created is waited
    for without end. Nothing is asked before the first look. Close it when done, from any thread.
    """
    return Following(api, scope, roster=roster)


class Following:
    """Looks at an experiment whenever something changes: an iterator of `Observation`.

    It begins with one list and one watch of Pods (and of Jobs where there are any). It ends when it is closed.
    Raises `NotFound` for an experiment that is not there, or no longer, and `Unreachable` where the server is away
    for too long.
    """

    def __init__(self, api: Api, scope: Scope, *, roster: Roster | None = None) -> None:
        self._api = api
        self._scope = scope
        self._launching = roster is not None
        self._observer = Observer(scope.experiment, roster=roster)
        self._watcher = Watcher(api, _paths(scope.namespace), scope.selector)
        self._started = False
        self._with_jobs = False
        self._seen: Observation | None = None

    def __enter__(self) -> Following:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Following:
        return self

    def __next__(self) -> Observation:
        found = self.next()
        if found is None:
            raise StopIteration
        return found

    def close(self) -> None:
        """End it; whoever waits for the next observation gets none."""
        self._watcher.close()

    def first(self) -> Observation:
        """How the experiment is now."""
        found = self.next()
        if found is None:
            raise NotFound(f"nobody looks at experiment {self._scope.experiment!r} any more")
        return found

    def next(self, seconds: float | None = None) -> Observation | None:
        """The next observation that differs; None after so many seconds, or when this was closed."""
        deadline = None if seconds is None else time.monotonic() + seconds
        if not self._started:
            self._start()
        while not self._watcher.closed:
            seen = self._observer.look(time.time())
            if not seen.same(self._seen):
                self._check_there(seen)
                self._seen = seen
                return seen
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            for change in self._watcher.changes(
                _least(left, seen.until and max(0.0, seen.until - time.time()))
            ):
                self._apply(change)
            self._look_for_jobs()
        return None

    def _start(self) -> None:
        self._started = True
        scope = self._scope
        if not is_name(scope.experiment):  # a selector would not take it
            raise experiment_not_found(scope.experiment, [])
        try:
            self._observer.replace(PODS, self._watcher.start(PODS))
        except ApiError as exc:
            if exc.status != 403:
                raise
            raise _no_right(exc, scope) from exc
        self._look_for_jobs()
        if self._observer.empty and not self._launching:
            _without_objects(
                self._api, scope
            )  # raises NotFound, but for one whose namespace is left

    def _look_for_jobs(self) -> None:
        """Follow Jobs too, once it is known that there are any."""
        wanted = self._observer.has_jobs or (
            self._observer.empty and not self._launching and self._seen is None
        )
        if wanted and not self._with_jobs:
            self._with_jobs = True
            self._observer.replace(
                JOBS, _jobs(lambda: list(self._watcher.start(JOBS, optional=True)))
            )

    def _apply(self, change: Change) -> None:
        if change.event == LISTED:
            self._observer.replace(change.kind, change.objects)
        else:
            self._observer.apply(change.kind, change.event, *change.objects)

    def _check_there(self, seen: Observation) -> None:
        """Raise `NotFound` for an experiment of which nothing is left."""
        if not seen.empty or self._launching or self._seen is None:
            return
        if self._scope.shared or not self._has_namespace():
            raise NotFound(f"experiment {self._scope.experiment!r} was deleted")

    def _has_namespace(self) -> bool:
        """Whether the experiment's namespace is there and stays; Pods may be deleted by hand."""
        try:
            space = self._api.find(f"{NAMESPACES}/{self._scope.namespace}")
        except ApiError as exc:
            if exc.status != 403:
                raise
            return False
        return space is not None and "deletionTimestamp" not in space["metadata"]


def _least(*seconds: float | None) -> float | None:
    return min((each for each in seconds if each is not None), default=None)


def _no_right(exc: ApiError, scope: Scope) -> ApiError:
    advice = "ask for the right to list and watch Pods there"
    if not scope.shared:
        advice += ", or choose the namespace that you may use with namespace="
    return _refused(
        exc, f"look at experiment {scope.experiment!r} in namespace {scope.namespace!r}", advice
    )


def _refused(exc: ApiError, what: str, advice: str) -> ApiError:
    return ApiError(
        f"cannot {what}: {exc.detail}; {advice}",
        status=exc.status,
        reason=exc.reason,
        detail=exc.detail,
    )
