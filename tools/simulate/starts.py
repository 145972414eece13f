"""The checks of a start: is it the only execution, is it in order, does the policy permit it?"""

from __future__ import annotations

from collections.abc import Sequence

from simulate.machine import Program
from simulate.past import EPSILON, Experiment, Gang, Past, backoff_delay
from simulate.promises import CAUSE, GANG, ONCE, ORDER, RESTARTS, STOPPED, Broken
from simulate.scenario import Process


def check_start(experiment: Experiment, past: Past, program: Program) -> tuple[str, ...]:
    """Check a start that has just happened, and return the promises that were checked.

    Raises Broken. ``past`` does not contain the execution yet.
    """
    name = program.name
    _check_once(experiment, past, program)
    if past.is_removed:
        raise Broken(CAUSE, f"{name} was started, but a change has removed it")
    if experiment.stopping_since is not None:
        raise Broken(CAUSE, f"{name} was started after the stop of the experiment had begun")
    if experiment.is_restarting:
        raise Broken(CAUSE, f"{name} was started before the experiment was restarted")
    if past.is_stopped:
        raise Broken(STOPPED, f"{name} was started, but a user has stopped it")
    _check_unit_is_not_stopped(experiment, past)
    previous = past.latest
    if previous is None:
        _check_order(experiment, past)
        past.may_start = past.must_start = False
        _note_first_start(experiment, past, program.started)
        return ONCE, STOPPED, ORDER
    if past.settings.gang is not None:
        _check_gang_restart(experiment, past, program)
        return ONCE, STOPPED, RESTARTS, GANG
    if previous.is_lost:
        _check_order_after_disruption(experiment, past)
    _check_restart(past, previous, program)
    return ONCE, STOPPED, RESTARTS


def _check_unit_is_not_stopped(experiment: Experiment, past: Past) -> None:
    """Check that no rank starts while another one is being stopped."""
    for other in experiment.gang_of(past):
        if other is not past and other.is_running and other.programs[-1].terminated is not None:
            names = f"{past.settings.name} was started while {other.settings.name}"
            raise Broken(GANG, f"{names}, a rank of the same gang, was being stopped")


def _check_once(experiment: Experiment, past: Past, program: Program) -> None:
    for other in past.programs:
        if other.attempt == program.attempt and not other.execution.cannot_start:
            raise Broken(ONCE, f"execution {program.attempt} of {program.name} was started twice")
    namesakes = [each for each in experiment.gone if each.settings.name == program.name]
    if past.is_running or any(each.is_running for each in namesakes):
        raise Broken(ONCE, f"{program.name} was started while it was running")
    for other in experiment.machine.with_children:
        if other.name == program.name:
            message = f"{program.name} was started while children of its last execution ran"
            raise Broken(ONCE, message)


def _check_order(experiment: Experiment, past: Past) -> None:
    for other, condition in past.settings.starts_after.items():
        obstacle = unmet(experiment, other, condition)
        if obstacle:
            raise Broken(ORDER, f"{past.settings.name} was started, but {obstacle}")


def _check_order_after_disruption(experiment: Experiment, past: Past) -> None:
    """Check that what was taken away with a process, and starts before it, runs again, and is ready
    again if the process waits for this.
    """
    for other, condition in past.settings.starts_after.items():
        awaited = experiment.pasts[other]
        if condition == "ready" and _is_becoming_ready_again(awaited):
            message = f"{past.settings.name} was started before {other} was ready again"
            raise Broken(ORDER, message)
        lost = awaited.latest
        if lost is None or not lost.is_lost or not lost.exit_recorded:
            continue
        if _has_failed_before(experiment.gang_of(awaited), lost):
            # This is why its unit restarts.
            continue
        if awaited.may_restart(lost) and not awaited.is_stopped and not awaited.is_given_up:
            message = f"{past.settings.name} was started before {other}, which was lost, too"
            raise Broken(ORDER, message)


def _has_failed_before(ranks: Sequence[Past], lost: Program) -> bool:
    """Return whether a rank had exited by itself and restarts, before another one was lost."""
    for rank in ranks:
        latest = rank.latest
        if latest is None or latest.ended is None or latest.terminated is not None:
            continue
        is_earlier = lost.ended is not None and latest.ended <= lost.ended
        restarts = rank.settings.restart == "Always" or not latest.has_succeeded
        if is_earlier and restarts and not latest.is_lost:
            return True
    return False


def _is_becoming_ready_again(past: Past) -> bool:
    """Return whether a process runs again after a disruption, and can become ready in time."""
    if not past.resumed or not past.is_running or not past.settings.has_probe:
        return False
    return not past.was_ready and not past.never_ready


def unmet(experiment: Experiment, name: str, condition: str) -> str:
    """Return why a start condition is not met, or ``""`` if it is met."""
    past = experiment.pasts[name]
    latest = past.latest
    if past.is_held:
        return f"{name} is stopped"
    if condition == "ready":
        if past.settings.has_probe:
            return "" if past.was_ready else f"{name} was not ready"
        condition = "started"
    if condition == "started":
        has_started = any(not each.execution.cannot_start for each in past.awaited)
        return "" if has_started else f"{name} was not started"
    has_exited = latest is not None and latest.ended is not None and not past.is_given_up
    has_succeeded = has_exited and latest is not None and latest.has_succeeded
    return "" if has_succeeded else f"{name} has not succeeded"


def _note_first_start(experiment: Experiment, past: Past, at: float) -> None:
    """Note that a rank starts that counts anew. Other ranks that start with it do not restart."""
    name, settings = past.settings.name, past.settings
    if settings.gang is None:
        return
    gang = experiment.gangs.setdefault(settings.gang, Gang())
    gang.released = None
    if not gang.restarted or name in gang.restarted:
        gang.restarted, gang.began = [name], at
    else:
        gang.restarted.append(name)


def _check_restart(past: Past, previous: Program, program: Program) -> None:
    """Check that the restart policy permits a restart, and count it."""
    name = program.name
    if previous.ended is None:
        return
    code = previous.reported_code
    if not past.may_restart(previous):
        what = previous.disrupted or f"exit code {code}"
        raise Broken(RESTARTS, f"{name} was restarted ({what}) after {past.restarts} restarts")
    if previous.is_lost:
        return
    due = previous.ended + past.restart_delay()
    if program.started < due - EPSILON:
        raise Broken(RESTARTS, f"{name} was restarted at {program.started}, before {due}")
    if past.is_overdue(program.started):
        raise Broken(RESTARTS, f"{name} was restarted after its deadline")
    past.restarts += 1
    past.in_row += 1
    program.is_counted = True


def _check_gang_restart(experiment: Experiment, past: Past, program: Program) -> None:
    """Check that a rank starts again only with all others, and as often as the policy permits."""
    previous, settings = past.latest, past.settings
    if previous is None or previous.ended is None or settings.gang is None:
        return
    ranks = experiment.gang_of(past)
    gang = experiment.gangs.setdefault(settings.gang, Gang())
    _check_others_have_exited(ranks, previous.ended, program.name)
    is_same = previous.ended <= gang.began
    if is_same and gang.restarted and program.name not in gang.restarted:
        # This restart was counted when the first rank started.
        gang.restarted.append(program.name)
        return
    is_interrupted = _is_interrupted(experiment, gang, ranks)
    gang.restarted, gang.began = [program.name], program.started
    latest = [rank.latest for rank in ranks if rank.latest is not None]
    if gang.released is not None:
        is_early = program.started < gang.released + settings.place_within / 2 - EPSILON
        gang.released = None
        # Others can use the released machines for a while.
        is_exempt = _is_requested(ranks) or _is_changed(experiment, settings.gang)
        # A supervisor that was killed while it started the ranks starts them at once again.
        is_exempt = is_exempt or bool(experiment.scenario.crashes)
        if is_early and not is_exempt:
            raise Broken(RESTARTS, f"{program.name} was started too early after a release")
        return
    if settings.restart == "Never" and not is_interrupted:
        raise Broken(RESTARTS, f"{program.name} was restarted, but its policy is Never")
    # The loss of a rank that has just started again can have been observed late.
    replaced = [rank.programs[-2] for rank in ranks if rank.is_running and len(rank.programs) > 1]
    if _is_lost(experiment, settings.gang, [*latest, *replaced]) or _is_requested(ranks):
        return
    has_cause = is_interrupted or _has_failed(experiment, settings.gang, latest)
    if settings.restart == "OnFailure" and not has_cause:
        raise Broken(RESTARTS, f"{program.name} was restarted, but no rank has failed")
    _count_gang_restart(experiment, gang, settings, program, latest)


def _count_gang_restart(
    experiment: Experiment,
    gang: Gang,
    settings: Process,
    program: Program,
    latest: Sequence[Program],
) -> None:
    """Check that a gang has a restart left, and that the delay before it is over; count it."""
    limit = settings.max_restarts
    # If the supervisor is killed while it starts the ranks, they are restarted once more.
    retries = len(experiment.scenario.crashes)
    if limit is not None and gang.restarts >= limit + retries:
        raise Broken(RESTARTS, f"{program.name} was restarted more than {limit} times")
    # A supervisor that was killed while it started the ranks has counted one restart more.
    delay = 0.0 if retries else backoff_delay(gang.restarts, settings.backoff)
    due = min(each.ended for each in latest if each.ended is not None) + delay
    if program.started < due - EPSILON:
        raise Broken(RESTARTS, f"{program.name} was restarted at {program.started}, before {due}")
    gang.restarts += 1


def _check_others_have_exited(ranks: Sequence[Past], exit_time: float, name: str) -> None:
    """Check that no rank has been running since before the exit of the one that starts again."""
    for rank in ranks:
        running = rank.latest
        if running is not None and running.ended is None and running.started < exit_time:
            message = f"{name} was restarted while {running.name} ran since before its exit"
            raise Broken(GANG, message)


def _is_interrupted(experiment: Experiment, gang: Gang, ranks: Sequence[Past]) -> bool:
    """Return whether a supervisor was killed before it had started all ranks of a gang.

    The ranks restart once more then, for the reason of this start.
    """
    is_complete = all(rank.settings.name in gang.restarted for rank in ranks)
    return bool(experiment.scenario.crashes) and not is_complete


def _is_requested(ranks: Sequence[Past]) -> bool:
    """Return whether a user starts a rank of a gang again, and with it the whole gang."""
    return any(rank.programs and rank.latest is None for rank in ranks)


def _is_changed(experiment: Experiment, gang: str) -> bool:
    """Return whether a change has removed a rank, which can be why the others were stopped."""
    return bool(experiment.removed_from(gang))


def _is_lost(experiment: Experiment, gang: str, latest: Sequence[Program]) -> bool:
    """Return whether a rank was taken away. A change can have removed it since."""
    removed = [each for each in experiment.removed_from(gang) if each.programs]
    return any(each.is_lost for each in (*latest, *(past.programs[-1] for past in removed)))


def _has_failed(experiment: Experiment, gang: str, latest: Sequence[Program]) -> bool:
    """Return whether a rank has failed. A change can have removed it since."""
    if _is_changed(experiment, gang):
        return True
    return any(not each.has_succeeded for each in latest)
