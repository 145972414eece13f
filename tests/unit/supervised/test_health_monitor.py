"""Repeating a health test, with a loop whose time the test determines."""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
from collections.abc import Callable

import pytest

from symphony.supervised.supervisor.execution.health import (
    RETURN_MARGIN_SECONDS,
    HealthMonitor,
)
from symphony.supervised.supervisor.execution.probe_thread import NOT_FINISHED
from symphony.supervised.supervisor.execution.probes import READY, Probe, ProbeNotRun

EVERY, TIMEOUT = 10, 5


class FakeLoop:
    """Calls timers when the test says so, and posted callbacks in the thread of the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._posted: queue.Queue[Callable[[], None]] = queue.Queue()

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self.now + seconds, next(self._numbers), callback))

    def post(self, callback: Callable[[], None]) -> None:
        self._posted.put(callback)

    def run_posted(self) -> None:
        self._posted.get(timeout=20)()

    def run_timers(self, until: float) -> None:
        while self._timers and self._timers[0][0] <= until:
            self.now, _, callback = heapq.heappop(self._timers)
            callback()
        self.now = until


class Monitored:
    """A monitor whose tests give ``answers``. A test without an answer does not return."""

    def __init__(self, answers: list[str | Exception]) -> None:
        self.loop = FakeLoop()
        self.answers = answers
        self.returns = threading.Event()
        self.starts: list[float] = []
        self.results: list[tuple[int, str]] = []
        self.is_active = True
        self.is_closed = False
        monitor = HealthMonitor(
            self.loop,  # type: ignore[arg-type]
            Probe(self._test, lambda: "hint", self._close),
            every=EVERY,
            timeout=TIMEOUT,
            is_active=lambda: self.is_active,
            on_result=lambda failures, result: self.results.append((failures, result)),
        )
        monitor.start()

    def _test(self, timeout: float) -> str:
        assert timeout == TIMEOUT
        self.starts.append(self.loop.now)
        if not self.answers:
            self.returns.wait(20)
            return "late"
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _close(self) -> None:
        self.is_closed = True


def test_failed_tests_in_a_row_are_counted() -> None:
    monitored = Monitored(["refused", "refused", READY, READY, "refused"])
    for number in range(1, 6):
        monitored.loop.run_timers(EVERY * number)
        monitored.loop.run_posted()
    assert monitored.starts == [10, 20, 30, 40, 50], "the first test is made after `every`, too"
    refused = "refused (hint)"
    assert monitored.results == [(1, refused), (2, refused), (0, READY), (1, refused)]


@pytest.mark.parametrize("problem", [ProbeNotRun("no agent"), RuntimeError("a fault")])
def test_test_that_could_not_be_run_is_not_the_fault_of_the_process(problem: Exception) -> None:
    monitored = Monitored(["refused", problem, "refused"])
    for number in range(1, 4):
        monitored.loop.run_timers(EVERY * number)
        monitored.loop.run_posted()
    assert [failures for failures, _ in monitored.results] == [1, 2]


def test_test_without_a_thread_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monitored = Monitored(["refused"])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        monitored.loop.run_timers(EVERY)
    assert monitored.results == []
    monitored.loop.run_timers(2 * EVERY)
    monitored.loop.run_posted()
    assert monitored.results == [(1, "refused (hint)")]


def test_test_that_does_not_return_has_failed_and_is_not_repeated_beside_itself() -> None:
    monitored = Monitored([])
    lasts = TIMEOUT + RETURN_MARGIN_SECONDS
    monitored.loop.run_timers(EVERY + lasts - 1)
    assert monitored.results == []
    monitored.loop.run_timers(2 * (EVERY + lasts))
    assert monitored.results == [(1, NOT_FINISHED), (2, NOT_FINISHED)]
    assert monitored.starts == [10]
    # The next test is made when the thread has returned, whose result is not used any more.
    monitored.returns.set()
    monitored.loop.run_posted()
    monitored.answers.append(READY)
    monitored.loop.run_timers(2 * (EVERY + lasts) + EVERY)
    monitored.loop.run_posted()
    assert monitored.results[2:] == [(0, READY)]


def test_process_that_is_being_stopped_is_not_tested_any_more() -> None:
    monitored = Monitored(["refused"])
    monitored.loop.run_timers(EVERY)
    monitored.is_active = False
    monitored.loop.run_posted()
    assert (monitored.results, monitored.is_closed) == ([], True)
    monitored.loop.run_timers(10 * EVERY)
    assert monitored.starts == [10]
