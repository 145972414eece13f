"""The rule on GPUs: what asks for more than a machine has will wait forever, or be refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from symphony.errors import BackendError, SymphonyError
from symphony.lint.findings import ERROR, NOTE, Finding
from symphony.lint.services import path_of, place_of
from symphony.lint.targets import KnowsGpus
from symphony.model import Experiment, Process, ProcessGroup

if TYPE_CHECKING:
    from symphony.lint.targets import Target


def rules(experiment: Experiment, target: Target, *, offline: bool) -> Iterator[Finding]:
    """Processes and groups that ask for more GPUs than any node has; a group is placed on one node."""
    asking = {member: asked(member) for member in experiment.list_members() if asked(member)}
    if not asking:
        return
    if not target.elsewhere:
        yield from _here(asking)
        return
    if offline:
        yield _not_looked("no cluster was asked")
        return
    if not isinstance(target.cluster, KnowsGpus):
        yield _not_looked(f"the {target.name} backend does not tell which its nodes have")
        return
    try:
        nodes = target.cluster.node_gpus()
    except (BackendError, SymphonyError) as exc:
        yield _not_looked(str(exc))
        return
    most = max(nodes.values(), default=0)
    for member, number in asking.items():
        if number > most:
            offered = f"the most that a node offers is {most}" if most else "no node offers any"
            yield Finding(
                rule="gpus",
                level=ERROR,
                what=f"asks for {_gpus(number)}, and {offered}",
                mend="lower resource_limit(gpu=), or split the group"
                if _is_group(member)
                else "lower its gpu limit",
                place=place_of(member),
                processes=(path_of(member),),
            )


def asked(member: Process | ProcessGroup) -> int:
    """How many GPUs a process takes, or the members of a group together."""
    if isinstance(member, Process):
        return int(member.settings.resource_limit.get("gpu", 0))
    of_group = member.settings.resource_limit.get("gpu", 0)
    return sum(
        int(process.settings.resource_limit.get("gpu", of_group))
        for process in member.list_processes()
    )


def _here(asking: dict[Process | ProcessGroup, int]) -> Iterator[Finding]:
    """On one machine all processes run at once, each with GPUs of its own."""
    from symphony.host.resources.leases import visible_gpus

    there, taken = len(visible_gpus()), 0
    for member, number in asking.items():
        taken += number
        if taken > there:
            before = f", with those before it {taken}" if taken > number else ""
            yield Finding(
                rule="gpus",
                level=ERROR,
                what=f"asks for {_gpus(number)}{before}, and this machine has {there or 'none'}",
                mend="lower resource_limit(gpu=), or run it elsewhere",
                place=place_of(member),
                processes=(path_of(member),),
            )


def _is_group(member: Process | ProcessGroup) -> bool:
    return isinstance(member, ProcessGroup)


def _gpus(number: int) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}"


def _not_looked(why: str) -> Finding:
    mend = "look at the nodes before launching"
    return Finding(
        rule="gpus",
        level=NOTE,
        what=f"whether nodes have its GPUs was not looked at: {why}",
        mend=mend,
    )
