"""The checks of recorded events: is each of them true, and does it have a cause?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simulate.machine import Program
from simulate.past import EPSILON, EVICTION_CAUSE, Experiment, Gang, Past
from simulate.promises import CAUSE, HEALTH, PROGRESS, RESTARTS, TRUTH, Broken
from simulate.starts import unmet

Event = Mapping[str, Any]

# The reason codes of restarts that do not count.
_UNCOUNTED = ("disrupted", "unschedulable")


def check_event(experiment: Experiment, event: Event) -> None:
    """Check an event that has just been recorded, and remember what follows from it.

    Raises Broken.
    """
    kind = event["event"]
    of_process = _OF_PROCESS.get(kind)
    if of_process is not None:
        past = experiment.past(event["process"])
        if past is None:
            raise Broken(TRUTH, f"{kind}: there is no process {event['process']}")
        of_process(experiment, past, event)
        return
    of_experiment = _OF_EXPERIMENT.get(kind)
    if of_experiment is not None:
        of_experiment(experiment, event)


# --- events of processes ---


def _started(_experiment: Experiment, past: Past, event: Event) -> None:
    program = next((each for each in past.programs if each.pid == event["pid"]), None)
    if program is None or program.execution.cannot_start:
        raise Broken(TRUTH, f"started: {event['process']} has no program {event['pid']}")
    if program.start_recorded:
        raise Broken(TRUTH, f"the start of execution {program.attempt} was recorded twice")
    if event["ready"] and past.settings.has_probe and program.ready is None:
        raise Broken(TRUTH, f"{event['process']} was recorded as ready at its start")
    if event["at"] < program.started - EPSILON:
        raise Broken(TRUTH, f"the start of {event['process']} was recorded for a time before it")
    program.start_recorded = True
    if past.first_started is None:
        past.first_started = event["at"]


def _exited(experiment: Experiment, past: Past, event: Event) -> None:
    name = event["process"]
    program = next(
        (each for each in past.programs if each.start_recorded and not each.exit_recorded), None
    )
    if program is None or program.ended is None:
        raise Broken(TRUTH, f"an exit of {name} was recorded, but it is running")
    if event["code"] != program.reported_code:
        text = f"exit code {event['code']} was recorded for {name}, not {program.reported_code}"
        raise Broken(TRUTH, text)
    if event["at"] < program.ended - EPSILON:
        raise Broken(TRUTH, f"the exit of {name} was recorded for {event['at']}, before it")
    program.exit_recorded = True
    _check_reason(experiment, past, program, event)
    past.graces.clear()
    if event.get("reason_code") in _UNCOUNTED and "restarts_in" in event:
        past.await_again()
    if past.settings.place_within and program.placed is not None:
        _check_machine_is_released(experiment, past, program, program.placed)
    if event.get("reason_code") == "unschedulable":
        _note_release(experiment, past, event["at"])


def _check_machine_is_released(
    experiment: Experiment, past: Past, program: Program, placed: float
) -> None:
    """Check that a rank has not kept its machine too long while there was none for another one."""
    scenario = experiment.scenario
    ranks = experiment.gang_of(past)
    is_requested = past.is_removed or any(rank.may_start or rank.is_stopped for rank in ranks)
    if is_requested or experiment.stopping_since is not None or experiment.is_restarting:
        # It waits for its turn to be stopped.
        return
    if scenario.delays or scenario.crashes or not all(rank.programs for rank in ranks):
        return
    latest = [rank.programs[-1] for rank in ranks]
    # A change can have removed a rank that delayed the release, because it had just started.
    removed = [each for each in experiment.removed_from(past.settings.gang) if each.programs]
    started = [each.started for each in (*latest, *(rank.programs[-1] for rank in removed))]
    due = max([placed, *started]) + past.settings.place_within
    ends = (program.terminated, program.killed, program.ended)
    end = min(time for time in ends if time is not None)
    without = [each for each in latest if each.placed is None]
    if end > due + EPSILON and any(each.ended is None or each.ended > due for each in without):
        raise Broken(PROGRESS, f"{past.settings.name} kept its machine without the other ranks")


def _lacked_machine(program: Program) -> bool:
    """Return whether a rank had no machine when it was stopped.

    One can be found at the same moment, after the decision.
    """
    if program.placed is None:
        return True
    stops = [time for time in (program.terminated, program.killed) if time is not None]
    return bool(stops) and program.placed >= min(stops)


def _note_release(experiment: Experiment, past: Past, at: float) -> None:
    """Note that a gang releases its machines, because there are none for its other ranks."""
    name, gang = past.settings.name, past.settings.gang
    # A change can have removed the rank without a machine while the others were being stopped.
    ranks = [*experiment.gang_of(past), *experiment.removed_from(gang)]
    lacks = any(rank.programs and _lacked_machine(rank.programs[-1]) for rank in ranks)
    if gang is None or not past.settings.place_within:
        raise Broken(CAUSE, f"{name} has released its machine, but there is no limit")
    # An interrupted start is repeated for its first reason.
    is_exact = not experiment.scenario.delays and not experiment.scenario.crashes
    if is_exact and not lacks:
        raise Broken(CAUSE, f"{name} has released its machine, but all ranks had one")
    record = experiment.gangs.setdefault(gang, Gang())
    if record.released is None:
        record.released = at


def _check_reason(experiment: Experiment, past: Past, program: Program, event: Event) -> None:
    """Check the reason that an exit was given."""
    code, name = event.get("reason_code"), event["process"]
    is_signaled = program.terminated is not None or program.killed is not None
    if code == "deadline-exceeded":
        _check_overdue(experiment, past, event["at"])
        past.is_given_up = True
        is_own = experiment.ending != "deadline"
        if (
            is_own
            and not is_signaled
            and program.reported_code == 0
            and not experiment.scenario.delays
        ):
            raise Broken(TRUTH, f"{name} was said to be late, but it had succeeded before")
        return
    if experiment.stopping_since is not None or past.is_stopped or past.is_removed:
        return
    if experiment.is_restarting:
        if code not in ("experiment-restarts", "disrupted"):
            raise Broken(TRUTH, f"the exit of {name} while all restart has the reason {code}")
    elif is_signaled and past.is_overdue(event["at"]) and not past.may_start:
        is_rank = past.settings.gang is not None
        if not is_rank and _was_late(past, program):
            raise Broken(TRUTH, f"{name} was stopped at its deadline, but the reason is {code}")
    elif code not in ("unhealthy", "backing-off") and not past.may_start:
        is_rank = past.settings.gang is not None
        if program.unhealthy_recorded and not is_rank:
            raise Broken(HEALTH, f"{name} was unhealthy, but the reason of its exit is {code}")


def _was_late(past: Past, program: Program) -> bool:
    """Return whether a program was stopped because of its own deadline."""
    signaled = program.killed if program.terminated is None else program.terminated
    return signaled is not None and past.is_overdue(signaled)


def _check_overdue(experiment: Experiment, past: Past, at: float) -> None:
    """Check that a deadline has passed: that of a process, or that of the experiment."""
    if experiment.ending != "deadline" and not past.is_overdue(at):
        raise Broken(CAUSE, f"{past.settings.name} was said to be late before its deadline")


def _ready(_experiment: Experiment, past: Past, event: Event) -> None:
    program = past.programs[-1] if past.programs else None
    if program is None or program.ready is None or not past.settings.has_probe:
        raise Broken(TRUTH, f"{event['process']} was recorded as ready, but it is not")
    past.ready_recorded, past.never_ready = True, False


def _not_ready(_experiment: Experiment, past: Past, event: Event) -> None:
    program = past.latest
    if program is None or not past.settings.has_probe:
        raise Broken(TRUTH, f"{event['process']} was recorded as not ready, but does not run")
    if event["at"] < program.started + past.settings.ready_timeout - EPSILON:
        raise Broken(TRUTH, f"{event['process']} was recorded as not ready before its timeout")
    past.never_ready = not past.ready_recorded
    program.late_recorded = True


def _unhealthy(experiment: Experiment, past: Past, event: Event) -> None:
    name, limit = event["process"], past.settings.max_failed_tests
    program = past.programs[-1] if past.programs else None
    if program is None or limit is None or program.most_failed_tests < limit:
        raise Broken(TRUTH, f"{name} was recorded as unhealthy, but its tests do not say so")
    if program.unhealthy_recorded or program.exit_recorded:
        raise Broken(TRUTH, f"{name} was recorded as unhealthy again")
    if experiment.stopping_since is not None or experiment.is_restarting:
        raise Broken(CAUSE, f"{name} was recorded as unhealthy while all processes are stopped")
    program.unhealthy_recorded = True


def _start_failed(_experiment: Experiment, past: Past, event: Event) -> None:
    latest = past.programs[-1] if past.programs else None
    if latest is None or not latest.execution.cannot_start:
        raise Broken(TRUTH, f"a failed start of {event['process']} was recorded")


def _start_requested(experiment: Experiment, past: Past, event: Event) -> None:
    ranks = experiment.gang_of(past)
    is_asked = past.may_start or experiment.is_asked("start", event["process"])
    if not is_asked and not any(rank.programs for rank in ranks):
        raise Broken(CAUSE, f"a start of {event['process']} was recorded without a request")
    if past.is_running:
        raise Broken(CAUSE, f"a start of {event['process']} was requested while it was running")
    if not is_asked:
        # A gang restarts, and with it a rank that had succeeded.
        if event.get("reason_code") in _UNCOUNTED:
            past.await_again()
        return
    # From now on, a restart of the experiment starts it, even if it interrupts the request.
    past.was_stopped = False
    past.count_anew()
    gang = experiment.gangs.get(past.settings.gang or "")
    if gang is not None:
        gang.count_anew()


def _never(experiment: Experiment, past: Past, event: Event) -> None:
    """Check the reason why a process does not start any more."""
    name = event["process"]
    past.is_given_up = True
    # A start that a user has requested does not happen any more, so that no stop prevents it.
    past.must_start = False
    if past.is_running:
        raise Broken(TRUTH, f"{name} was recorded as never started, but it is running")
    code = event.get("reason_code")
    if event.get("stopped"):
        # A unit that a user has stopped stays so as a whole if the experiment is restarted.
        is_unit_stopped = any(rank.is_stopped for rank in experiment.gang_of(past))
        is_stopped = past.is_stopped or is_unit_stopped or experiment.is_asked("stop", name)
        if experiment.stopping_since is None and not is_stopped:
            raise Broken(CAUSE, f"{name} was recorded as stopped, but nobody has stopped it")
        past.is_stopped = past.is_stopped or is_stopped
    elif code == "never-started":
        _check_unit_is_in_order(experiment, past)
        # A condition must be unmet, and the process that it names must not be about to start.
        conditions = past.settings.starts_after.items()
        unmet_ones = [
            other
            for other, condition in conditions
            if unmet(experiment, other, condition)
            or _is_late(experiment, other, condition)
            or experiment.pasts[other].is_given_up
        ]
        if all(_can_still(experiment, other, event["at"]) for other in unmet_ones):
            raise Broken(CAUSE, f"{name} was given up, but what it waits for can still happen")
    elif code == "deadline-exceeded":
        _check_overdue(experiment, past, event["at"])
    elif code == "cannot-start" and not _could_not_start(past):
        raise Broken(CAUSE, f"{name} was recorded as not startable, but was not tried")


def _check_unit_is_in_order(experiment: Experiment, past: Past) -> None:
    """Check that a rank that has run is not given up: its gang starts it again in no order."""
    gang = past.settings.gang
    has_lost_rank = bool(experiment.removed_from(gang))
    if gang is not None and past.latest is not None and not has_lost_rank:
        raise Broken(CAUSE, f"{past.settings.name} was given up, but its gang starts it again")


def _could_not_start(past: Past) -> bool:
    """Return whether the latest start of a process failed."""
    return bool(past.programs) and past.programs[-1].execution.cannot_start


def _is_late(experiment: Experiment, name: str, condition: str) -> bool:
    """Return whether it is recorded that a process was not ready in time."""
    return condition == "ready" and experiment.pasts[name].never_ready


def _can_still(experiment: Experiment, name: str, now: float) -> bool:
    """Return whether a process that is waited for can still start, become ready or succeed."""
    past = experiment.pasts[name]
    latest = past.latest
    if past.is_held:
        return True
    if past.is_given_up:
        return False
    if past.never_ready or latest is None:
        return False
    if latest.ended is None:
        return True
    is_over = past.is_overdue(now) or past.settings.gang is not None
    return not is_over and past.may_restart(latest)


# --- events of the experiment ---


def _stopping(experiment: Experiment, event: Event) -> None:
    if not experiment.is_stopped_by_user:
        raise Broken(CAUSE, "a stop of the experiment was recorded, but nobody asked for it")
    _stop_all(experiment, event["at"])


def _stop_all(experiment: Experiment, at: float) -> None:
    if experiment.stopping_since is None:
        experiment.stopping_since = at
    experiment.is_restarting = False
    for past in (*experiment.pasts.values(), *experiment.gone):
        past.allow_grace(None, at)


def _request_done(experiment: Experiment, event: Event) -> None:
    asked = experiment.asked.get(event["number"])
    if asked is None or asked.is_done:
        raise Broken(CAUSE, f"request {event['number']} was done, but it was not in progress")
    asked.is_done = True
    in_progress = [each.names for each in experiment.asked.values() if not each.is_done]
    for name in asked.names:
        past = experiment.pasts.get(name)
        if past is None or any(name in names for names in in_progress):
            continue
        past.may_start = False
        if experiment.is_restarting and past.must_start and past.was_stopped:
            # The answer says that the restart of the experiment has interrupted the request.
            past.is_stopped = True


def _ending(experiment: Experiment, event: Event) -> None:
    action, at = event["action"], event["at"]
    scenario = experiment.scenario
    if action == "finish":
        for name in experiment.ends_with:
            if experiment.pasts[name].is_running or experiment.pasts[name].is_stopped:
                raise Broken(CAUSE, f"the experiment ended with {name}, which has not finished")
    elif action == "deadline":
        if scenario.deadline is None or at < experiment.launched + scenario.deadline - EPSILON:
            raise Broken(CAUSE, "the experiment ended before its deadline")
    elif action == "stop":
        if scenario.on_failure == "continue":
            raise Broken(CAUSE, "the experiment ended after a failure, which it should ignore")
        check_failure(experiment, event)
        limit = scenario.max_restarts
        if scenario.on_failure == "restart" and limit is not None and experiment.restarts < limit:
            raise Broken(RESTARTS, f"the experiment ended after {experiment.restarts} restarts")
    experiment.ending = action
    _stop_all(experiment, at)


def check_failure(experiment: Experiment, event: Event) -> None:
    """Check that the process that an event calls failed has failed."""
    past = experiment.past(event["failed"])
    if past is None or past.is_running:
        raise Broken(CAUSE, f"{event['failed']} is said to have failed, but it is running")
    latest = past.latest
    is_success = latest is not None and latest.ended is not None and latest.has_succeeded
    if is_success and not past.is_overdue(event["at"]) and not experiment.gang_of(past):
        raise Broken(CAUSE, f"{event['failed']} is said to have failed, but it has succeeded")
    if past.is_stopped:
        raise Broken(CAUSE, f"{event['failed']} is said to have failed, but a user stopped it")


def _restarting(experiment: Experiment, event: Event) -> None:
    scenario = experiment.scenario
    if event.get("cause") == EVICTION_CAUSE and experiment.is_evicted:
        experiment.is_restarting, experiment.restart_due = True, event["at"]
        experiment.in_row = 0
        for past in (*experiment.pasts.values(), *experiment.gone):
            past.allow_grace(None, event["at"])
        return
    if scenario.on_failure != "restart":
        raise Broken(CAUSE, "the experiment restarts, but its policy does not say so")
    check_failure(experiment, event)
    if scenario.max_restarts is not None and experiment.restarts >= scenario.max_restarts:
        raise Broken(RESTARTS, f"the experiment restarts more than {scenario.max_restarts} times")
    experiment.is_restarting = True
    experiment.restart_due = event["at"] + experiment.restart_delay()
    experiment.in_row += 1
    for past in (*experiment.pasts.values(), *experiment.gone):
        past.allow_grace(None, event["at"])


def _restarted(experiment: Experiment, event: Event) -> None:
    if not experiment.is_restarting:
        raise Broken(CAUSE, "the experiment was restarted without a decision")
    for program in experiment.machine.programs:
        if program.ended is None or program.strays_until is not None:
            raise Broken(CAUSE, f"the experiment was restarted while {program.name} was running")
    is_evicted = event.get("evicted", False)
    if not is_evicted and event["at"] < experiment.restart_due - EPSILON:
        raise Broken(RESTARTS, f"the experiment was restarted before {experiment.restart_due}")
    experiment.is_restarting = False
    experiment.restarts += not is_evicted
    for past in experiment.pasts.values():
        if past.is_prevented:
            # It had ended by itself, and starts again as all that have.
            past.is_stopped = past.is_prevented = False
        if past.is_stopped:
            continue
        past.count_anew()
        past.first_started = None
        past.may_start = past.must_start = False
    for gang in experiment.gangs.values():
        gang.count_anew()


_OF_PROCESS: Mapping[str, Callable[[Experiment, Past, Event], None]] = {
    "started": _started,
    "exited": _exited,
    "ready": _ready,
    "not-ready": _not_ready,
    "unhealthy": _unhealthy,
    "start-failed": _start_failed,
    "start-requested": _start_requested,
    "never": _never,
}
_OF_EXPERIMENT: Mapping[str, Callable[[Experiment, Event], None]] = {
    "stopping": _stopping,
    "request-done": _request_done,
    "ending": _ending,
    "restarting": _restarting,
    "restarted": _restarted,
}
