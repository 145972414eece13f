"""Release the Pods of groups that a queue of Kueue manages.

Kueue keeps a deleted Pod of a group until the group has finished, because another Pod can replace
it. A group that waits for quota never finishes. If the Workload of a group is deleted, Kueue
releases its Pods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from symphony_kube.api.errors import ApiError
from symphony_kube.api.kueue import workloads_path
from symphony_kube.api.labels import POD_GROUP
from symphony_kube.api.resources import labels_of
from symphony_kube.lifecycle.create import delete_uid, in_parallel

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment


def group_of(item: Mapping[str, Any]) -> str:
    """Return the name of the group to which a Pod belongs, or ``""``."""
    return str(labels_of(item).get(POD_GROUP, ""))


def release_groups(experiment: KubeExperiment, pods: Mapping[str, str]) -> None:
    """Delete the Workloads of the groups of deleted Pods, whose UIDs ``pods`` maps to the groups.

    A Pod without a group has the group ``""``. The Workload of another group with the same name,
    such as that of a later launch, is not deleted. If the user may not read and delete Workloads,
    Kueue decides when the Pods are released.
    """
    uids: dict[str, set[str]] = {}
    for uid, group in pods.items():
        if group:
            uids.setdefault(group, set()).add(uid)
    if not uids:
        return
    path = workloads_path(experiment.api, experiment.namespace)

    def release(group: str) -> None:
        try:
            workload = experiment.api.find(f"{path}/{group}")
            if workload is not None and _is_owned(workload, uids[group]):
                delete_uid(experiment.api, f"{path}/{group}", workload["metadata"]["uid"])
        except ApiError:
            # The user lacks the permission.
            return

    in_parallel(release, sorted(uids), threads=experiment.api.connections)


def _is_owned(workload: Mapping[str, Any], uids: Collection[str]) -> bool:
    """Return whether a Workload is that of one of these Pods, which Kueue makes its owners."""
    owners = workload["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] in uids for owner in owners)
