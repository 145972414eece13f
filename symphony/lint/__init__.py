"""What would keep an experiment from running elsewhere: every finding at once, each with where and how to mend it.

The rules are functions over a description and a target. They read; nothing is launched, and no cluster is asked but
for its GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from symphony.lint import backends, gpus, literals, services, sizes
from symphony.lint.findings import ERROR, NOTE, WARNING, Finding, in_order, joined
from symphony.lint.literals import Machine
from symphony.lint.targets import Target

if TYPE_CHECKING:
    from symphony.model import Experiment


def lint(
    experiment: Experiment, targets: Sequence[Target], *, machine: Machine, offline: bool = False
) -> list[Finding]:
    """What is wrong with an experiment on some backends, in the order of its file.

    ``machine`` is this one, whose paths are not those of others. ``offline`` asks no cluster.
    """
    found: list[Finding] = []
    for target in targets:
        rules: Iterable[Iterator[Finding]] = (
            services.rules(experiment),
            backends.rules(experiment, target),
            sizes.rules(experiment, target),
            literals.rules(experiment, machine) if target.elsewhere else iter(()),
            gpus.rules(experiment, target, offline=offline),
        )
        found += [finding.on(target.name) for rule in rules for finding in rule]
    return in_order(joined(found), experiment.dump_dict())


__all__ = ["ERROR", "NOTE", "WARNING", "Finding", "Machine", "Target", "lint"]
