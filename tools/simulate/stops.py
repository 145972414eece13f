"""The checks of stops and kills: is there a reason, is it in order, is the grace period over?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulate.machine import Program
from simulate.past import EPSILON, Experiment, Past
from simulate.promises import CAUSE, GRACE, STOP_ORDER, Broken
from simulate.scenario import Process


def check_stop(experiment: Experiment, past: Past, now: float) -> None:
    """Check that a running process is stopped for a reason, and that it is its turn."""
    is_stopping = experiment.stopping_since is not None or experiment.is_restarting
    if not is_stopping and not _has_reason(experiment, past, now):
        raise Broken(CAUSE, f"{past.settings.name} was stopped without a reason")
    if experiment.is_at_once or experiment.kills_at_once:
        return
    if is_stopping and not _has_reason(experiment, past, now):
        _check_turn(past, experiment.pasts.values())
    elif past.is_overdue(now) or _is_unhealthy(past):
        return
    elif past.stop_request is not None and past.stop_request.grace != 0.0:
        if _is_turn_of_earlier_stop(experiment, past):
            return
        asked = past.stop_request
        together = [each for each in experiment.pasts.values() if each.stop_request is asked]
        _check_turn(past, together)


def _is_turn_of_earlier_stop(experiment: Experiment, past: Past) -> bool:
    """Return whether it is the turn of a process in an earlier request, which is in progress.

    A later request can stop more processes, but the earlier one goes on as it would without it.
    """
    name, pasts = past.settings.name, experiment.pasts
    for asked in experiment.asked.values():
        is_other = asked is not past.stop_request and asked.kind == "stop"
        if is_other and not asked.is_done and name in asked.names:
            together = [pasts[other] for other in asked.names if other in pasts]
            if _running_after(past, together) is None:
                return True
    return False


def _check_turn(past: Past, others: Iterable[Past]) -> None:
    """Check that no process runs any more that starts after this one."""
    later = _running_after(past, others)
    if later is not None:
        message = f"{past.settings.name} was stopped while {later}, which starts after it, ran"
        raise Broken(STOP_ORDER, message)


def _running_after(past: Past, others: Iterable[Past]) -> str | None:
    """Return the name of a process that runs and starts after another one, or None."""
    name = past.settings.name
    for other in others:
        is_later = name in other.settings.starts_after and other is not past
        if is_later and other.is_running and other.is_recorded_as_running:
            return other.settings.name
    return None


def _has_reason(experiment: Experiment, past: Past, now: float) -> bool:
    """Return whether a user, a change, a deadline, a health test or a gang wants a process to
    stop.
    """
    if past.is_stopped or past.is_removed or past.may_start:
        return True
    if past.is_overdue(now) or _is_unhealthy(past):
        return True
    ranks = experiment.gang_of(past)
    if past.settings.place_within and _lacks_machines(experiment, past.settings, ranks, now):
        return True
    return any(rank is not past and rank.programs and not rank.is_running for rank in ranks)


def _is_unhealthy(past: Past) -> bool:
    return bool(past.programs) and past.programs[-1].unhealthy_recorded


def _lacks_machines(
    experiment: Experiment, settings: Process, ranks: Sequence[Past], now: float
) -> bool:
    """Return whether machines were not found in time for all ranks of a gang."""
    running = [rank.programs[-1] for rank in ranks if rank.is_running]
    placed = [program.placed for program in running if program.placed is not None]
    if not placed:
        return False
    due = max(min(placed), *(program.started for program in running)) + settings.place_within
    # A late observation can show a rank without a machine that was found in the meantime.
    is_incomplete = len(placed) < len(ranks) or bool(experiment.scenario.delays)
    return is_incomplete and now >= due - EPSILON


def check_kill(experiment: Experiment, past: Past, program: Program, *, is_exact: bool) -> None:
    """Check the time at which a running program is killed.

    If ``is_exact`` is true, neither a crash nor a late observation can have delayed it.
    """
    now = program.killed
    if now is None or experiment.kills_at_once:
        return
    if program.terminated is None and past.shortest_grace > 0.0:
        raise Broken(GRACE, f"{program.name} was killed without a signal before")
    earliest, latest = past.kill_times(now if program.terminated is None else program.terminated)
    if now < earliest - EPSILON:
        raise Broken(GRACE, f"{program.name} was killed at {now}, before {earliest}")
    if is_exact and now > latest + EPSILON:
        raise Broken(GRACE, f"{program.name} was killed at {now}, later than {latest}")
