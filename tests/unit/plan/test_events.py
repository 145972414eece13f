"""The event log: the state after literal histories, and reading a log while it is written."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.plan.state import Request, RunState, Track, apply, checkpoint, fold
from symphony.status import ReasonCode, State
from symphony.supervised.record.event_file import EventReader, encode, names_in


def event(kind: str, process: str | None = "p", at: float = 0.0, **details: Any) -> dict[str, Any]:
    return {"event": kind, "at": at, **({} if process is None else {"process": process}), **details}


def started(at: float = 1.0, *, ready: bool = True, pid: int = 10) -> dict[str, Any]:
    return event("started", at=at, pid=pid, birth=5.0, ready=ready)


def exited(code: int | None, at: float = 2.0, **details: Any) -> dict[str, Any]:
    return event("exited", at=at, code=code, **details)


STARTED: dict[str, Any] = {"started": 1.0, "first_started": 1.0, "group": 10, "attempts": 1}
RUNNING: dict[str, Any] = {**STARTED, "state": State.RUNNING, "pid": 10, "birth": 5.0}
READY: dict[str, Any] = {**RUNNING, "ready": True, "was_ready": True}
ENDED: dict[str, Any] = {**STARTED, "ended": 2.0, "was_ready": True}
NOT_READY = event("not-ready", reason="r")
UNHEALTHY = event("unhealthy", reason="u", result="r")
RESTARTS = exited(
    1, restarts_in=0.0, in_row=1, reason="r", cause="exit code 1", reason_code="backing-off"
)
LATE: dict[str, Any] = {
    "not_ready_in_time": True, "reason": "r", "reason_code": ReasonCode.NOT_READY,
}  # fmt: skip
SECOND_RUN: dict[str, Any] = {
    **RUNNING,
    "started": 3.0,
    "restarts": 1,
    "failures_in_row": 1,
    "retries": 1,
    "attempts": 2,
}

HISTORIES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "no events": ([], {}),
    "waiting": (
        [event("waiting", reason="waiting for db")],
        {"reason": "waiting for db", "reason_code": ReasonCode.WAITING},
    ),
    "running": ([started()], READY),
    "running, not ready": ([started(ready=False)], RUNNING),
    "running after waiting": ([event("waiting", reason="r"), started()], READY),
    "ready": ([started(ready=False), event("ready")], READY),
    "not ready in time": (
        [started(ready=False), NOT_READY],
        {**RUNNING, **LATE, "never_ready": True},
    ),
    "ready after the timeout": ([started(ready=False), NOT_READY, event("ready")], READY),
    "second run not ready in time": (
        [started(), RESTARTS, started(3.0, ready=False), NOT_READY],
        {**SECOND_RUN, **LATE, "was_ready": True},
    ),
    "second run has a new timeout": (
        [started(ready=False), NOT_READY, RESTARTS, started(3.0, ready=False)],
        {**SECOND_RUN, "never_ready": True},
    ),
    "unhealthy": (
        [started(), UNHEALTHY],
        {**READY, "unhealthy": "u", "reason": "u", "reason_code": ReasonCode.UNHEALTHY},
    ),
    "unhealthy and exited": (
        [started(), UNHEALTHY, exited(0, reason="u", reason_code="unhealthy")],
        {
            **ENDED,
            "state": State.FAILED,
            "exit_code": 0,
            "unhealthy": "u",
            "reason": "u",
            "reason_code": ReasonCode.UNHEALTHY,
        },
    ),
    "unhealthy and stopped on request": (
        [started(), UNHEALTHY, exited(0, stopped=True, reason="stopped")],
        {
            **ENDED,
            "state": State.SUCCEEDED,
            "exit_code": 0,
            "unhealthy": "u",
            "stopped": True,
            "reason": "stopped",
        },
    ),
    "restarted after it was unhealthy": (
        [started(), UNHEALTHY, RESTARTS, started(3.0, pid=11)],
        {**SECOND_RUN, "pid": 11, "group": 11, "ready": True, "was_ready": True},
    ),
    "succeeded": (
        [started(), exited(0, reason_code="exited")],
        {**ENDED, "state": State.SUCCEEDED, "exit_code": 0, "reason_code": ReasonCode.EXITED},
    ),
    "failed": (
        [started(), exited(137, reason="killed by SIGKILL", reason_code="killed")],
        {
            **ENDED,
            "state": State.FAILED,
            "exit_code": 137,
            "reason": "killed by SIGKILL",
            "reason_code": ReasonCode.KILLED,
        },
    ),
    "exit not observed": (
        [started(), exited(None, reason="r", reason_code="lost")],
        {**ENDED, "state": State.UNKNOWN, "reason": "r", "reason_code": ReasonCode.LOST},
    ),
    "exit without or with an unknown reason code": (
        [started(), exited(1), exited(1, reason_code="from-the-future")],
        {**ENDED, "state": State.FAILED, "exit_code": 1},
    ),
    "stopped": (
        [started(), event("stopping", None), exited(143, stopped=True, reason="stopped")],
        {
            **ENDED,
            "state": State.FAILED,
            "exit_code": 143,
            "stopped": True,
            "reason": "stopped",
        },
    ),
    "backing off": (
        [started(), RESTARTS | {"restarts_in": 10.0, "in_row": 2}],
        {
            **ENDED,
            "state": State.PENDING,
            "exit_code": 1,
            "failures_in_row": 2,
            "retries": 1,
            "reason": "exit code 1",
            "reason_code": ReasonCode.BACKING_OFF,
            "next_start": 12.0,
        },
    ),
    "restarted": (
        [started(), RESTARTS, started(3.0, pid=11)],
        {**SECOND_RUN, "pid": 11, "group": 11, "ready": True, "was_ready": True},
    ),
    "restarted by a change that was applied before it was recorded": (
        [
            started(),
            *[event("changed", None, revision=1, added=[], removed=[], restarted=["p"])] * 2,
        ],
        {**READY, "first_started": None, "outdated": True},
    ),
    "never started": (
        [event("waiting", reason="w"), event("never", at=4.0, reason="r", reason_code="stopped")],
        {
            "state": State.FAILED,
            "ended": 4.0,
            "reason": "r",
            "reason_code": ReasonCode.STOPPED,
            "attempts": 1,
        },
    ),
    "stopped before the start": (
        [event("never", at=4.0, reason="r", stopped=True)],
        {"state": State.FAILED, "ended": 4.0, "reason": "r", "stopped": True, "attempts": 1},
    ),
}


@pytest.mark.parametrize(("history", "track"), HISTORIES.values(), ids=HISTORIES.keys())
def test_history_of_a_process(history: list[dict[str, Any]], track: dict[str, Any]) -> None:
    run = fold(["p", "other"], history)
    assert run.tracks["p"] == Track(**track)
    assert run.tracks["other"] == Track()
    for cut in range(len(history) + 1):
        partial = fold(["p", "other"], history[:cut])
        for item in history[cut:]:
            apply(partial, item)
        assert partial == run, "a fold may be interrupted after any event"


def test_request_is_open_until_it_is_done() -> None:
    """A process that the request has started again is done."""
    names = ["p", "other"]
    run = fold(
        names,
        [
            event("requested", None, number=1, request="stop", names=names, grace=2.0),
            event("requested", None, number=2, request="restart", names=names, grace=None),
            event("start-requested"),
        ],
    )
    assert run.requests == {1: Request("stop", names, 2.0), 2: Request("restart", ["other"])}
    apply(run, event("request-done", None, number=1))
    assert (list(run.requests), run.request_count) == ([2], 2)
    # The change of an experiment is a request, and a stop takes precedence over it.
    apply(
        run, event("changed", None, revision=1, added=["new"], removed=["p"], restarted=["other"])
    )
    apply(run, event("requested", None, number=4, request="stop", names=["other"]))
    apply(run, event("start-requested", "new"))
    assert run.requests[3] == Request("change", [])
    assert run.is_changing
    assert run.requests[2] == Request("restart", [])


def test_history_of_an_experiment() -> None:
    run = fold(["p"], [event("launched", None, 7.0)])
    assert run == RunState(tracks={"p": Track()}, created=7.0)
    apply(run, event("stopping", None))
    assert (run.stopping, run.finished) == (True, False)
    apply(run, event("finished", None))
    assert run.finished


def test_restart_of_an_experiment_resets_its_processes() -> None:
    """Between the decision and the restart, no process has finished."""
    restarting = event(
        "restarting", None, 6.0, reason="r", cause="p failed", restarts_in=4.0, in_row=2
    )
    stopped = exited(
        143, restarts_in=3.0, reason="r", cause="p failed", reason_code="experiment-restarts"
    )
    run = fold(
        ["p", "running", "new"],
        [
            started(),
            started() | {"process": "running"},
            exited(0),
            restarting,
            stopped | {"process": "running", "at": 7.0},
        ],
    )
    assert (run.restarting, run.restart_at, run.restarts_in_row) == (True, 10.0, 2)
    for track in run.tracks.values():
        assert (track.state, track.reason, track.next_start) == (State.PENDING, "p failed", 10.0)
        assert track.reason_code is ReasonCode.EXPERIMENT_RESTARTS
    apply(run, event("restarted", None, 11.0))
    assert (run.restarting, run.restarts, run.restarted) == (False, 1, 11.0)
    again = Track(restarts=1, attempts=1)
    assert run.tracks == {"p": again, "running": again, "new": Track()}


def test_restart_of_an_experiment_does_not_start_what_a_user_has_stopped() -> None:
    stopped = exited(143, stopped=True, reason="stopped", reason_code="stopped")
    restarting = event("restarting", None, 6.0, reason="r", restarts_in=0.0)
    run = fold(["p", "q"], [started(), stopped, restarting])
    assert (run.tracks["p"].state, run.tracks["p"].stopped) == (State.FAILED, True)
    before = run.tracks["p"]
    apply(run, event("restarted", None, 7.0))
    assert run.tracks == {"p": before, "q": Track()}


def test_start_after_a_disruption_does_not_count_as_a_restart() -> None:
    lost = exited(None, restarts_in=0.0, in_row=0, reason="r", cause="c", reason_code="disrupted")
    run = fold(["p"], [started(), RESTARTS, started(3.0), lost | {"at": 4.0}])
    track = run.tracks["p"]
    assert (track.state, track.reason, track.next_start) == (State.PENDING, "c", 4.0)
    apply(run, started(5.0))
    assert (track.state, track.restarts, track.retries) == (State.RUNNING, 1, 1)
    assert (track.attempts, track.first_started) == (3, 1.0)


def test_stop_of_a_process_has_no_effect_on_other_stops_of_it() -> None:
    requested = event("requested", None, request="stop", names=["p"], grace=None)
    run = fold(["p"], [started(), requested | {"number": 1}, requested | {"number": 2}])
    assert run.requests == {1: Request("stop", ["p"]), 2: Request("stop", ["p"])}


def test_time_of_a_deadline_begins_again_with_a_start_on_request() -> None:
    run = fold(["p"], [started(), exited(1), event("start-requested"), started(9.0)])
    assert run.tracks["p"].first_started == 9.0


def test_process_that_exceeds_a_deadline_has_failed_with_any_exit_code() -> None:
    late = exited(0, reason="deadline exceeded", reason_code="deadline-exceeded")
    run = fold(["p"], [started(), late])
    assert (run.tracks["p"].state, run.tracks["p"].exit_code) == (State.FAILED, 0)


@pytest.mark.parametrize(
    "unknown",
    [event("migrated", reason="r"), event("migrated", None), started() | {"process": "unknown"}],
)
def test_unknown_events_are_ignored(unknown: dict[str, Any]) -> None:
    run = fold(["p"], [event("launched", None, 7.0), unknown, started()])
    assert run.tracks == {"p": Track(**READY)}
    assert run.created == 7.0


# --- checkpoints ---

EXPERIMENT: list[dict[str, Any]] = [
    event("launched", None, at=1.0, boot_seconds=0.5),
    started(),
    event("requested", None, number=1, request="restart", names=["p", "q"], grace=2.0),
    event("terminating", kill_at=4.0),
    event("restarting", None, reason="r", restarts_in=1.0, in_row=2),
    exited(None),
    event("restarted", None, at=5.0, evicted=True),
    started(pid=12),
    started(pid=13) | {"process": "q"},
    event("changed", None, revision=1, added=["n"], removed=["q"], restarted=["p"], changes=[]),
    event("ending", None, action="stop", reason="r", reason_code="stopped", failed="n"),
    event("supervisor-replaced", None),
    event("agent-replaced", None, reason="r"),
    exited(3),
    event("finished", None),
]
ALL_HISTORIES = [*(history for history, _ in HISTORIES.values()), EXPERIMENT]


@pytest.mark.parametrize("history", ALL_HISTORIES, ids=[*HISTORIES, "experiment"])
def test_checkpoint_replaces_the_events_before_it(
    history: list[dict[str, Any]], tmp_path: Path
) -> None:
    log = tmp_path / "events.jsonl"
    names = ["p", "q", "n"]
    for cut in range(len(history) + 1):
        earlier = checkpoint(fold(names, history[:cut]), 1, 9.0)
        log.write_bytes(b"".join(map(encode, [earlier, *history[cut:]])))
        found = EventReader(log).read_new()
        assert fold(names, found) == fold(names, history)
        # A reader that is behind replaces the state that it has.
        assert fold(names, [*history[: cut // 2], *found]) == fold(names, history)
        assert names_in(found) >= names_in(history)


def test_checkpoint_of_another_version_contains_no_attempts() -> None:
    earlier = checkpoint(fold(["p", "q"], [started(), RESTARTS, started(3.0)]), 1, 9.0)
    del earlier["state"]["tracks"]["p"]["attempts"]
    run = fold(["p", "q"], [earlier])
    assert (run.tracks["p"].attempts, run.tracks["q"].attempts) == (2, 0)


@pytest.mark.parametrize(
    "damage",
    [
        {"state": {}},
        {"folded_bytes": "1"},
        {"state": {"tracks": {"p": {"state": "odd"}}, "leaving": {}, "requests": []}},
        {"state": {"tracks": {}, "leaving": {"p": []}, "requests": []}},
        {"state": {"tracks": {}, "leaving": {}, "requests": [{}]}},
        {"state": {"tracks": {}, "leaving": {}, "requests": [], "ending": 1}},
        {"state": {"tracks": {}, "leaving": {}, "requests": [], "revision": None}},
    ],
    ids=repr,
)
def test_damaged_checkpoint_is_skipped(tmp_path: Path, damage: dict[str, Any]) -> None:
    log = tmp_path / "events.jsonl"
    valid = checkpoint(fold(["p"], [started()]), 1, 9.0)
    log.write_bytes(encode({**valid, **damage}) + encode(started()))
    assert EventReader(log).read_new() == [started()]


# --- the log file ---

histories = st.lists(
    st.fixed_dictionaries(
        {"event": st.text(max_size=5), "at": st.floats(0, 1e10), "process": st.text(max_size=5)}
    ),
    max_size=6,
)


@given(histories, st.lists(st.integers(0, 400), max_size=6))
def test_growing_log_is_read_without_loss_or_repetition(
    tmp_path_factory: pytest.TempPathFactory, history: list[dict[str, Any]], cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    written = b"".join(map(encode, history))
    reader, read = EventReader(path), []
    ends = sorted({min(cut, len(written)) for cut in cuts} | {0, len(written)})
    for start, end in itertools.pairwise(ends):
        with path.open("ab") as log:
            log.write(written[start:end])
        read += reader.read_new()
    read += reader.read_new()
    assert read == history


def test_missing_log_has_no_events(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    reader = EventReader(log)
    assert reader.read_new() == []
    log.write_bytes(encode(started()))
    assert reader.read_new() == [started()]
    log.unlink()
    assert reader.read_new() == []


def test_event_is_one_line_of_ascii() -> None:
    line = encode(event("waiting", reason="é\n\u2028"))
    assert line.isascii()
    assert line.count(b"\n") == 1


@pytest.mark.parametrize(
    "damaged", [b'{"event":"waiting","at":1{"event":"x","at":2}\n', b"\n", b"\xff\n"], ids=repr
)
def test_damaged_line_is_skipped(tmp_path: Path, damaged: bytes) -> None:
    log = tmp_path / "events.jsonl"
    log.write_bytes(encode(event("launched", None)) + damaged + encode(started()))
    assert [item["event"] for item in EventReader(log).read_new()] == ["launched", "started"]
