"""The supervisor of an experiment after a change: what it works from, and whether it is needed."""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symphony.plan.policies import Policies
from symphony_kube.api.resources import with_run_label, with_run_name
from symphony_kube.lifecycle import attempts
from symphony_kube.lifecycle.supervisor.run import SupervisedRun
from symphony_kube.render.manifest import KubeManifest
from symphony_kube.render.roster import is_supervised_to_the_end, roster_unit

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.changes.difference import Difference


def is_supervised_elsewhere(difference: Difference) -> bool:
    """Return whether the supervisor of the experiment may be a process of another machine."""
    if difference.running.host == socket.gethostname():
        return False
    roster = difference.state.units
    policies = Policies.from_dict(difference.running.snapshot.policies)
    if is_supervised_to_the_end(roster, policies):
        return True
    missing = difference.observation.missing_units
    return any(unit.starts_after and unit.name in missing for unit in roster)


def needs_supervisor(manifest: KubeManifest, added: Collection[str]) -> bool:
    """Return whether decisions remain after the first objects of a change have been created."""
    if is_supervised_to_the_end(manifest.roster, manifest.policies):
        return True
    return any(unit.starts_after and unit.name in added for unit in manifest.roster)


def supervised_run(experiment: KubeExperiment, difference: Difference) -> SupervisedRun:
    """Return the new description of the run for its supervisor."""
    running, manifest = difference.running, difference.new.manifest
    return SupervisedRun(
        scope=replace(experiment.scope, run=running.run_id),
        roster=manifest.roster,
        units=_complete_bodies(difference),
        policies=manifest.policies,
        launched=running.launched,
        kubeconfig=experiment.api.kubeconfig,
        context=experiment.api.context,
        run_name=running.run_name,
        revision=running.revision + 1,
    )


def _complete_bodies(difference: Difference) -> dict[str, dict[str, Any]]:
    """Return the Pods and Jobs of all units, with the identity of the run and of the change."""
    running, manifest = difference.running, difference.new.manifest
    first = roster_unit(manifest.roster)
    bodies = {}
    for name, body in manifest.objects_by_unit.items():
        complete = with_run_label(with_run_name(body, running.run_name), running.run_id)
        if name == first.name:
            complete = attempts.annotated(complete, difference.record.annotations())
        bodies[name] = dict(complete)
    return bodies
