"""The wish of the product for the processes of a scenario."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from simulate.scenario import Process, Scenario
from symphony.plan.policies import Policies
from symphony.plan.restart_policy import RestartPolicy
from symphony.plan.wish import ProcessWish, Wish


def wish_of(
    scenario: Scenario,
    processes: Sequence[Process],
    *,
    ends_with: Sequence[str],
    previous: Sequence[ProcessWish] = (),
    change: Mapping[str, Any] | None = None,
) -> Wish:
    """Return what is wanted of an experiment with some processes."""
    policies = Policies(
        ends_with=tuple(ends_with),
        on_failure=scenario.on_failure,
        max_restarts=scenario.max_restarts,
        backoff=scenario.backoff,
        deadline=scenario.deadline,
    )
    wishes = [process_wish(process) for process in processes]
    return Wish(wishes, policies, previous=previous, change=change)


def process_wish(process: Process) -> ProcessWish:
    """Return what is wanted of one process."""
    restart = _restart_policy(process.restart, process.max_restarts, process.backoff)
    return ProcessWish(
        name=process.name,
        path=process.name,
        restart=restart,
        starts_after=process.starts_after,
        has_test=process.has_probe,
        ready_timeout=process.ready_timeout,
        max_failed_tests=process.max_failed_tests,
        grace=process.grace,
        deadline=process.deadline,
        gang=process.gang,
        reserves=process.reserves,
        fingerprint=str(process.version),
        place_within=process.place_within,
    )


@functools.cache
def _restart_policy(policy: str, max_restarts: int | None, backoff: float | None) -> RestartPolicy:
    """Return a restart policy. There are few different ones, and each takes long to create."""
    return RestartPolicy(policy=policy, max_restarts=max_restarts, backoff=backoff)
