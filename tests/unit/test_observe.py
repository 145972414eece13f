"""From events to status: what a living supervisor wrote is so, and of a dead one nothing is made up."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony import ExperimentStatus, State
from symphony.host.processes.identity import ProcessId
from symphony.host.run.events import RunState, Track
from symphony.host.run.status import compute_status

MANIFEST = {
    "experiment": "e",
    "backend": "local",
    "processes": [{"name": "p", "group": "g"}, {"name": "q", "group": None}],
}
RUNNING = Track(state=State.RUNNING, started=1.0, pid=10, birth=5.0, ready=True, was_ready=True)
WAITING = Track(reason="waiting for q to be ready")
BACKING_OFF = Track(
    state=State.PENDING, started=1.0, ended=2.0, exit_code=3, reason="restarts in 10 s", restarts=2
)
SUCCEEDED = Track(state=State.SUCCEEDED, started=1.0, ended=2.0, exit_code=0)
FAILED = Track(state=State.FAILED, started=1.0, ended=2.0, exit_code=3, reason="r")


def look(track: Track, **options: Any) -> ExperimentStatus:
    return compute_status(
        MANIFEST, RunState(tracks={"p": track, "q": SUCCEEDED}, created=7.0), **options
    )


@pytest.mark.parametrize("track", [RUNNING, WAITING, BACKING_OFF, SUCCEEDED, FAILED])
def test_what_a_supervisor_wrote_is_so(track: Track) -> None:
    found = look(track)
    process = found.processes[0]
    assert (found.name, found.backend, found.created, found.note) == ("e", "local", 7.0, "")
    assert process.path == "g/p"
    for field in (
        "state",
        "ready",
        "exit_code",
        "reason",
        "restarts",
        "started",
        "ended",
        "stopped",
    ):
        assert getattr(process, field) == getattr(track, field)
    assert process.pid == (10 if track is RUNNING else None)


DIED = "the supervisor was killed"


@pytest.mark.parametrize(
    ("track", "alive", "state", "reason"),
    [
        (RUNNING, True, "running", DIED),
        (RUNNING, False, "unknown", f"exit status unknown: {DIED}"),
        (WAITING, False, "unknown", f"will not start: {DIED}"),
        (WAITING, True, "running", DIED),  # started, and killed before that was written
        (BACKING_OFF, False, "unknown", f"will not start: {DIED}"),
        (SUCCEEDED, False, "succeeded", ""),
        (FAILED, False, "failed", "r"),
    ],
)
def test_what_a_dead_supervisor_leaves(track: Track, alive: bool, state: str, reason: str) -> None:
    found = look(track, orphans={"p": ProcessId(10, 5.0)} if alive else {})
    assert found.note == f"{DIED}; delete the experiment to stop the processes that still run"
    process = found.processes[0]
    assert (str(process.state), process.reason) == (state, reason)
    assert process.pid == (10 if alive else None)
    assert process.ready == (alive and track.ready)
    assert process.not_ready_in_time == (
        process.state is State.RUNNING and not track.ready
    )  # nobody will see it ready
    assert found.processes[1].state is State.SUCCEEDED


tracks = st.sampled_from([RUNNING, WAITING, BACKING_OFF])


@given(tracks, st.booleans())
def test_what_nobody_saw_the_end_of_never_succeeded(track: Track, alive: bool) -> None:
    found = look(track, orphans={"p": ProcessId(10, 5.0)} if alive else {}).processes[0]
    assert found.state is (State.RUNNING if alive else State.UNKNOWN)
    assert found.failed is not alive


LATE = Track(
    state=State.RUNNING,
    started=1.0,
    not_ready_in_time=True,
    never_ready=True,
    reason="not ready within 5 s",
)


@pytest.mark.parametrize(
    "track", [RUNNING, LATE, dataclasses.replace(LATE, state=State.FAILED), WAITING]
)
def test_late_is_who_runs_and_was_not_ready_in_time(track: Track) -> None:
    assert look(track).processes[0].not_ready_in_time is (track is LATE)


def test_looking_changes_nothing() -> None:
    track = dataclasses.replace(RUNNING)
    look(track, orphans={})
    assert track == RUNNING


@pytest.mark.parametrize("track", [RUNNING, WAITING, BACKING_OFF])
def test_what_runs_on_another_host_is_unknown_here(track: Track) -> None:
    found = look(track, other_host="node-7")
    process = found.processes[0]
    assert found.note == "launched on node-7; its processes cannot be observed from this host"
    assert (process.state, process.ready, process.pid) == (State.UNKNOWN, False, None)
    assert process.reason == "launched on node-7; its processes cannot be observed from this host"
    assert found.processes[1].state is State.SUCCEEDED


def test_what_ended_on_another_host_has_ended() -> None:
    found = look(FAILED, other_host="node-7").processes[0]
    assert (found.state, found.exit_code, found.reason) == (State.FAILED, 3, "r")
