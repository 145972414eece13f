"""Creating objects, and taking back what was created: all or nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

from symphony.errors import BackendError
from symphony_kube.api import error_messages
from symphony_kube.api import labels as names
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.api.resources import Resource, labels

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

T = TypeVar("T")
R = TypeVar("R")

# A field that the server does not know is an error. Servers before 1.25 drop it without a word.
STRICT = {"fieldValidation": "Strict"}
AT_ONCE = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
# How long the service account of a new namespace is waited for where it cannot be watched, in seconds.
ACCOUNT = 10.0


class NameTaken(BackendError):
    """An object of that name is there: ``found``, or None where it may not be read."""

    def __init__(self, item: Resource, found: dict[str, Any] | None, cause: ApiError) -> None:
        super().__init__(str(cause))
        self.item = item
        self.found = found
        self.cause = cause


class Creation:
    """What one launch creates, by several threads, each object marked with ``run_id``.

    ``made`` has what was created, by path; ``unsure`` what may have been: no answer came.
    """

    def __init__(self, api: Api, scope: Scope, run_id: str) -> None:
        self._api = api
        self._scope = scope
        self.run_id = run_id
        self.made: dict[str, tuple[Resource, dict[str, Any]]] = {}
        self.unsure: dict[str, Resource] = {}
        self.over = threading.Event()

    def create(self, item: Resource) -> dict[str, Any]:
        """Create an object, or find that an earlier try did. Raises `LaunchFailed` and `NameTaken`."""
        self.unsure[item.path] = item
        try:
            body = self._post(item)
        except NameTaken:
            del self.unsure[item.path]
            raise
        except BackendError as exc:
            if isinstance(exc, ApiError) and exc.status < 500:
                del self.unsure[item.path]
            raise error_messages.failed(
                error_messages.cannot_create(item.kind, item.name, self._scope, exc), exc
            ) from exc
        self.made[item.path] = (item, body)
        del self.unsure[item.path]
        return body

    def create_all(self, items: Sequence[Resource]) -> None:
        """Create objects at once; at the first failure no more are begun, and it is raised."""
        in_parallel(self.create, items, threads=self._api.connections, over=self.over)

    def _post(self, item: Resource) -> dict[str, Any]:
        deadline = time.monotonic() + ACCOUNT
        while True:
            try:
                return self._api.call(
                    "POST", item.collection, query=STRICT, body=item.data, give_up=self.over
                )
            except ApiError as exc:
                if exc.status == 409 and exc.reason == "AlreadyExists":
                    return self._mine(item, exc)
                early = (
                    error_messages.no_account(exc)
                    and not self._scope.shared
                    and time.monotonic() < deadline
                )
                if not early or self.over.wait(0.2):
                    raise

    def _mine(self, item: Resource, exc: ApiError) -> dict[str, Any]:
        """What is there already, where an earlier try of ours made it."""
        try:
            found = self._api.find(item.path)
        except ApiError:
            found = None
        if found is not None and labels(found).get(names.RUN) == self.run_id:
            return found
        raise NameTaken(item, found, exc) from exc

    # --- taking back ---

    def take_back(self) -> list[str]:
        """Delete what was created, by uid. What could not be deleted is told, with the reason."""
        self.over.set()
        self._look_for_unsure()
        # All that is in a namespace goes with it.
        whole = [path for path, (item, _) in self.made.items() if item.kind == "Namespace"]
        left = [self._delete(path) for path in whole] or in_parallel(
            self._delete, list(self.made), threads=self._api.connections
        )
        unsure = [] if whole else [_perhaps(item) for item in self.unsure.values()]
        return [*(word for word in left if word), *unsure]

    def _delete(self, path: str) -> str:
        """Delete what was created at a path; why it could not be, or nothing."""
        item, body = self.made[path]
        try:
            delete_uid(self._api, path, body["metadata"]["uid"])
        except BackendError as exc:
            return f"{item} ({exc.detail})" if isinstance(exc, ApiError) else _perhaps(item)
        return ""

    def _look_for_unsure(self) -> None:
        for path, item in list(self.unsure.items()):
            try:
                found = self._api.find(path)
            except BackendError:
                continue
            if found is not None and labels(found).get(names.RUN) == self.run_id:
                self.made[path] = (item, found)
            del self.unsure[path]


def _perhaps(item: Resource) -> str:
    return f"perhaps {item} (no answer came)"


def delete_uid(api: Api, path: str, uid: str, *, at_once: bool = True) -> dict[str, Any] | None:
    """Delete an object, if it is still the one that is meant; what the server says of it, None where it is gone."""
    options = AT_ONCE if at_once else {"propagationPolicy": "Background"}
    try:
        return api.call("DELETE", path, body={**options, "preconditions": {"uid": uid}})
    except ApiError as exc:
        # 409: another object has the name by now
        if exc.status in (404, 409):
            return None
        raise


def in_parallel(
    work: Callable[[T], R], items: Iterable[T], *, threads: int, over: threading.Event | None = None
) -> list[R]:
    """The results of ``work`` for each item, by several threads.

    At the first exception, also of the caller's own thread (Ctrl-C), no further item is begun and ``over`` is set;
    it is raised when those under way are done.
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
            if over is not None:
                over.set()
            for future in futures:
                future.cancel()
            raise
