"""The rule for backends that check by themselves whether their nodes can run an experiment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from symphony.lint.targets import ChecksNodes

if TYPE_CHECKING:
    from symphony.lint.targets import Target
    from symphony.model import Experiment
    from symphony.plan.findings import Finding


def rules(
    experiment: Experiment, target: Target, *, offline: bool, thorough: bool
) -> Iterator[Finding]:
    """Yield the findings of the backend, unless no cluster may be queried."""
    if isinstance(target.cluster, ChecksNodes) and not offline:
        yield from target.cluster.check_nodes(experiment, thorough=thorough)
