"""Check that the API server lets Pods and Jobs wait for the queues of Kueue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import LaunchFailed
from symphony_kube.api.labels import QUEUE
from symphony_kube.api.resources import labels_of

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = Mapping[str, Any]

# The first versions of Kubernetes 1 with scheduling gates of Pods, and with suspended Jobs.
_FIRST_MINOR_VERSIONS = {"Pod": 27, "Job": 22}


def check_queues(api: Api, bodies: Iterable[Object]) -> None:
    """Raise `LaunchFailed` if a Pod or Job would start without waiting for its queue.

    Older servers ignore the field with which an object waits.
    """
    waiting = [body for body in bodies if QUEUE in labels_of(body)]
    if not waiting:
        return
    version = api.call("GET", "/version")
    digits = re.match("[0-9]+", version["minor"])
    minor = int(digits[0]) if digits else 0
    for body in waiting:
        kind, first = body["kind"], _FIRST_MINOR_VERSIONS[body["kind"]]
        if minor < first:
            queue = labels_of(body)[QUEUE]
            raise LaunchFailed(
                f"{kind.lower()} {body['metadata']['name']!r} would not wait for queue {queue!r}, "
                f"because the cluster has Kubernetes 1.{minor}; use Kubernetes 1.{first} or newer, "
                "or remove queue"
            )
