"""Notes about processes that do not start."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from symphony.commandline.output import pending_reasons
from symphony.commandline.output.pending_reasons import (
    PROBLEM_DELAY_SECONDS,
    USUAL_DELAY_SECONDS,
    PendingReasons,
    reporting_pending_processes,
    reporting_progress,
)
from symphony.commandline.output.terminal import ProgressLine
from symphony.errors import NotFound
from symphony.status import ExperimentStatus, ProcessStatus, ReasonCode, State
from tests.cli.conftest import TIMEOUT, Program

# The program with a short delay before pending processes are reported.
SCRIPT = """
from symphony.__main__ import main
from symphony.commandline.output import pending_reasons

pending_reasons.USUAL_DELAY_SECONDS = 0.2
raise SystemExit(main())
"""
FULL = "Unschedulable: 0/3 nodes fit: 3 insufficient cpu"


def status(
    *reasons: str, code: ReasonCode | None = ReasonCode.UNSCHEDULABLE, **settings: Any
) -> ExperimentStatus:
    processes = [
        ProcessStatus(name=f"p{number}", reason=reason, reason_code=code, **settings)
        for number, reason in enumerate(reasons)
    ]
    return ExperimentStatus(name="rl", backend="kube", processes=tuple(processes))


class TestPendingReasons:
    def test_a_reason_is_reported_once(self) -> None:
        reasons = PendingReasons()
        reasons.update(status(FULL), 0.0)
        assert reasons.due_lines(1.0) == []
        assert reasons.next_time() == PROBLEM_DELAY_SECONDS
        assert reasons.due_lines(PROBLEM_DELAY_SECONDS) == [f"p0: pending: {FULL}"]
        reasons.update(status(FULL), 50.0)
        assert reasons.due_lines(100.0) == []
        assert reasons.next_time() is None

    def test_alternating_reasons_are_reported_once_each(self) -> None:
        reasons = PendingReasons()
        lines = []
        for number, reason in enumerate(["ErrImagePull: a", "ImagePullBackOff: a"] * 2):
            reasons.update(status(reason), 20.0 * number)
            lines += reasons.due_lines(20.0 * number + PROBLEM_DELAY_SECONDS)
        assert lines == ["p0: pending: ErrImagePull: a", "p0: pending: ImagePullBackOff: a"]

    @pytest.mark.parametrize(
        ("reason", "code", "line"),
        [
            ("", None, "p0: pending"),
            ("being scheduled", ReasonCode.SCHEDULING, "p0: pending: being scheduled"),
            ("pulling image x", ReasonCode.PULLING_IMAGE, "p0: pending: pulling image x"),
            ("ContainerCreating", ReasonCode.CREATING, "p0: pending: ContainerCreating"),
            ("waiting for p", ReasonCode.WAITING, "p0: pending: waiting for p"),
        ],
    )
    def test_usual_reasons_have_a_longer_delay(
        self, reason: str, code: ReasonCode | None, line: str
    ) -> None:
        reasons = PendingReasons()
        reasons.update(status(reason, code=code), 0.0)
        assert reasons.due_lines(USUAL_DELAY_SECONDS - 0.1) == []
        assert reasons.due_lines(USUAL_DELAY_SECONDS) == [line]

    def test_the_delay_begins_when_the_reason_changes(self) -> None:
        reasons = PendingReasons()
        reasons.update(status("ContainerCreating", code=ReasonCode.CREATING), 0.0)
        reasons.update(status(FULL), 9.0)
        assert reasons.due_lines(10.5) == []
        assert reasons.due_lines(11.0) == [f"p0: pending: {FULL}"]

    def test_processes_with_the_same_reason_share_a_line(self) -> None:
        reasons = PendingReasons()
        reasons.update(status(*[FULL] * 64, "ImagePullBackOff: a"), 0.0)
        assert reasons.due_lines(PROBLEM_DELAY_SECONDS) == [
            f"p0, p1, p2 and 61 more: pending: {FULL}",
            "p64: pending: ImagePullBackOff: a",
        ]

    def test_processes_with_the_same_reason_one_after_another_share_a_few_lines(self) -> None:
        reasons = PendingReasons()
        started = status(*["ContainerCreating"] * 300, code=ReasonCode.CREATING).processes
        lines = []
        for second in range(400):
            shown = ExperimentStatus(name="rl", backend="kube", processes=started[: second + 1])
            reasons.update(shown, float(second))
            lines += reasons.due_lines(float(second))
        assert len(lines) == 6
        assert lines[:2] == [
            "p0: pending: ContainerCreating",
            "p1, p2, p3 and 7 more: pending: ContainerCreating",
        ]
        assert reasons.next_time() is None

    def test_a_line_about_one_reason_does_not_delay_another(self) -> None:
        reasons = PendingReasons()
        reasons.update(status("ContainerCreating", code=ReasonCode.CREATING), 0.0)
        assert len(reasons.due_lines(USUAL_DELAY_SECONDS)) == 1
        reasons.update(status(FULL), USUAL_DELAY_SECONDS)
        assert reasons.next_time() == USUAL_DELAY_SECONDS + PROBLEM_DELAY_SECONDS

    @pytest.mark.parametrize(
        "settings",
        [
            {"state": State.RUNNING},
            {"state": State.FAILED},
            {"started": 1.0},
            {"code": ReasonCode.DELETING},
        ],
        ids=str,
    )
    def test_only_processes_that_have_not_started_are_reported(
        self, settings: dict[str, Any]
    ) -> None:
        reasons = PendingReasons()
        reasons.update(status(FULL), 0.0)
        reasons.update(status("a reason", **settings), 1.0)
        assert reasons.due_lines(100.0) == []
        assert reasons.next_time() is None


class FakeCluster:
    """A cluster whose `wait` reports the given statuses and then raises `NotFound`."""

    def __init__(self, *statuses: ExperimentStatus) -> None:
        self.statuses = statuses
        self.calls: list[tuple[str, str]] = []
        self.finished = threading.Event()

    def wait(self, name: str, *, until: str, on_change: Any) -> None:
        self.calls.append((name, until))
        for current in self.statuses:
            on_change(current)
        self.finished.wait(TIMEOUT)
        raise NotFound("gone")


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that is set after the first note. Notes are printed almost at once."""
    event = threading.Event()
    print_note = pending_reasons.print_note

    def print_and_set(text: str) -> None:
        print_note(text)
        event.set()

    monkeypatch.setattr(pending_reasons, "PROBLEM_DELAY_SECONDS", 0.05)
    monkeypatch.setattr(pending_reasons, "print_note", print_and_set)
    return event


def test_pending_processes_are_reported_while_a_block_runs(
    reported: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster: Any = FakeCluster(status(""), status(FULL))
    with reporting_pending_processes(cluster, "rl"):
        assert reported.wait(TIMEOUT)
    cluster.finished.set()
    assert cluster.calls == [("rl", "started")]
    assert capsys.readouterr() == ("", f"p0: pending: {FULL}\n")


def test_a_note_replaces_the_line_with_the_progress(
    reported: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []

    class RecordingLine(ProgressLine):
        def update(self, text: str) -> None:
            calls.append(text)

        def clear(self) -> None:
            calls.append("cleared")

    with reporting_progress(RecordingLine(None), lambda current: current.name) as update:
        update(status(FULL))
        assert reported.wait(TIMEOUT)
    assert calls == ["rl", "cleared"]
    assert capsys.readouterr() == ("", f"p0: pending: {FULL}\n")


def test_wait_and_launch_report_pending_processes(program: Program) -> None:
    """Only the waiting process is reported, and standard output contains only the logs."""
    gate = program.directory / "gate"
    late = {"cmd": "echo late", "starts_after": {"gate": "succeeded"}}
    processes = {"gate": f"until [ -e {gate} ]; do sleep 0.05; done", "late": late}
    program.launch("rl", processes)
    script = program.directory / "impatient.py"
    script.write_text(SCRIPT)
    follow = ("launch", program.file("rl-2", processes), "--follow", "--json")
    with (
        program.popen("wait", "rl", script=script, stdout=-1, stderr=-1) as waiter,
        program.popen(*follow, script=script, stdout=-1, stderr=-1) as follower,
    ):
        assert waiter.stderr is not None
        assert follower.stderr is not None
        assert follower.stderr.readline() == "launched rl-2 on local: 2 processes\n"
        for stderr in (waiter.stderr, follower.stderr):
            assert stderr.readline() == "late: pending: waiting for gate to succeed\n"
        gate.touch()
        waited = waiter.communicate(timeout=TIMEOUT)
        followed = follower.communicate(timeout=TIMEOUT)
    assert waited == ("rl succeeded: 2 succeeded\n", "")
    line, result = [json.loads(line) for line in followed[0].splitlines()]
    assert line == {"process": "late", "text": "late"}
    assert result["exit_code"] == 0
    assert "pending" not in followed[1]
