"""The event log: literal histories and what they come to, and reading a log that is still being written."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.host.run.events import EventReader, RunState, Track, apply, encode, fold
from symphony.status import ReasonCode, State


def event(kind: str, process: str | None = "p", at: float = 0.0, **details: Any) -> dict[str, Any]:
    return {"event": kind, "at": at, **({} if process is None else {"process": process}), **details}


def started(at: float = 1.0, *, ready: bool = True, pid: int = 10) -> dict[str, Any]:
    return event("started", at=at, pid=pid, birth=5.0, ready=ready)


def exited(code: int, at: float = 2.0, **details: Any) -> dict[str, Any]:
    return event("exited", at=at, code=code, **details)


RUNNING: dict[str, Any] = {"state": State.RUNNING, "started": 1.0, "pid": 10, "birth": 5.0}

HISTORIES: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
    ("nothing yet", [], {}),
    ("waits", [event("waiting", reason="waiting for db")], {"reason": "waiting for db", "reason_code": ReasonCode.WAITING}),
    ("runs", [started()], {**RUNNING, "ready": True, "was_ready": True}),
    ("runs, not ready", [started(ready=False)], RUNNING),
    ("waited, then runs", [event("waiting", reason="r"), started()], {**RUNNING, "ready": True, "was_ready": True}),
    ("gets ready", [started(ready=False), event("ready")], {**RUNNING, "ready": True, "was_ready": True}),
    (
        "is not ready in time",
        [started(ready=False), event("not-ready", reason="not ready within 5 s")],
        {**RUNNING, "never_ready": True, "not_ready_in_time": True, "reason": "not ready within 5 s",
         "reason_code": ReasonCode.NOT_READY},
    ),
    (
        "is ready after all",
        [started(ready=False), event("not-ready", reason="r"), event("ready")],
        {**RUNNING, "ready": True, "was_ready": True},
    ),
    (
        "was ready once, but its second run is not",
        [started(), exited(1, restarts_in=0.0, in_row=1), started(3.0, ready=False), event("not-ready", reason="r")],
        {**RUNNING, "started": 3.0, "restarts": 1, "failures_in_row": 1, "was_ready": True, "not_ready_in_time": True,
         "reason": "r", "reason_code": ReasonCode.NOT_READY},
    ),
    (
        "was not ready in time, and is given time again in its second run",
        [started(ready=False), event("not-ready", reason="r"), exited(1, restarts_in=0.0, in_row=1, reason="r"),
         started(3.0, ready=False)],
        {**RUNNING, "started": 3.0, "restarts": 1, "failures_in_row": 1, "never_ready": True},
    ),
    (
        "succeeds",
        [started(), exited(0)],
        {"state": State.SUCCEEDED, "started": 1.0, "ended": 2.0, "exit_code": 0, "was_ready": True},
    ),
    (
        "fails",
        [started(), exited(137, reason="killed by SIGKILL")],
        {"state": State.FAILED, "started": 1.0, "ended": 2.0, "exit_code": 137, "was_ready": True,
         "reason": "killed by SIGKILL"},
    ),
    (
        "is stopped",
        [started(), event("stopping", None), exited(143, stopped=True, reason="stopped")],
        {"state": State.FAILED, "started": 1.0, "ended": 2.0, "exit_code": 143, "was_ready": True, "stopped": True,
         "reason": "stopped"},
    ),
    (
        "waits to start again",
        [started(), exited(1, reason="restarts in 10 s (exit code 1)", restarts_in=10.0, in_row=2)],
        {"state": State.PENDING, "started": 1.0, "ended": 2.0, "exit_code": 1, "was_ready": True, "failures_in_row": 2,
         "reason": "restarts in 10 s (exit code 1)"},
    ),
    (
        "runs again",
        [started(), exited(1, restarts_in=0.0, in_row=1, reason="r"), started(3.0, pid=11)],
        {**RUNNING, "started": 3.0, "pid": 11, "ready": True, "was_ready": True, "restarts": 1, "failures_in_row": 1},
    ),
    (
        "never starts",
        [event("waiting", reason="r"), event("never", at=4.0, reason="never started: db failed")],
        {"state": State.FAILED, "ended": 4.0, "reason": "never started: db failed"},
    ),
    (
        "is stopped before it starts",
        [event("never", at=4.0, reason="stopped before it started", stopped=True)],
        {"state": State.FAILED, "ended": 4.0, "reason": "stopped before it started", "stopped": True},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("history", "track"), [item[1:] for item in HISTORIES], ids=[item[0] for item in HISTORIES]
)
def test_a_history_of_one_process(history: list[dict[str, Any]], track: dict[str, Any]) -> None:
    run = fold(["p", "other"], history)
    assert run.tracks["p"] == Track(**track)
    assert run.tracks["other"] == Track()


def test_a_history_of_an_experiment() -> None:
    run = fold(["p"], [event("launched", None, 7.0)])
    assert run == RunState(tracks={"p": Track()}, created=7.0)
    apply(run, event("stopping", None))
    assert (run.stopping, run.finished) == (True, False)
    apply(run, event("finished", None))
    assert run.finished


@pytest.mark.parametrize(
    "unknown",
    [event("migrated", reason="r"), event("migrated", None), started() | {"process": "stranger"}],
)
def test_what_is_not_known_changes_nothing(unknown: dict[str, Any]) -> None:
    run = fold(["p"], [event("launched", None, 7.0), unknown, started()])
    assert run.tracks == {"p": Track(**RUNNING, ready=True, was_ready=True)}
    assert run.created == 7.0


@pytest.mark.parametrize("cut", range(len(HISTORIES[8][1]) + 1))
def test_a_fold_may_stop_anywhere_and_go_on(cut: int) -> None:
    history = HISTORIES[8][1]
    run = fold(["p"], history[:cut])
    for item in history[cut:]:
        apply(run, item)
    assert run == fold(["p"], history)


# --- the log itself ---

histories = st.lists(
    st.fixed_dictionaries(
        {"event": st.text(max_size=5), "at": st.floats(0, 1e10), "process": st.text(max_size=5)}
    ),
    max_size=6,
)


@given(histories, st.lists(st.integers(0, 400), max_size=6))
def test_reading_while_it_is_written_gives_every_event_once_and_whole(
    tmp_path_factory: pytest.TempPathFactory, history: list[dict[str, Any]], cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    written = b"".join(map(encode, history))
    reader, read = EventReader(path), []
    ends = sorted({min(cut, len(written)) for cut in cuts} | {0, len(written)})
    for begin, end in itertools.pairwise(ends):
        with path.open("ab") as log:
            log.write(written[begin:end])
        read += reader.read_new()
    read += reader.read_new()
    assert read == history


def test_a_torn_last_line_is_not_there_yet(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    line = encode(started())
    log.write_bytes(encode(event("launched", None)) + line[:-5])
    reader = EventReader(log)
    assert [item["event"] for item in reader.read_new()] == ["launched"]
    assert reader.read_new() == []
    log.write_bytes(encode(event("launched", None)) + line)
    assert reader.read_new() == [started()]


def test_a_log_that_is_not_there_has_no_events(tmp_path: Path) -> None:
    reader = EventReader(tmp_path / "events.jsonl")
    assert reader.read_new() == []
    (tmp_path / "events.jsonl").write_bytes(encode(started()))
    assert reader.read_new() == [started()]
    (tmp_path / "events.jsonl").unlink()
    assert reader.read_new() == []


def test_an_event_is_one_line_of_ascii() -> None:
    line = encode(event("waiting", reason="é\n\u2028"))
    assert line.isascii()
    assert line.count(b"\n") == 1


@pytest.mark.parametrize(
    "broken", [b'{"event":"waiting","at":1{"event":"x","at":2}\n', b"\n", b"\xff\n"], ids=repr
)
def test_a_broken_line_in_the_middle_hides_no_other(tmp_path: Path, broken: bytes) -> None:
    log = tmp_path / "events.jsonl"
    log.write_bytes(encode(event("launched", None)) + broken + encode(started()))
    assert [item["event"] for item in EventReader(log).read_new()] == ["launched", "started"]
