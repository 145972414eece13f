"""The reasons why an experiment cannot be changed while it is running."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from symphony.plan.changes import ADDED, REMOVED, STARTED_AGAIN
from symphony.support.names import join_names
from symphony_kube.changes.new_supervision import is_supervised_elsewhere, supervised_run
from symphony_kube.lifecycle import attempts
from symphony_kube.lifecycle.supervisor import in_cluster
from symphony_kube.lifecycle.supervisor.run import encode_run
from symphony_kube.state.control_state import encode_manifest

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.changes.difference import Difference


def obstacles(difference: Difference) -> list[str]:
    """Return the reasons why the experiment cannot be changed while it is running."""
    new = difference.new
    found = [*_deadline_obstacle(difference), *_job_set_obstacle(difference)]
    started_again = difference.units_with(*STARTED_AGAIN)
    large = [
        name
        for name, body in new.manifest.objects_by_unit.items()
        if name in started_again and len(encode_manifest(body)) > attempts.MAX_MANIFEST_CHARS
    ]
    if large:
        found.append(f"the manifest of {join_names(large)} is too large to be replaced")
    return found


def supervisor_obstacles(experiment: KubeExperiment, difference: Difference) -> list[str]:
    """Return why no supervisor can take over the new description, if none can."""
    running = difference.running
    if in_cluster.exists(experiment):
        run = supervised_run(experiment, difference)
        problem = in_cluster.size_problem(encode_run(run))
        if problem:
            return [f"its supervisor in the cluster cannot be changed: {problem}"]
        if not in_cluster.can_start_again(experiment, difference.new.supervisor):
            return [
                "the Job of its supervisor in the cluster was deleted; set supervisor_image to "
                "create another one"
            ]
        return []
    if is_supervised_elsewhere(difference) and not running.follows:
        return [
            f"its supervisor runs on the host {running.host} with an earlier version of symphony; "
            "run the command there"
        ]
    return []


def _job_set_obstacle(difference: Difference) -> list[str]:
    """Return why ranks in JobSets cannot be changed, if any change."""
    changed = difference.units_with(ADDED, REMOVED, *STARTED_AGAIN)
    rosters = (*difference.state.units, *difference.new.manifest.roster)
    names = {unit.job_set for unit in rosters if unit.job_set and unit.name in changed}
    if not names:
        return []
    return [f"the ranks of {join_names(sorted(names))} are in JobSets, which cannot be changed"]


def _deadline_obstacle(difference: Difference) -> list[str]:
    """Return why the deadline cannot be extended, if it cannot.

    The active deadline of a Pod cannot be extended.
    """
    deadline = difference.new.manifest.policies.deadline
    end = math.inf if deadline is None else difference.running.launched + deadline
    replaced = difference.units_with(REMOVED, *STARTED_AGAIN)
    replaced -= difference.in_place.units
    names = []
    for name, unit in difference.observation.unit_statuses.items():
        if name in replaced or unit.has_ended:
            continue
        # Kubernetes reports times in seconds.
        ends = [pod.created + pod.time_limit + 1 for pod in unit.pods if pod.time_limit]
        if ends and ends[-1] < end:
            names.append(name)
    if not names:
        return []
    return [
        f"Kubernetes stops {join_names(names, limit=4)} at the present deadline, which cannot be "
        "extended in a Pod; only an experiment that is launched with supervisor_image has no "
        "deadlines in its Pods"
    ]
