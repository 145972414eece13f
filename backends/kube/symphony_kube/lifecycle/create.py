"""Create all objects for a launch. If any of them cannot be created, delete the others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

from symphony.errors import BackendError, LaunchFailed
from symphony_kube.api import error_messages
from symphony_kube.api.client import ACCEPT_METADATA
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import RUN, UNIT, Scope
from symphony_kube.api.resources import Resource, labels_of
from symphony_kube.render.given_fields.overrides import Override
from symphony_kube.render.given_fields.unknown_fields import unknown_fields

if TYPE_CHECKING:
    from symphony_kube.api.client import Api
    from symphony_kube.api.kube_experiment import KubeExperiment

T = TypeVar("T")
R = TypeVar("R")

# With this option, the server rejects unknown fields. Servers older than Kubernetes 1.25 ignore the
# option and drop such fields.
STRICT_QUERY = {"fieldValidation": "Strict"}
# How long the creation of Pods is retried in a new namespace whose service account does not exist
# yet. Retries are needed only if the user is not allowed to watch service accounts.
SERVICE_ACCOUNT_SECONDS = 10.0
SERVICE_ACCOUNT_PAUSE_SECONDS = 0.2

# The grace period with which Pods are killed. With 0, the API server would remove the Pod at once,
# and its node could give the processes the grace period of the Pod.
KILL_GRACE_SECONDS = 1


class NameTaken(BackendError):
    """Raised if an object cannot be created because another object has its name.

    ``found`` is the other object, or None if the user is not allowed to read it.
    """

    def __init__(self, resource: Resource, found: dict[str, Any] | None, cause: ApiError) -> None:
        super().__init__(str(cause))
        self.resource = resource
        self.found = found
        self.cause = cause


class Creation:
    """The objects of one launch, which are created in several threads and can be rolled back.

    Each object is labelled with ``run_id``. ``created`` contains the created objects, keyed by API
    path; of those of `create_all`, only the UIDs. ``uncertain`` contains the objects whose creation
    was requested but has not been confirmed or rejected by the server. ``has_units`` is true when
    all units have been created that do not wait for others. ``stopped`` is set when no more objects
    are to be created.
    """

    def __init__(
        self, experiment: KubeExperiment, run_id: str, overrides: Sequence[Override] = ()
    ) -> None:
        self._experiment = experiment
        self._overrides = overrides
        self.run_id = run_id
        self.created: dict[str, tuple[Resource, dict[str, Any]]] = {}
        self.uncertain: dict[str, Resource] = {}
        self.has_units = False
        self.stopped = threading.Event()

    def create(self, resource: Resource) -> dict[str, Any]:
        """Create an object and return it.

        If an earlier attempt created the object but the response was lost, return that object.
        Raises `NameTaken` if another object has the name, and `LaunchFailed` for other errors.
        """
        self.uncertain[resource.path] = resource
        try:
            body = self._post(resource)
        except NameTaken:
            del self.uncertain[resource.path]
            raise
        except BackendError as exc:
            if isinstance(exc, ApiError) and exc.status < 500:
                del self.uncertain[resource.path]
            raise refusal(resource, self._experiment.scope, exc, self._overrides) from exc
        self.created[resource.path] = (resource, body)
        del self.uncertain[resource.path]
        return body

    def check(self, resource: Resource) -> None:
        """Have the server validate an object that will be created later.

        Raises `NameTaken` if another object has the name, and `LaunchFailed` for other errors.
        """
        try:
            self._post(resource, {**STRICT_QUERY, "dryRun": "All"})
        except NameTaken:
            raise
        except BackendError as exc:
            # An admission webhook can refuse to check objects that are not created.
            if isinstance(exc, ApiError) and "does not support dry run" in exc.detail:
                return
            raise refusal(resource, self._experiment.scope, exc, self._overrides) from exc

    def check_all(self, units: Iterable[str], resource_of: Callable[[str], Resource]) -> None:
        """Have the server validate the objects of units in parallel; see `check`.

        ``resource_of`` returns the object of a unit. Encoding it takes place while the server
        processes other objects.
        """

        def check(unit: str) -> None:
            self.check(resource_of(unit))

        threads = self._experiment.api.connections
        in_parallel(check, units, threads=threads, stopped=self.stopped)

    def create_all(self, units: Iterable[str], resource_of: Callable[[str], Resource]) -> None:
        """Create the objects of units in parallel. After the first failure, no more objects are
        created.

        For ``resource_of``, see `check_all`. Of each created object, only the UID is kept: 10,000
        Pods take up 180 MB.
        """

        def create(unit: str) -> None:
            self._create_and_keep_uid(resource_of(unit))

        threads = self._experiment.api.connections
        in_parallel(create, units, threads=threads, stopped=self.stopped)

    def _create_and_keep_uid(self, resource: Resource) -> None:
        uid = self.create(resource)["metadata"]["uid"]
        self.created[resource.path] = (resource, {"metadata": {"uid": uid}})

    def _post(self, resource: Resource, query: Mapping[str, str] = STRICT_QUERY) -> dict[str, Any]:
        deadline = time.monotonic() + SERVICE_ACCOUNT_SECONDS
        while True:
            try:
                return self._experiment.api.call(
                    "POST",
                    resource.collection,
                    query=query,
                    body=resource.data,
                    cancelled=self.stopped,
                )
            except ApiError as exc:
                if exc.status == 409 and exc.reason == "AlreadyExists":
                    return self._existing(resource, exc)
                # The service account in a new namespace is created shortly after the namespace.
                may_appear = (
                    error_messages.lacks_service_account(exc)
                    and not self._experiment.scope.shared
                    and time.monotonic() < deadline
                )
                if not may_appear or self.stopped.wait(SERVICE_ACCOUNT_PAUSE_SECONDS):
                    raise

    def _existing(self, resource: Resource, exc: ApiError) -> dict[str, Any]:
        """Return the existing object if an earlier attempt of this launch created it. Otherwise,
        raise `NameTaken`.
        """
        try:
            found = self._experiment.api.find(resource.path)
        except ApiError:
            found = None
        if found is not None and labels_of(found).get(RUN) == self.run_id:
            return found
        raise NameTaken(resource, found, exc) from exc

    # --- rollback ---

    def roll_back(self) -> list[tuple[str, str]]:
        """Delete the created objects, which are identified by their UIDs.

        Return a description of each object that could not be deleted or may still exist, and the
        reason.
        """
        self.stopped.set()
        self._resolve_uncertain()
        # Deleting a namespace deletes all objects in it.
        namespaces = [
            path for path, (resource, _) in self.created.items() if resource.kind == "Namespace"
        ]
        if namespaces:
            failures = [self._delete(path) for path in namespaces]
            uncertain = []
        else:
            threads = self._experiment.api.connections
            failures = in_parallel(self._delete, list(self.created), threads=threads)
            uncertain = [_no_answer(resource) for resource in self.uncertain.values()]
        return [*(failure for failure in failures if failure is not None), *uncertain]

    def _delete(self, path: str) -> tuple[str, str] | None:
        """Delete the object at a path. Return None, or a description and why it remains."""
        resource, body = self.created[path]
        uid = body["metadata"]["uid"]
        try:
            delete_uid(self._experiment.api, path, uid, grace_seconds=KILL_GRACE_SECONDS)
        except ApiError as exc:
            return str(resource), exc.detail
        except BackendError:
            return _no_answer(resource)
        return None

    def _resolve_uncertain(self) -> None:
        """Determine which of the uncertain objects were created."""
        for path, resource in list(self.uncertain.items()):
            try:
                found = self._experiment.api.find(path)
            except BackendError:
                continue
            if found is not None and labels_of(found).get(RUN) == self.run_id:
                self.created[path] = (resource, found)
            del self.uncertain[path]


def refusal(
    resource: Resource, scope: Scope, exc: BackendError, overrides: Sequence[Override] = ()
) -> LaunchFailed:
    """Return the error for an object that the server does not create.

    ``overrides`` are those of the experiment. Fields that the server does not know can be in them.
    """
    kind, name = resource.kind, resource.name
    fields: Mapping[str, Sequence[str]] = {}
    if isinstance(exc, ApiError):
        body = json.loads(resource.data)
        unit = labels_of(body).get(UNIT)
        own = [item for item in overrides if kind == "JobSet" or item.unit == unit]
        fields = unknown_fields(exc.detail, body, own)
    if fields:
        return LaunchFailed(error_messages.unknown_fields(kind, name, scope, fields))
    text = error_messages.cannot_create(kind, name, scope, exc)
    return error_messages.launch_failed(text, exc)


def _no_answer(resource: Resource) -> tuple[str, str]:
    return f"perhaps {resource}", "the server did not answer"


def delete_uid(api: Api, path: str, uid: str, *, grace_seconds: int | None = None) -> bool:
    """Delete the object at a path if it still has the given UID, and if it still exists.

    Return whether this was the case. ``grace_seconds`` overrides the object's grace period.
    """
    options: dict[str, Any] = {
        "propagationPolicy": "Background",
        "preconditions": {"uid": uid},
    }
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    try:
        # The answer contains the whole object unless only its metadata is accepted.
        api.call("DELETE", path, body=options, accept=ACCEPT_METADATA)
    except ApiError as exc:
        # Status 409 means that another object now has the name.
        if exc.status not in (404, 409):
            raise
        return False
    return True


def in_parallel(
    work: Callable[[T], R],
    items: Iterable[T],
    *,
    threads: int,
    stopped: threading.Event | None = None,
) -> list[R]:
    """Call ``work`` for each item in several threads, and return the results in the order of the
    items.

    After the first exception, including Ctrl-C in the calling thread, ``stopped`` is set and no
    more calls are started. The exception is raised after the running calls have returned.
    """
    todo = list(items)
    if not todo:
        return []
    with ThreadPoolExecutor(min(threads, len(todo))) as pool:
        futures: list[Future[R]] = [pool.submit(work, item) for item in todo]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            if stopped is not None:
                stopped.set()
            for future in futures:
                future.cancel()
            raise
