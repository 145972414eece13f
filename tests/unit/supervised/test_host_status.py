"""The status of an experiment with a running supervisor, without one, and on another host."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from symphony import ExperimentStatus, State
from symphony.plan.state import RunState, Track
from symphony.status import ReasonCode
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import encode
from symphony.supervised.record.status import (
    REBOOTED,
    SUPERVISOR_KILLED,
    StatusReader,
    compute_status,
)

MANIFEST = {
    "experiment": "e",
    "backend": "local",
    "processes": [
        ProcessSpec(name="p", group="g", argv=("true",), cwd="/").to_dict(),
        ProcessSpec(name="q", argv=("true",), cwd="/").to_dict(),
    ],
}
RUNNING = Track(state=State.RUNNING, started=1.0, pid=10, birth=5.0, ready=True, was_ready=True)
WAITING = Track(reason="waiting for q to be ready", reason_code=ReasonCode.WAITING)
BACKING_OFF = Track(
    state=State.PENDING,
    started=1.0,
    ended=2.0,
    exit_code=3,
    reason="restarts in 10 s",
    reason_code=ReasonCode.BACKING_OFF,
    restarts=2,
)
SUCCEEDED = Track(
    state=State.SUCCEEDED, started=1.0, ended=2.0, exit_code=0, reason_code=ReasonCode.EXITED
)
FAILED = dataclasses.replace(SUCCEEDED, state=State.FAILED, exit_code=3, reason="r")
NOT_READY = Track(
    state=State.RUNNING,
    started=1.0,
    not_ready_in_time=True,
    never_ready=True,
    reason="not ready within 5 s",
    reason_code=ReasonCode.NOT_READY,
)
COPIED_FIELDS = (
    "state", "ready", "exit_code", "reason", "reason_code", "restarts", "started", "ended",
    "stopped",
)  # fmt: skip


def status(track: Track, **options: Any) -> ExperimentStatus:
    run = RunState(tracks={"p": track, "q": SUCCEEDED}, created=7.0)
    return compute_status(MANIFEST, run, **options)


@pytest.mark.parametrize("track", [RUNNING, WAITING, BACKING_OFF, SUCCEEDED, FAILED, NOT_READY])
def test_status_shows_the_events(track: Track) -> None:
    found = status(track)
    process = found.processes[0]
    assert (found.name, found.backend, found.created, found.note) == ("e", "local", 7.0, "")
    assert process.path == "g/p"
    for name in COPIED_FIELDS:
        assert getattr(process, name) == getattr(track, name)
    assert process.pid == (10 if track is RUNNING else None)
    assert process.not_ready_in_time is (track is NOT_READY)


@pytest.mark.parametrize(
    ("is_running", "finished", "state"),
    [(True, False, "is running"), (False, False, "has exited"), (True, True, "has exited")],
)
def test_the_reason_names_a_program_in_the_background(
    is_running: bool, finished: bool, state: str
) -> None:
    track = dataclasses.replace(
        SUCCEEDED, reason="final", background="server (pid 7)", in_background=is_running
    )
    run = RunState(tracks={"p": track, "q": SUCCEEDED}, created=7.0, finished=finished)
    reason = compute_status(MANIFEST, run).processes[0].reason
    assert reason == (
        f"final; went to the background: server (pid 7) {state}; let it run in the foreground"
    )


@pytest.mark.parametrize(
    ("app", "together_since", "kill_times"),
    [
        (RUNNING, None, [None, 30.0]),
        (dataclasses.replace(SUCCEEDED, ended=12.0), None, [42.0, None]),
        (RUNNING, 15.0, [45.0, 30.0]),
        (dataclasses.replace(SUCCEEDED, ended=12.0), 15.0, [42.0, None]),
        (dataclasses.replace(SUCCEEDED, ended=18.0), 15.0, [45.0, None]),
    ],
)
def test_a_process_waits_for_its_wave_in_a_stop(
    app: Track, together_since: float | None, kill_times: list[float | None]
) -> None:
    """The processes that start last are stopped first, until a stop does not follow the order."""
    specs = [
        ProcessSpec(name="db", argv=("true",), cwd="/", grace=30.0),
        ProcessSpec(name="app", argv=("true",), cwd="/", grace=20.0, starts_after={"db": "ready"}),
    ]
    manifest = {**MANIFEST, "processes": [spec.to_dict() for spec in specs]}
    run = RunState(
        tracks={"db": RUNNING, "app": app},
        created=7.0,
        stopping_since=10.0,
        together_since=together_since,
    )
    found = compute_status(manifest, run)
    assert [process.kill_at for process in found] == kill_times
    assert found.processes[0].displayed_state == "stopping"


def test_only_a_running_process_is_not_ready_in_time() -> None:
    track = dataclasses.replace(NOT_READY, state=State.FAILED)
    assert not status(track).processes[0].not_ready_in_time


WILL_NOT_START = (State.UNKNOWN, f"will not start: {SUPERVISOR_KILLED}", ReasonCode.NEVER_STARTED)
LOST = (State.UNKNOWN, f"exit status unknown: {SUPERVISOR_KILLED}", ReasonCode.LOST)
UNSUPERVISED = (State.RUNNING, SUPERVISOR_KILLED, ReasonCode.SUPERVISOR_KILLED)


@pytest.mark.parametrize(
    ("track", "is_alive", "expected"),
    [
        (RUNNING, True, UNSUPERVISED),
        (RUNNING, False, LOST),
        (WAITING, False, WILL_NOT_START),
        # The supervisor was killed between the start and the record of it.
        (WAITING, True, UNSUPERVISED),
        (BACKING_OFF, False, WILL_NOT_START),
        (BACKING_OFF, True, UNSUPERVISED),
        (SUCCEEDED, False, (State.SUCCEEDED, "", ReasonCode.EXITED)),
        (FAILED, False, (State.FAILED, "r", ReasonCode.EXITED)),
    ],
)
def test_status_after_the_supervisor_was_killed(
    track: Track, is_alive: bool, expected: tuple[State, str, ReasonCode]
) -> None:
    before = dataclasses.replace(track)
    found = status(track, orphans={"p": ProcessId(10, 5.0)} if is_alive else {})
    assert found.note.startswith(f"{SUPERVISOR_KILLED}; delete the experiment")
    process = found.processes[0]
    assert (process.state, process.reason, process.reason_code) == expected
    assert process.pid == (10 if is_alive else None)
    assert process.ready == (is_alive and track.ready)
    assert process.not_ready_in_time == (process.state is State.RUNNING and not track.ready)
    assert found.processes[1].state is State.SUCCEEDED
    assert track == before, "the state of the run is not changed"


@pytest.mark.parametrize("track", [RUNNING, WAITING, SUCCEEDED])
def test_run_is_over_after_a_reboot(track: Track) -> None:
    found = status(track, orphans={}, is_rebooted=True)
    assert found.ended
    assert found.note == REBOOTED
    is_unknown = track is not SUCCEEDED
    assert (found.processes[0].state is State.UNKNOWN) is is_unknown
    assert found.processes[0].reason.endswith(REBOOTED) is is_unknown


@pytest.mark.parametrize("track", [RUNNING, WAITING, BACKING_OFF])
def test_process_of_another_host_is_unknown(track: Track) -> None:
    found = status(track, other_host="node-7")
    process = found.processes[0]
    assert found.note == ("launched on node-7; its processes cannot be observed from this host")
    assert (process.state, process.ready, process.pid) == (State.UNKNOWN, False, None)
    assert (process.reason, process.reason_code) == (found.note, ReasonCode.LOST)


def test_recorded_exit_on_another_host_is_kept() -> None:
    found = status(FAILED, other_host="node-7").processes[0]
    assert (found.state, found.exit_code, found.reason) == (State.FAILED, 3, "r")


def test_notes_follow_the_note_about_the_supervisor() -> None:
    assert status(RUNNING, notes=["", "one", "two"]).note == "one; two"
    assert status(RUNNING, notes=["one"], orphans={}).note.startswith(f"{SUPERVISOR_KILLED}; ")
    assert status(RUNNING, notes=["one"], orphans={}).note.endswith("; one")


@pytest.mark.parametrize(
    ("blocks", "available", "is_full"), [(100, 0, True), (100, 1, False), (0, 0, False)]
)
def test_full_disk_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, available: int, is_full: bool
) -> None:
    run = RunDirectory(tmp_path)
    complete = {**MANIFEST, "run_id": "0", "env": {}, "services": {}, "exposed": []}
    run.manifest.write_text(json.dumps(complete))
    run.events.write_text('{"event":"launched","at":1.0}\n')
    disk = SimpleNamespace(f_blocks=blocks, f_bfree=available, f_bavail=available, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    note = f"no space is left on the disk of {tmp_path}, so output is lost"
    assert StatusReader(run).read().note.endswith(note) is is_full
    ended = [{"event": "never", "at": 1.0, "process": name, "reason": "r"} for name in ("p", "q")]
    events = [{"event": "launched", "at": 1.0}, *ended, {"event": "finished", "at": 1.0}]
    run.events.write_bytes(b"".join(encode(event) for event in events))
    assert StatusReader(run).read().note == ""
