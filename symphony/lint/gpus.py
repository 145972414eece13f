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
    requests: dict[Member, dict[str | None, int]] = {}
    for member in experiment.list_members():
        numbers = requested_gpus(member)
        if numbers:
            requests[member] = numbers
    if not requests or isinstance(target.cluster, ChecksNodes):
        return
    if not target.is_remote:
        yield from _more_than_this_machine_has(requests)
    elif offline:
        yield _not_checked("no cluster is queried with --offline")
    elif not isinstance(target.cluster, NodeGpus):
        yield _not_checked(f"the {target.name} backend does not report the GPUs of its nodes")
    else:
        kinds = {kind for numbers in requests.values() for kind in numbers}
        try:
            largest = {
                kind: max(target.cluster.node_gpus(kind).values(), default=0) for kind in kinds
            }
        except SymphonyError as exc:
            yield _not_checked(str(exc))
        else:
            yield from _more_than_a_node_has(requests, largest)


def requested_gpus(member: Member) -> dict[str | None, int]:
    """Return the number of GPUs that a process requests, or that a group's members request
    together, for each kind of GPUs. None is the usual kind of the cluster.
    """
    processes = [member] if isinstance(member, Process) else member.list_processes()
    numbers: dict[str | None, int] = {}
    for process in processes:
        limits = {**member.settings.resource_limit, **process.settings.resource_limit}
        number = int(limits.get("gpu", 0))
        if number:
            kind = limits.get("gpu_resource")
            numbers[kind] = numbers.get(kind, 0) + number
    return numbers


def _more_than_a_node_has(
    requests: Mapping[Member, Mapping[str | None, int]], largest: Mapping[str | None, int]
) -> Iterator[Finding]:
    for member, numbers in requests.items():
        for kind, number in numbers.items():
            if number <= largest[kind]:
                continue
            available = f"the largest node has {largest[kind]}"
            if not largest[kind]:
                available = "no node has any"
            hint = "lower its gpu limit"
            if isinstance(member, ProcessGroup):
                hint = "lower resource_limit(gpu=), or split the group"
            requested = _gpus(number) if kind is None else f"{number} of {kind}"
            yield finding_of(member, "gpus", f"requests {requested}, but {available}", hint)


def _more_than_this_machine_has(
    requests: Mapping[Member, Mapping[str | None, int]],
) -> Iterator[Finding]:
    from symphony.supervised.resources.leases import visible_gpus

    available = len(visible_gpus())
    total = 0
    for member, numbers in requests.items():
        number = sum(numbers.values())
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
