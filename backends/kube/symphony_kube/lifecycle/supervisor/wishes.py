"""The wish for an experiment on Kubernetes: what its roster and its policies ask for. Pure."""

from __future__ import annotations

import math

from symphony.plan.policies import Policies
from symphony.plan.wish import ProcessWish, Wish
from symphony_kube.render.roster import Roster, Unit
from symphony_kube.state.predictions import MAX_FAILED_TESTS
from symphony_kube.state.unit_status import policy_of


def make_wish(roster: Roster, policies: Policies | None = None, *, experiment: str = "") -> Wish:
    """Return the wish for an experiment, whose processes are those of the units in ``roster``.

    Nodes apply the grace periods, unless a request has another one. Kubelets apply the restart
    policies of containers, and test whether processes are healthy. The API server applies the
    deadlines of single processes. The controller of a JobSet starts its ranks together.
    """
    names = {name for unit in roster for name in unit.processes}
    processes = []
    for unit in roster:
        conditions = {name: word for name, word in unit.starts_after.items() if name in names}
        processes += [_of_process(name, unit, conditions) for name in unit.processes]
    return Wish(processes, policies, name=experiment)


def _of_process(name: str, unit: Unit, conditions: dict[str, str]) -> ProcessWish:
    return ProcessWish(
        name=name,
        restart=policy_of(unit),
        starts_after=conditions,
        max_failed_tests=MAX_FAILED_TESTS,
        grace=math.inf,
        gang=unit.rank_of or None,
        place_within=unit.within,
    )
