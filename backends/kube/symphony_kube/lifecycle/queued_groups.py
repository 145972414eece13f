"""Release the Pods of groups that a queue of Kueue manages.

Kueue keeps a deleted Pod of a group until the group has finished, because another Pod can replace
it. A group that waits for quota never finishes. If the Workload of a group is deleted, Kueue
releases its Pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony_kube.api.errors import ApiError
from symphony_kube.api.kueue import workloads_path
from symphony_kube.api.labels import POD_GROUP, Scope
from symphony_kube.api.resources import labels_of
from symphony_kube.lifecycle.create import in_parallel

if TYPE_CHECKING:
    from symphony_kube.api.client import Api


def group_of(item: Mapping[str, Any]) -> str:
    """Return the name of the group to which a Pod belongs, or ``""``."""
    return str(labels_of(item).get(POD_GROUP, ""))


def release_groups(api: Api, scope: Scope, groups: Iterable[str]) -> None:
    """Delete the Workloads of groups whose Pods have been deleted. An empty name is ignored.

    If the user may not delete Workloads, Kueue decides when the Pods are released.
    """
    names = {group for group in groups if group}
    if not names:
        return
    path = workloads_path(api, scope.namespace)

    def release(name: str) -> None:
        try:
            api.call("DELETE", f"{path}/{name}", body={"propagationPolicy": "Background"})
        except ApiError:
            # The group has finished, or the user lacks the permission.
            return

    in_parallel(release, sorted(names), threads=api.connections)
