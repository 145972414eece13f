"""Change an object in the version that was read, so that no change of another program is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony_kube.api.client import MERGE_PATCH
from symphony_kube.api.errors import ApiError

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = Mapping[str, Any]

# How often another program may change the object in the meantime. Each time, that program has made
# progress, so that several programs do not prevent each other from making theirs.
MAX_TRIES = 20
_LONGEST_PAUSE_SECONDS = 0.05


def compare_and_swap(
    api: Api, path: str, change: Callable[[Object], Object | None]
) -> dict[str, Any] | None:
    """Read an object, patch it in this version, and return it.

    ``change`` returns the patch for the object that it receives, an empty patch if none is
    necessary, or None if the object must not be changed. If another program has changed the object
    in the meantime, it is read again, and ``change`` is called again. Return None if the object
    does not exist or must not be changed.

    Raises `ApiError`, and `BackendError` if other programs change the object all the time.
    """
    for _ in range(MAX_TRIES):
        body = api.find(path)
        if body is None:
            return None
        patch = change(body)
        if patch is None:
            return None
        if not patch:
            return body
        version = body["metadata"]["resourceVersion"]
        metadata = {**patch.get("metadata", {}), "resourceVersion": version}
        try:
            return api.call(
                "PATCH", path, body={**patch, "metadata": metadata}, content_type=MERGE_PATCH
            )
        except ApiError as exc:
            if exc.status == 404:
                return None
            if exc.status != 409:
                raise
        time.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))
    raise changed_too_often(path)


def changed_too_often(path: str) -> BackendError:
    """Return the error for an object that other programs change all the time."""
    kind, _, name = path.rpartition("/")
    return BackendError(
        f"other programs have changed {name!r} of the {kind.rpartition('/')[2]} {MAX_TRIES} times "
        "in the meantime; run the command again"
    )
