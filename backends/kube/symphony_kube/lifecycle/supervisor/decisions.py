"""Decide what a supervisor does next. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from symphony.plan import start_order
from symphony.plan.policies import (
    Ending,
    Policies,
    RestartHistory,
    decide_end,
    seconds_to_deadline,
)
from symphony.status import ENDED, ReasonCode
from symphony_kube.lifecycle.supervisor.lost_units import find_created, find_requested
from symphony_kube.lifecycle.supervisor.rank_decisions import (
    UnitAction,
    can_create_ranks,
    decide_units,
    find_deleted_ranks,
    is_unit_stopping,
    seconds_to_release,
)
from symphony_kube.render.roster import (
    Roster,
    is_supervised_to_the_end,
    units_by_object,
    units_of_ranks,
)
from symphony_kube.state.ending import StoppedProcesses
from symphony_kube.state.observe import Observation
from symphony_kube.state.unit_status import UnitStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The next step of a supervisor.

    ``create`` contains the names of the units to create, and ``retry`` those that their restart
    policies start again. ``lost`` maps the units that a disruption has ended and whose Pods remain
    to the reasons for which they are started again. ``unit_actions`` contains the requests for the
    ranks of units. If there are any, nothing else is decided. ``ending`` contains the processes to
    stop, if the experiment is to end now, and ``restart`` is the decision to start the experiment
    again. ``finished`` is true if nothing is left to decide. ``seconds`` is the time until the next
    decision if nothing changes, or None.
    """

    create: tuple[str, ...] = ()
    retry: tuple[str, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
    unit_actions: tuple[UnitAction, ...] = ()
    ending: StoppedProcesses | None = None
    restart: Ending | None = None
    finished: bool = False
    seconds: float | None = None


def decide(
    roster: Roster,
    observation: Observation,
    excluded: Collection[str] = (),
    *,
    policies: Policies | None = None,
    launched: float = 0.0,
    now: float = 0.0,
    history: RestartHistory | None = None,
) -> Decisions:
    """Decide which units to create, and whether the experiment ends.

    Units in ``excluded`` are not created. They have been created and deleted, or cannot be created.
    ``launched`` and ``now`` are in seconds since the epoch. ``history`` contains the restarts of
    the experiment, or is None if there were none. Do not call this function after it has decided
    that the experiment ends.
    """
    unit_actions = decide_units(roster, observation, now, excluded)
    if unit_actions:
        return Decisions(unit_actions=unit_actions)
    times = [seconds_to_release(roster, observation, now)]
    if policies is not None:
        processes = {process.name: process for process in observation.status}
        ending = decide_end(policies, processes, launched=launched, now=now, history=history)
        if ending is not None and ending.restart is not None:
            return Decisions(restart=ending)
        if ending is not None:
            return Decisions(ending=_stopped_processes(ending, observation, now))
        times.append(seconds_to_deadline(policies, launched=launched, now=now))
    seconds = min((time for time in times if time is not None), default=None)
    create, is_waiting = _units_to_create(roster, observation, excluded)
    retry = [
        unit.name
        for unit in roster
        if not unit.rank_of and _has_retry(observation.unit_statuses.get(unit.name))
    ]
    lost = find_requested(roster, observation)
    finished = not create and not retry and not lost and not is_waiting
    if is_supervised_to_the_end(roster, policies or Policies()):
        # A process that a user has stopped can be started again.
        can_start = any(item.reason_code is ReasonCode.STOPPED for item in observation.status)
        finished = finished and observation.status.ended and not can_start
    return Decisions(
        create=create, retry=tuple(retry), lost=lost, finished=finished, seconds=seconds
    )


def _units_to_create(
    roster: Roster, observation: Observation, excluded: Collection[str]
) -> tuple[tuple[str, ...], bool]:
    """Return the units to create, and whether others have to wait."""
    create = []
    is_waiting = False
    blocked = _processes_to_start_again(roster, observation)
    busy = _busy_units_of_ranks(roster, observation)
    absent = observation.missing_units | find_deleted_ranks(roster, observation)
    absent |= find_created(roster, observation)
    with_objects = units_by_object(roster)
    for unit in roster:
        if unit.name not in absent or unit.name in excluded or unit.name not in with_objects:
            continue
        decision = start_order.verdict(unit.starts_after, observation.containers)
        is_blocked = unit.rank_of in busy or bool(blocked.intersection(unit.starts_after))
        if decision.word == "start" and is_blocked:
            is_waiting = True
        elif decision.word == "start":
            create.append(unit.name)
        elif start_order.can_start_later(unit.starts_after, observation.containers):
            is_waiting = True
    return tuple(create), is_waiting


def find_startable(roster: Roster, observation: Observation) -> list[str]:
    """Return the units whose next attempt is requested and whose start conditions are met.

    The time of the request is not considered. While a process waits to be started again, no other
    one starts after it. The ranks of a unit start when all of them have been stopped. If the
    command was not recorded in all of its units, because the client was killed, no unit is started
    again until the command is repeated.
    """
    blocked = _processes_to_start_again(roster, observation)
    stopping = {
        name
        for name, ranks in units_of_ranks(roster).items()
        if is_unit_stopping(ranks, observation)
    }
    startable = []
    for unit in roster:
        status = observation.unit_statuses.get(unit.name)
        if status is None or not status.waits_for_start or unit.rank_of in stopping:
            continue
        if unit.name in observation.unfinished or blocked.intersection(unit.starts_after):
            continue
        if start_order.verdict(unit.starts_after, observation.containers) is start_order.START:
            startable.append(unit.name)
    return startable


def _has_retry(status: UnitStatus | None) -> bool:
    return status is not None and status.retry is not None


def _busy_units_of_ranks(roster: Roster, observation: Observation) -> set[str]:
    """Return the units of ranks of which no rank can be created now."""
    busy = set()
    for name, ranks in units_of_ranks(roster).items():
        if not can_create_ranks(ranks, observation):
            busy.add(name)
    return busy


def _processes_to_start_again(roster: Roster, observation: Observation) -> set[str]:
    """Return the processes whose next attempt is requested."""
    processes: set[str] = set()
    for unit in roster:
        status = observation.unit_statuses.get(unit.name)
        if status is not None and status.control.start:
            processes.update(unit.processes)
    return processes


def _stopped_processes(ending: Ending, observation: Observation, now: float) -> StoppedProcesses:
    running = [process.name for process in observation.status if process.state not in ENDED]
    return StoppedProcesses(
        processes=tuple(running),
        reason=ending.reason,
        code=ending.reason_code.value,
        time=now,
        failed=not ending.stops,
    )
