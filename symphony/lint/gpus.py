"""The GPU rule: no process or group may request more GPUs than a machine has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from symphony.errors import SymphonyError
from symphony.lint.targets import ChecksNodes, NodeGpus
from symphony.model import Process, ProcessGroup
from symphony.plan.findings import NOTE, Finding, finding_of

if TYPE_CHECKING:
    from symphony.lint.targets import Target
    from symphony.model import Experiment

Member = Process | ProcessGroup


def rules(experiment: Experiment, target: Target, *, offline: bool) -> Iterator[Finding]:
    """Yield a finding for each process or group that requests more GPUs than are available.

    If the GPUs of a cluster cannot be checked, yield a note instead. A cluster that checks its
    nodes by itself also checks their GPUs.

    A group is placed on one node, so its members' requests are added together. On a local backend,
    the requests of all processes are added together, because all processes run on this machine at
    the same time.
    """
    requests: dict[Member, int] = {}
    for member in experiment.list_members():
        number = requested_gpus(member)
        if number:
            requests[member] = number
    if not requests or isinstance(target.cluster, ChecksNodes):
        return
    if not target.is_remote:
        yield from _more_than_this_machine_has(requests)
    elif offline:
        yield _not_checked("no cluster is queried with --offline")
    elif not isinstance(target.cluster, NodeGpus):
        yield _not_checked(f"the {target.name} backend does not report the GPUs of its nodes")
    else:
        try:
            nodes = target.cluster.node_gpus()
        except SymphonyError as exc:
            yield _not_checked(str(exc))
        else:
            yield from _more_than_a_node_has(requests, max(nodes.values(), default=0))


def requested_gpus(member: Member) -> int:
    """Return the number of GPUs that a process requests, or that a group's members request
    together.
    """
    group_limit = member.settings.resource_limit.get("gpu", 0)
    if isinstance(member, Process):
        return int(group_limit)
    return sum(
        int(process.settings.resource_limit.get("gpu", group_limit))
        for process in member.list_processes()
    )


def _more_than_a_node_has(requests: Mapping[Member, int], largest: int) -> Iterator[Finding]:
    for member, number in requests.items():
        if number <= largest:
            continue
        available = f"the largest node has {largest}" if largest else "no node has any"
        hint = "lower its gpu limit"
        if isinstance(member, ProcessGroup):
            hint = "lower resource_limit(gpu=), or split the group"
        yield finding_of(member, "gpus", f"requests {_gpus(number)}, but {available}", hint)


def _more_than_this_machine_has(requests: Mapping[Member, int]) -> Iterator[Finding]:
    from symphony.host.resources.leases import visible_gpus

    available = len(visible_gpus())
    total = 0
    for member, number in requests.items():
        total += number
        if total <= available:
            continue
        sum_so_far = f" ({total} with the processes before it)" if total > number else ""
        yield finding_of(
            member,
            "gpus",
            f"requests {_gpus(number)}{sum_so_far}, but this machine has {available or 'none'}",
            "lower resource_limit(gpu=), or choose another backend",
        )


def _gpus(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


def _not_checked(reason: str) -> Finding:
    return Finding(
        rule="gpus",
        level=NOTE,
        problem=f"the GPUs of the nodes were not checked: {reason}",
        hint="check the nodes before the launch",
    )
