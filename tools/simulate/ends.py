"""The checks of a history that waits for nothing any more, or that has ended."""

from __future__ import annotations

from simulate.past import Experiment, Past
from simulate.promises import (
    ANSWERED,
    GANG,
    HEALTH,
    NOTHING_LEFT,
    PROGRESS,
    TRUTH,
    Broken,
)
from simulate.starts import unmet
from symphony.plan.state import RunState, Track
from symphony.status import ENDED, ReasonCode, State

# The states in which an exit code of 0 does not mean success.
_FAILED_ANYWAY = (ReasonCode.DEADLINE_EXCEEDED, ReasonCode.EVICTED, ReasonCode.UNHEALTHY)


def check_quiet(experiment: Experiment, state: RunState) -> None:
    """Check an experiment in which nothing will happen unless a user does something.

    Raises Broken if something could have happened before.
    """
    if experiment.stopping_since is not None or experiment.is_restarting:
        raise Broken(PROGRESS, "the stop or the restart of the experiment does not go on")
    for name, past in experiment.pasts.items():
        if past.is_running:
            _check_readiness(name, past)
            _check_health(name, past)
        else:
            _check_waits(experiment, name, past, state.tracks[name])
    for past in experiment.pasts.values():
        _check_machines(experiment, past)
    for past in experiment.gone:
        if past.is_running:
            raise Broken(PROGRESS, f"{past.settings.name} was removed, but it is running")
    _check_policies(experiment)
    for asked in experiment.asked.values():
        # A client loses the answer if the supervisor is killed.
        has_lost_client = bool(experiment.scenario.crashes) or experiment.is_evicted
        if not asked.is_done or not (asked.is_answered or has_lost_client):
            raise Broken(ANSWERED, f"request {asked.number} is not done, or is not answered")
    have_ended = all(track.state in ENDED for track in state.tracks.values())
    if have_ended and not any(past.is_stopped for past in experiment.pasts.values()):
        raise Broken(PROGRESS, "all processes have ended, but the experiment has not")


def _check_machines(experiment: Experiment, past: Past) -> None:
    """Check that no rank holds a machine while there is none for another one."""
    if not past.settings.place_within or not past.is_running or past.programs[-1].placed is None:
        return
    for other in experiment.gang_of(past):
        if other.is_running and other.programs[-1].placed is None:
            message = f"{past.settings.name} keeps its machine, but there is none for another rank"
            raise Broken(PROGRESS, message)


def _check_readiness(name: str, past: Past) -> None:
    """Check that it is recorded that a running process is ready, or that it is late."""
    program = past.programs[-1]
    if not past.settings.has_probe:
        return
    if program.ready is None and not program.late_recorded:
        raise Broken(PROGRESS, f"{name} is not ready, and its timeout does not end")
    if program.ready is not None and not past.ready_recorded:
        raise Broken(PROGRESS, f"{name} is ready, but this was not recorded")


def _check_health(name: str, past: Past) -> None:
    """Check that a running process has not failed too many health tests in a row."""
    limit = past.settings.max_failed_tests
    if limit is not None and past.programs[-1].failed_tests >= limit:
        raise Broken(HEALTH, f"{name} is unhealthy, and nothing stops it")


def _check_waits(experiment: Experiment, name: str, past: Past, track: Track) -> None:
    """Check that a process that does not run waits for something, or has ended."""
    latest = past.latest
    if past.is_stopped:
        return
    if past.must_start and latest is not None:
        raise Broken(PROGRESS, f"{name} was not started again, though a user asked for it")
    if past.is_given_up:
        return
    if latest is None:
        conditions = past.settings.starts_after.items()
        if all(not unmet(experiment, other, condition) for other, condition in conditions):
            raise Broken(PROGRESS, f"{name} was not started, though nothing is in its way")
        return
    if past.settings.gang is not None:
        _check_gang(experiment, past)
    elif past.may_restart(latest) and track.reason_code is not ReasonCode.DEADLINE_EXCEEDED:
        raise Broken(PROGRESS, f"{name} was not restarted, though restarts are left")


def _check_gang(experiment: Experiment, past: Past) -> None:
    """Check that no rank runs beside one that has failed."""
    latest = past.latest
    if latest is None or (latest.code == 0 and not latest.unhealthy_recorded):
        return
    for other in experiment.gang_of(past):
        if other.is_running:
            message = f"{other.settings.name} runs, though {past.settings.name} has failed"
            raise Broken(GANG, message)


def _check_policies(experiment: Experiment) -> None:
    """Check that the experiment would have ended if its policies required it."""
    scenario = experiment.scenario
    pasts = experiment.pasts
    ends_with = [pasts[name] for name in experiment.ends_with]
    is_over = all(past.latest and not past.is_running and not past.is_stopped for past in ends_with)
    if ends_with and is_over and any(past.is_running for past in pasts.values()):
        raise Broken(PROGRESS, "the processes in ends_with have finished, but the experiment runs")
    if scenario.deadline is not None and any(past.is_running for past in pasts.values()):
        raise Broken(PROGRESS, "the experiment waits, and its deadline does not end it")
    for name, past in pasts.items():
        latest = past.latest
        if past.is_running and past.settings.deadline is not None:
            raise Broken(PROGRESS, f"{name} runs, and its deadline does not end it")
        if scenario.on_failure == "continue" or latest is None or past.is_stopped:
            continue
        if not any(other.is_running for other in pasts.values()):
            continue
        has_failed = latest.unhealthy_recorded or latest.reported_code not in (0, None)
        if latest.ended is not None and has_failed:
            raise Broken(PROGRESS, f"{name} has failed, but the experiment goes on")


def check_finished(experiment: Experiment, state: RunState) -> None:
    """Check the final state against what has really happened. Raises Broken."""
    check_nothing_left(experiment)
    for name, track in state.tracks.items():
        _check_track(experiment.pasts[name], track)
    if state.leaving:
        raise Broken(TRUTH, f"the record still contains removed processes: {list(state.leaving)}")


def check_nothing_left(experiment: Experiment) -> None:
    """Check that neither a process nor a child of one runs."""
    for program in experiment.machine.programs:
        if program.ended is None:
            raise Broken(NOTHING_LEFT, f"{program.name} runs after the end of the experiment")
        if program.strays_until is not None:
            raise Broken(NOTHING_LEFT, f"children of {program.name} run after the end")


def _check_track(past: Past, track: Track) -> None:
    name = past.settings.name
    if track.state not in ENDED:
        raise Broken(TRUTH, f"{name} is {track.state} after the end of the experiment")
    latest = past.latest
    if latest is None or latest.execution.cannot_start or track.reason_code in _FAILED_ANYWAY:
        if track.state is State.SUCCEEDED:
            raise Broken(TRUTH, f"{name} counts as succeeded, but it was not started or was late")
        return
    if track.exit_code is None and track.started is None:
        # A request has begun to count anew, and the process was stopped before it started.
        return
    if track.exit_code != latest.reported_code:
        text = f"the exit code of {name} is {track.exit_code}, not {latest.reported_code}"
        raise Broken(TRUTH, text)
    is_stopped_restart = track.stopped and track.state is State.FAILED
    if latest.unhealthy_recorded and not track.stopped:
        if track.state is not State.FAILED:
            raise Broken(HEALTH, f"{name} was unhealthy, but it is {track.state}")
        return
    expected = _expected_state(latest.reported_code)
    if track.state is not expected and not is_stopped_restart:
        raise Broken(TRUTH, f"{name} is {track.state}, not {expected}")


def _expected_state(code: int | None) -> State:
    if code is None:
        return State.UNKNOWN
    return State.SUCCEEDED if code == 0 else State.FAILED
