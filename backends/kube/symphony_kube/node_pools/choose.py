"""Which pool takes a unit: a lone process, or the members of a group, which share one machine. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from symphony.errors import SpecError
from symphony.names import did_you_mean
from symphony_kube.node_pools.pools import NodePool, Resources, counted
from symphony_kube.node_pools.quantities import cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a process was assigned: amounts, where None leaves it as the process has it, and a pool, or any that fits.

    ``gpu_type`` is the type that its GPUs must have.
    """

    millicores: int | None = None
    memory_m: int | None = None
    gpus: int | None = None
    gpu_type: str | None = None
    pool: NodePool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A process of a unit and all that it asks for; one that was assigned nothing may still ask for something."""

    name: str
    asks: Resources
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What runs on one machine; ``what`` is how an error calls it."""

    what: str
    members: tuple[Member, ...]

    @property
    def asks(self) -> Resources:
        """What all of it asks for together."""
        return reduce(add, (member.asks for member in self.members), Resources())

    @property
    def gpu_types(self) -> list[str]:
        """The types of GPUs that it needs, each once."""
        given = (member.assignment.gpu_type for member in self.members if member.assignment)
        return list(dict.fromkeys(kind for kind in given if kind is not None))


def choose(pools: Sequence[NodePool], unit: Unit) -> NodePool:
    """The pool to which a unit was sent, if it fits there, or else the smallest one that it fits.

    Raises `SpecError`: for members that were sent to different pools, and where it fits none, with why not.
    """
    named = _named(unit)
    candidates = [named] if named else sorted(pools, key=lambda pool: pool.size)
    refused: dict[str, str] = {}
    for pool in candidates:
        why = misfit(pool, unit)
        if not why:
            return pool
        refused[pool.name] = why
    if named:
        raise SpecError(
            f"{unit.what} does not fit a machine of node pool {named.name!r}: {refused[named.name]}"
        )
    raise SpecError(f"{unit.what} fits no node pool: {_each(refused)}{_hint(pools, unit)}")


def misfit(pool: NodePool, unit: Unit) -> str:
    """Why a unit cannot run on a machine of a pool, or ``""`` where it can."""
    if pool.unusable:
        return pool.unusable
    return ", ".join([*_too_much(pool, unit), *_wrong_type(pool, unit)])


def _too_much(pool: NodePool, unit: Unit) -> list[str]:
    asks, gives, has = unit.asks, pool.allocatable, pool.capacity
    found = []
    if asks.millicores > gives.millicores:
        who = _who(unit, lambda asked: cores(asked.millicores))
        there = f"{cores(gives.millicores)} (of {cores(has.millicores)})"
        found.append(f"cpu {cores(asks.millicores)}{who} is more than {there}")
    if asks.memory_m > gives.memory_m:
        who = _who(unit, lambda asked: str(asked.memory_m))
        found.append(
            f"memory {asks.memory_m} MiB{who} is more than {gives.memory_m} MiB (of {has.memory_m} MiB)"
        )
    if asks.gpus > gives.gpus:
        who = _who(unit, lambda asked: str(asked.gpus))
        few = (
            f"{counted(asks.gpus)}{who} {'is' if asks.gpus == 1 else 'are'} more than {gives.gpus}"
        )
        found.append(few if gives.gpus else "it has no GPUs")
    return found


def _who(unit: Unit, said: Callable[[Resources], str]) -> str:
    """Who asks for how much, where there are several."""
    asking = [(member.name, said(member.asks)) for member in unit.members]
    if len(asking) < 2:
        return ""
    return f" ({', '.join(f'{name} {amount}' for name, amount in asking if amount != '0')})"


def _wrong_type(pool: NodePool, unit: Unit) -> list[str]:
    if not pool.allocatable.gpus:
        return []
    has = f"are of type {pool.gpu_type}" if pool.gpu_type else "are of a type that is not known"
    return [f"its GPUs {has}, not {kind}" for kind in unit.gpu_types if kind != pool.gpu_type]


def _named(unit: Unit) -> NodePool | None:
    """The pool to which members were sent by name; only one can be."""
    sent = [(member.name, member.assignment.pool) for member in unit.members if member.assignment]
    named = [(name, pool) for name, pool in sent if pool is not None]
    for name, pool in named[1:]:
        first, other = named[0]
        if pool.name != other.name:
            raise SpecError(
                f"{unit.what} is one Pod, on one machine, but its process {first!r} is assigned to node pool "
                f"{other.name!r} and its process {name!r} to {pool.name!r}: assign both to one pool, or take one out "
                "of the group"
            )
    return named[0][1] if named else None


def _each(refused: dict[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in refused.items()) or "there is none"


def _hint(pools: Iterable[NodePool], unit: Unit) -> str:
    known = {pool.gpu_type for pool in pools if pool.gpu_type}
    return "".join(
        did_you_mean(kind, known, limit=1) for kind in unit.gpu_types if kind not in known
    )
