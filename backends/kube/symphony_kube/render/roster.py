"""The roster: all processes of an experiment, stored in an annotation of its first Pod. Pure.

With the roster, a list of the Pods is enough to report all processes, including processes whose
Pods do not exist yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from symphony.plan.policies import Policies
from symphony_kube.render import codec


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A process without a group, or a group with its members. Each unit becomes one Pod or one Job,
    unless it is a rank in a JobSet.

    * ``starts_after``: the processes for which the unit waits, and the condition for each of them.
    * ``ready``: for processes with a readiness test, the time in seconds within which they must
      become ready.
    * ``logs``: for processes whose readiness is shown by a line in their log, the regular
      expression that this line matches.
    * ``connects``: the services to which each process connects.
    * ``supervised_restart``: the restart policy, if the supervisor applies it because Kubernetes
      cannot.
    * ``replaced_if_lost``: whether the supervisor starts the unit again after a disruption, such as
      the drain of its node; see `symphony.plan.disruption`.
    * ``rank_of``: the unit of ranks to which the process belongs. The supervisor starts and stops
      these processes together. ``within`` is the time in seconds within which all of them must be
      scheduled, or 0.0 for no limit.
    * ``job_set``: the unit of ranks that is a JobSet, and to which the process belongs. Its
      controller starts and restarts these processes together.
    * ``serves``: the services that each member of a group serves. For other processes, the Services
      in the cluster contain this information.
    """

    name: str
    group: bool = False
    processes: tuple[str, ...]
    job: bool = False
    restart: str = "Never"
    starts_after: dict[str, str] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    connects: dict[str, list[str]] = field(default_factory=dict)
    serves: dict[str, list[str]] = field(default_factory=dict)
    supervised_restart: dict[str, Any] = field(default_factory=dict)
    replaced_if_lost: bool = False
    rank_of: str = ""
    within: float = 0.0
    job_set: str = ""


_FIELDS = tuple(item.name for item in fields(Unit))
Roster = tuple[Unit, ...]


def roster_unit(roster: Roster) -> Unit:
    """Return the unit whose Pod, Job or JobSet contains the roster.

    This object is created first, so its unit does not wait for other processes.
    """
    for unit in roster:
        if not unit.starts_after:
            return unit
    return roster[0]


def is_supervised_to_the_end(roster: Roster, policies: Policies) -> bool:
    """Return whether a supervisor is necessary until all processes have finished."""
    if policies.names or policies.record_usage:
        return True
    return any(unit.supervised_restart or unit.replaced_if_lost or unit.rank_of for unit in roster)


def units_of_ranks(roster: Roster) -> dict[str, list[Unit]]:
    """Return a mapping from the names of units of ranks to their processes, except for JobSets."""
    found: dict[str, list[Unit]] = {}
    for unit in roster:
        if unit.rank_of:
            found.setdefault(unit.rank_of, []).append(unit)
    return found


def units_by_object(roster: Roster) -> dict[str, list[Unit]]:
    """Return a mapping from the first unit of each object of the manifest to all of its units.

    The ranks of a JobSet have one object. Each of the other units has its own.
    """
    found: dict[str, list[Unit]] = {}
    firsts: dict[str, str] = {}
    for unit in roster:
        first = firsts.setdefault(unit.job_set, unit.name) if unit.job_set else unit.name
        found.setdefault(first, []).append(unit)
    return found


def ranks_of_job_sets(roster: Roster) -> dict[str, list[Unit]]:
    """Return a mapping from the names of units of ranks that are JobSets to their processes."""
    found: dict[str, list[Unit]] = {}
    for unit in roster:
        if unit.job_set:
            found.setdefault(unit.job_set, []).append(unit)
    return found


def encode_roster(roster: Roster) -> str:
    """Encode a roster as an annotation value.

    The value is compressed, which keeps the roster of ten thousand processes far below the limit of
    256 KiB for annotations.
    """
    units = []
    for unit in roster:
        values = {key: getattr(unit, key) for key in _FIELDS}
        units.append({key: value for key, value in values.items() if value})
    return codec.pack(codec.to_text(units))


def decode_roster(text: str) -> Roster:
    """Decode a roster that `encode_roster` encoded, with or without a revision.

    Raises ValueError if the text is not a roster or is too large.
    """
    units = codec.from_text(codec.unpack(codec.without_revision(text)))
    if not isinstance(units, list):
        raise ValueError("not a roster")
    return tuple(codec.build(Unit, unit) for unit in units)
