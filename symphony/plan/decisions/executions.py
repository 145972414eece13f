"""Record what has happened to the processes: starts, failed starts, exits and readiness.

An exit is recorded together with its consequence for the process: whether its restart policy starts
it again, and when.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Any

from symphony.plan.decisions.draft import Draft
from symphony.plan.disruption import (
    Disrupted,
    Disruption,
    DisruptionCause,
    decide_disruption,
    lost_text,
)
from symphony.plan.observation import Seen
from symphony.plan.policies import DEADLINE_EXCEEDED, RESTART
from symphony.plan.restart_policy import Restart, RestartPolicy, decide_restart
from symphony.plan.state import RESTART_REQUESTED, Track, after
from symphony.plan.unit_decision import FAIL_UNIT
from symphony.status import ReasonCode, State, not_ready_reason, unhealthy_reason

# How much later than the timeout the result of a readiness test can arrive.
TEST_MARGIN_SECONDS = 1.0
NOT_FINISHED = "the last test has not finished"

# Signal n has killed a process whose exit code is this number plus n.
_SIGNAL_EXIT_CODE = 128
# Shells use these exit codes for a command that they could not run.
_SHELL_REASONS = {126: "the command cannot be executed", 127: "the command was not found"}
_LOST = (DisruptionCause.NODE_LOST, DisruptionCause.REMOVED)


def note_executions(draft: Draft) -> None:
    """Record the observations that are not recorded yet."""
    exits: list[tuple[float, str, Seen]] = []
    for name in _with_news(draft):
        seen = draft.seen(name)
        track = draft.state.tracks.get(name) or draft.state.leaving.get(name)
        if track is None or seen.attempt < track.attempts - 1 or seen.attempt < 0:
            continue
        if not _note_new_execution(draft, name, track, seen):
            continue
        # The track differs if there is a new execution.
        current = draft.state.tracks.get(name)
        if current is not None and not current.ready and (seen.running or seen.ready):
            # It can have been ready and exited since the last decision.
            _note_readiness(draft, name, seen)
        if seen.failed_tests:
            _note_health(draft, name, seen)
        if not seen.running:
            exits.append((draft.now if seen.since is None else seen.since, name, seen))
    if len(exits) > 1:
        exits.sort(key=lambda item: item[0])
    for at, name, seen in exits:
        if name in draft.state.tracks or name in draft.state.leaving:
            _note_exit(draft, name, seen, at)
    _note_backgrounds(draft)


def _with_news(draft: Draft) -> Iterable[str]:
    """Return the processes about which there can be something to record.

    Facts are recorded at once, except those about the readiness of a process.
    """
    news = draft.observation.news
    if news is None:
        return draft.observation.processes
    unready = draft.state.index.unready
    return dict.fromkeys((*news, *sorted(unready))) if unready else news


def _note_new_execution(draft: Draft, name: str, track: Track, seen: Seen) -> bool:
    """Record a start or failed start that is not recorded yet.

    Return whether the record now contains the execution as a running one.
    """
    is_recorded = seen.attempt == track.attempts - 1
    if track.pid is not None:
        if not is_recorded:
            _note_replaced_execution(draft, name, seen)
        return True
    if is_recorded or seen.starting:
        return False
    if seen.failed:
        _note_failed_start(draft, name, seen)
        return False
    _note_start(draft, name, seen)
    return True


def record_final(
    draft: Draft, event: str, name: str, *, at: float | None = None, **details: Any
) -> None:
    """Record that a process has exited or cannot start, and that its own restart policy does not
    start it again.

    If the experiment is restarted because of this, the restart is recorded first. Otherwise, a
    reader could see that all processes have finished.
    """
    at = draft.now if at is None else at
    tracks = draft.state.tracks
    is_part = name in tracks
    if draft.wish.policies.on_failure == RESTART and is_part and not draft.state.is_stopping_all:
        track = after(tracks[name], {"event": event, "at": at, **details})
        ending = draft.decide_end({**tracks, name: track})
        if ending is not None and ending.restart is not None:
            draft.record_ending(ending)
    state = draft.state
    if state.restarting and is_part and not details.get("stopped"):
        if event == "never":
            # The restart is already recorded for a process that is not running.
            return
        details.update(_restart_of_experiment(draft, at))
    draft.record(event, name, at=at, **details)


def record_stopped(draft: Draft, name: str) -> None:
    """Record that a process that waits for its start or restart is stopped."""
    word = "started" if draft.state.tracks[name].started is None else "restarted"
    draft.record("never", name, **draft.stop_details(f"stopped before it {word}"))


def back_off_details(restart: Restart, cause: str) -> dict[str, Any]:
    """Return the details of an event after which a process will be started again."""
    delay = f"in {restart.delay:g} s" if restart.delay else "now"
    return {
        "reason": f"restarts {delay} ({cause})",
        "cause": cause,
        "reason_code": ReasonCode.BACKING_OFF,
        "restarts_in": restart.delay,
        "in_row": restart.in_row,
    }


def _restart_of_experiment(draft: Draft, at: float) -> dict[str, Any]:
    return {
        "reason_code": ReasonCode.EXPERIMENT_RESTARTS,
        "restarts_in": max(0.0, draft.state.restart_at - at),
        "cause": draft.state.restart_cause,
    }


# --- starts ---


def _note_start(draft: Draft, name: str, seen: Seen) -> None:
    process = draft.wish.processes.get(name)
    is_ready = process is None or not process.has_test
    details = {} if is_ready else {"log_start": seen.log_start}
    at = seen.since if seen.running else None
    draft.record("started", name, at=at, pid=seen.pid, birth=seen.birth, ready=is_ready, **details)


def _note_replaced_execution(draft: Draft, name: str, seen: Seen) -> None:
    """Record that the platform has started a process again, so that its exit was not observed."""
    cause = f"{seen.done_by} has started it again" if seen.done_by else "its exit was not observed"
    draft.record("exited", name, code=None, **back_off_details(Restart(0.0, 0), cause))
    if name in draft.state.tracks:
        _note_start(draft, name, seen)


def _note_failed_start(draft: Draft, name: str, seen: Seen) -> None:
    state = draft.state
    at = draft.now if seen.since is None else seen.since
    if state.stopping or draft.request_for(name, "stop") is not None:
        record_stopped(draft, name)
        return
    if state.restarting:
        details = _restart_of_experiment(draft, at)
        draft.record("start-failed", name, at=at, **{"reason": seen.reason, **details})
        return
    process = draft.wish.processes[name]
    restart = None
    if not seen.refused:
        # The process did not run, so the time since its previous start is no run time.
        track = state.tracks[name].copy()
        if process.gang is not None:
            track = _with_restarts_of_unit(draft, track, process.gang)
        track.started = None
        restart = decide_restart(process.restart, track, None, at, draft.wish.backoff)
    if restart is not None:
        draft.record("start-failed", name, at=at, **back_off_details(restart, seen.reason))
        return
    record_final(
        draft, "never", name, at=at, reason=seen.reason, reason_code=ReasonCode.CANNOT_START
    )
    if draft.state.restarting:
        details = _restart_of_experiment(draft, at)
        draft.record("start-failed", name, at=at, **{"reason": seen.reason, **details})


# --- readiness ---


def _note_readiness(draft: Draft, name: str, seen: Seen) -> None:
    """Record that a process is ready, is not ready in time, or what its test says."""
    process, track = draft.wish.processes.get(name), draft.state.tracks.get(name)
    if process is None or track is None or not process.has_test:
        return
    if track.ready or track.outdated or draft.state.is_stopping_all:
        return
    if draft.request_for(name, "stop", "restart", "change") is not None:
        return
    if seen.ready:
        draft.record("ready", name)
        return
    timeout: float | None = process.ready_timeout
    if not track.not_ready_in_time:
        due = (track.started or 0.0) + process.ready_timeout
        if seen.testing:
            due += TEST_MARGIN_SECONDS
        if draft.now >= due:
            result = NOT_FINISHED if seen.testing else seen.test_result
            reason = not_ready_reason(result, timeout)
            draft.record("not-ready", name, reason=reason, result=result)
            return
        draft.wake(due)
        timeout = None
    result = seen.test_result
    if result and result != track.test_result:
        draft.record("tested", name, reason=not_ready_reason(result, timeout), result=result)


# --- health ---


def _note_health(draft: Draft, name: str, seen: Seen) -> None:
    """Record that a process is unhealthy, if enough of its tests have failed.

    This also applies to a process that has exited since its tests have failed: a platform that
    tests processes can stop them by itself.
    """
    process, track = draft.wish.processes.get(name), draft.state.tracks.get(name)
    if process is None or track is None or process.max_failed_tests is None:
        return
    if seen.failed_tests < process.max_failed_tests or track.unhealthy or track.outdated:
        return
    is_stopping = seen.signaled_at is not None or seen.disruption is not None
    is_stopping = is_stopping or draft.state.is_stopping_all
    if is_stopping or draft.request_for(name, "stop", "restart", "change") is not None:
        # Its tests can fail because it is being stopped.
        return
    reason = unhealthy_reason(seen.health_result, seen.failed_tests)
    at = draft.now if seen.running else seen.since
    draft.record("unhealthy", name, at=at, reason=reason, result=seen.health_result)


# --- exits ---


def _note_backgrounds(draft: Draft) -> None:
    """Record which programs processes that have succeeded have left behind."""
    for name in _with_news(draft):
        seen, track = draft.seen(name), draft.state.tracks.get(name)
        if not seen.background or track is None or track.state is not State.SUCCEEDED:
            continue
        is_new = (seen.background, seen.in_background) != (track.background, track.in_background)
        if is_new and seen.attempt == track.attempts - 1:
            draft.record("background", name, program=seen.background, running=seen.in_background)


def _note_exit(draft: Draft, name: str, seen: Seen, at: float) -> None:
    state = draft.state
    restarted = draft.request_for(name, "restart", "change")
    is_stopped = name in state.leaving or draft.request_for(name, "stop") is not None
    details: dict[str, Any]
    if restarted is not None and not state.is_stopping_all:
        details = back_off_details(Restart(0.0, 0), RESTART_REQUESTED)
    elif state.stopping or is_stopped:
        details = draft.stop_details("stopped")
    else:
        details = _consequence(draft, name, seen, at)
    if seen.log_bytes is not None:
        details["log_bytes"] = seen.log_bytes
    if "restarts_in" in details:
        draft.record("exited", name, at=at, code=seen.exit_code, **details)
        return
    if draft.wish.policies.on_failure != RESTART or state.stopping:
        draft.frees.append(name)
    record_final(draft, "exited", name, at=at, code=seen.exit_code, **details)


def _consequence(draft: Draft, name: str, seen: Seen, at: float) -> dict[str, Any]:
    """Return the details of the exit of a process that was not stopped on request.

    If the unit of a rank restarts or has failed, this determines what happens to the rank.
    """
    process, track = draft.wish.processes[name], draft.state.tracks[name]
    is_overdue = _is_overdue(process.deadline, track, seen, at)
    unit = None if process.gang is None else draft.decide_unit(process.gang)
    if unit is not None and unit.action == FAIL_UNIT:
        return {"reason": unit.reason, "reason_code": ReasonCode.UNIT_FAILED}
    if unit is not None and not is_overdue:
        # A disruption of another rank does not begin the sequence of delays again.
        in_row = max(unit.in_row, track.failures_in_row)
        restart = Restart(max(0.0, unit.next_start - at), in_row)
        return {**back_off_details(restart, unit.reason), "reason_code": unit.reason_code}
    if is_overdue:
        return {"reason": DEADLINE_EXCEEDED, "reason_code": ReasonCode.DEADLINE_EXCEEDED}
    # An unhealthy process has failed. Its exit code only shows how it reacts to its stop.
    code = None if track.unhealthy else seen.exit_code
    if seen.disruption is not None and code != 0 and not track.unhealthy:
        return _disruption_details(process.restart, name, seen.disruption, track)
    restart_of_process = None
    if process.gang is not None:
        track = _with_restarts_of_unit(draft, track, process.gang)
    if not draft.state.restarting:
        restart_of_process = decide_restart(process.restart, track, code, at, draft.wish.backoff)
    if restart_of_process is None:
        return _final_details(process.restart, track, seen)
    cause = f"exit code {'unknown' if code is None else code}"
    if track.unhealthy:
        cause = track.unhealthy
    elif seen.reason_code is not None:
        cause = seen.reason or cause
    return back_off_details(restart_of_process, cause)


def _with_restarts_of_unit(draft: Draft, track: Track, gang: str) -> Track:
    """Return a track that counts the restarts of a unit, and not only those of one rank.

    A rank that had succeeded, or that was not started before, counts fewer restarts.
    """
    ranks = [draft.state.tracks[name] for name in draft.wish.gangs[gang]]
    counted = track.copy()
    counted.retries = max(rank.retries for rank in ranks)
    counted.failures_in_row = max(rank.failures_in_row for rank in ranks)
    return counted


def _is_overdue(deadline: float | None, track: Track, seen: Seen, at: float) -> bool:
    """Return whether a process has exited because its own deadline has passed.

    A process that has succeeded before it was stopped has not exceeded its deadline.
    """
    if deadline is None or track.first_started is None or at < track.first_started + deadline:
        return False
    return seen.exit_code != 0 or seen.signaled_at is not None


def _disruption_details(
    policy: RestartPolicy, name: str, disruption: Disruption, track: Track
) -> dict[str, Any]:
    """Return the details of an exit that a disruption has caused, which is no failure."""
    again = decide_disruption(policy, {name: Disrupted(disruption=disruption)})
    if again is None:
        is_lost = disruption.cause in _LOST
        code = ReasonCode.LOST if is_lost else ReasonCode.EVICTED
        return {"reason": lost_text(disruption), "reason_code": code}
    # The sequence of delays continues with the next failure.
    restart = Restart(0.0, track.failures_in_row)
    return {**back_off_details(restart, again.reason), "reason_code": ReasonCode.DISRUPTED}


def _final_details(policy: RestartPolicy, track: Track, seen: Seen) -> dict[str, Any]:
    """Return the details of the exit of a process that its restart policy does not restart."""
    code, reason_code, reason = seen.exit_code, seen.reason_code, seen.reason
    if track.unhealthy:
        code, reason_code, reason = None, ReasonCode.UNHEALTHY, track.unhealthy
    elif reason_code is None:
        reason_code, reason = _explain_exit(code, seen.reason)
    if policy.applies_to(code) and policy.is_used_up(track.retries):
        reason = _with_used_restarts(reason, policy)
    elif code in policy.final_codes:
        text = f"not restarted, because exit code {code} is final"
        reason = f"{reason}; {text}" if reason else text
    return {"reason": reason, "reason_code": reason_code}


def _explain_exit(code: int | None, reason: str) -> tuple[ReasonCode, str]:
    """Return the reason code and the reason for an exit.

    ``reason`` is the executor's explanation, or ``""`` if there is none. An empty ``reason`` is
    replaced by the meaning of the exit code if this meaning is known.
    """
    if code is None:
        return ReasonCode.LOST, f"exit status unknown: {reason}"
    name_of_signal = _signal_name(code)
    if name_of_signal:
        return ReasonCode.KILLED, reason or f"killed by {name_of_signal}"
    if code in _SHELL_REASONS:
        return ReasonCode.CANNOT_START, reason or _SHELL_REASONS[code]
    return ReasonCode.EXITED, reason


def _with_used_restarts(reason: str, policy: RestartPolicy) -> str:
    """Return the reason for the last exit of a process that has no restart left."""
    if not policy.max_restarts:
        return reason
    text = f"not restarted again, because the limit is {policy.max_restarts}"
    return f"{reason}; {text}" if reason else text


def _signal_name(code: int) -> str:
    """Return the name of the signal that an exit code indicates, or ``""`` if it indicates none."""
    if code <= _SIGNAL_EXIT_CODE:
        return ""
    try:
        return signal.Signals(code - _SIGNAL_EXIT_CODE).name
    except ValueError:
        return ""
