"""Why processes do not start: what is told, when, and what is not."""

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
)
from symphony.commandline.output.terminal import ProgressLine
from symphony.errors import NotFound
from symphony.status import ExperimentStatus, ProcessStatus, State
from tests.cli.conftest import TIMEOUT, Program

FULL = "Unschedulable: 0/3 nodes fit: 3 insufficient cpu"


def status(*reasons: str, **settings: Any) -> ExperimentStatus:
    processes = (
        ProcessStatus(name=f"p{n}", reason=reason, **settings) for n, reason in enumerate(reasons)
    )
    return ExperimentStatus(name="rl", backend="kube", processes=tuple(processes))


class TestReasons:
    def test_one_that_lasts_is_told_once(self) -> None:
        reasons = PendingReasons()
        reasons.see(status(FULL), 0.0)
        assert (reasons.due(1.0), reasons.next()) == ([], PROBLEM_DELAY_SECONDS)
        assert reasons.due(PROBLEM_DELAY_SECONDS) == [f"p0: pending: {FULL}"]
        reasons.see(status(FULL), 50.0)
        assert (reasons.due(100.0), reasons.next()) == ([], None)

    def test_one_that_changes_is_told_again_and_never_twice(self) -> None:
        reasons = PendingReasons()
        told = []
        for now, reason in enumerate(["ErrImagePull: a", "ImagePullBackOff: a", "ErrImagePull: a"]):
            reasons.see(status(reason), 20.0 * now)
            told += reasons.due(20.0 * now + PROBLEM_DELAY_SECONDS)
        assert told == ["p0: pending: ErrImagePull: a", "p0: pending: ImagePullBackOff: a"]

    @pytest.mark.parametrize(
        "reason", ["", "being scheduled", "pulling image x", "ContainerCreating", "waiting for p"]
    )
    def test_what_every_start_goes_through_has_more_time(self, reason: str) -> None:
        reasons = PendingReasons()
        reasons.see(status(reason), 0.0)
        assert reasons.due(USUAL_DELAY_SECONDS - 0.1) == []
        assert reasons.due(USUAL_DELAY_SECONDS) == [
            f"p0: pending: {reason}" if reason else "p0: pending"
        ]

    def test_each_reason_is_counted_from_its_beginning(self) -> None:
        reasons = PendingReasons()
        reasons.see(status("ContainerCreating"), 0.0)
        reasons.see(status(FULL), 9.0)
        assert reasons.due(10.5) == []
        assert reasons.due(11.0) == [f"p0: pending: {FULL}"]

    def test_processes_of_one_reason_share_a_line(self) -> None:
        reasons = PendingReasons()
        reasons.see(status(*[FULL] * 64, "ImagePullBackOff: a"), 0.0)
        assert reasons.due(PROBLEM_DELAY_SECONDS) == [
            f"p0, p1, p2, p3 and 60 more: pending: {FULL}",
            "p64: pending: ImagePullBackOff: a",
        ]

    @pytest.mark.parametrize(
        "settings", [{"state": State.RUNNING}, {"state": State.FAILED}, {"started": 1.0}], ids=str
    )
    def test_who_has_started_has_nothing_to_tell(self, settings: dict[str, Any]) -> None:
        reasons = PendingReasons()
        reasons.see(status("restarts in 10 s", **settings), 0.0)
        assert (reasons.due(100.0), reasons.next()) == ([], None)

    def test_nor_has_who_is_deleted_or_starts_in_time(self) -> None:
        reasons = PendingReasons()
        reasons.see(status("its Pod is being deleted", FULL), 0.0)
        reasons.see(status("its Pod is being deleted", "", state=State.RUNNING), 1.0)
        assert (reasons.due(100.0), reasons.next()) == ([], None)


class FakeCluster:
    """One whose `wait` shows what the test says, and then what it raises."""

    def __init__(self, *shown: ExperimentStatus) -> None:
        self.shown = shown
        self.asked: list[tuple[str, str]] = []
        self.over = threading.Event()

    def wait(self, name: str, *, until: str, on_change: Any) -> None:
        self.asked.append((name, until))
        for now in self.shown:
            on_change(now)
        self.over.wait(TIMEOUT)
        raise NotFound("gone")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once something was told; it is told soon."""
    told, note = threading.Event(), pending_reasons.print_note
    monkeypatch.setattr(pending_reasons, "PROBLEM_DELAY_SECONDS", 0.05)
    monkeypatch.setattr(pending_reasons, "print_note", lambda text: (note(text), told.set()))
    return told


def test_it_is_told_while_something_else_is_done(
    said: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster: Any = FakeCluster(status(""), status(FULL))
    with reporting_pending_processes(cluster, "rl"):
        assert said.wait(TIMEOUT)
    cluster.over.set()
    assert cluster.asked == [("rl", "started")]
    assert capsys.readouterr() == ("", f"p0: pending: {FULL}\n")


def test_a_waiter_shows_how_it_goes_and_tells_it(
    said: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []

    class Shown(ProgressLine):
        def say(self, text: str) -> None:
            shown.append(text)

        def clear(self) -> None:
            shown.append("cleared")

    with pending_reasons.reporting_progress(Shown(None), lambda now: now.name) as see:
        see(status(FULL))
        assert said.wait(TIMEOUT)
    assert shown == ["rl", "cleared"]
    assert capsys.readouterr() == ("", f"p0: pending: {FULL}\n")


def test_who_waits_for_another_is_told_on_standard_error(program: Program) -> None:
    """For long, on a real run; `gate`, which starts at once, is not told of, and standard output has the logs alone."""
    gate = program.folder / "gate"
    late = {"cmd": "echo late", "starts_after": {"gate": "succeeded"}}
    processes = {"gate": f"until [ -e {gate} ]; do sleep 0.05; done", "late": late}
    program.launched("rl", processes)
    follow = ("launch", program.file("rl-2", processes), "--follow", "--json")
    with (
        program.popen("wait", "rl", stdout=-1, stderr=-1) as waiter,
        program.popen(*follow, stdout=-1, stderr=-1) as follower,
    ):
        assert waiter.stderr is not None
        assert follower.stderr is not None
        assert follower.stderr.readline() == "launched rl-2 on local: 2 processes\n"
        for said in (waiter.stderr, follower.stderr):
            assert said.readline() == "late: pending: waiting for gate to succeed\n"
        gate.touch()
        waited, followed = (
            waiter.communicate(timeout=TIMEOUT),
            follower.communicate(timeout=TIMEOUT),
        )
    assert waited == ("rl succeeded: 2 succeeded\n", "")
    line, status = [json.loads(line) for line in followed[0].splitlines()]
    assert (line, status["exit_code"], followed[1]) == ({"process": "late", "text": "late"}, 0, "")
