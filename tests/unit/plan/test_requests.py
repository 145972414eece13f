"""Which requests to a running experiment are accepted, and the events that they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from symphony.plan.decide import decide
from symphony.plan.observation import Observation, Seen
from symphony.plan.policies import Ending
from symphony.plan.requests import (
    Refused,
    accept,
    check_change,
    check_signal,
    continue_elsewhere,
    finish,
    is_unit_startable,
    stop_all,
)
from symphony.plan.restart_policy import Restart
from symphony.plan.state import RunState, Track, apply, fold
from symphony.plan.wish import ProcessWish, Wish
from symphony.status import ReasonCode, State

WISH = Wish(
    [
        ProcessWish(name="a"),
        ProcessWish(name="b", starts_after={"a": "succeeded"}),
        ProcessWish(name="r-0", gang="r"),
        ProcessWish(name="r-1", gang="r"),
    ]
)


def event(kind: str, process: str | None = None, **details: Any) -> dict[str, Any]:
    of_process = {} if process is None else {"process": process}
    return {"event": kind, "at": 1.0, **of_process, **details}


def started(name: str) -> dict[str, Any]:
    return event("started", name, pid=7, birth=1.0, ready=True)


def exited(name: str, code: int = 0, **details: Any) -> dict[str, Any]:
    return event("exited", name, code=code, **details)


def requested(kind: str, *names: str, number: int = 1) -> dict[str, Any]:
    return event("requested", number=number, request=kind, names=list(names), grace=None)


RUNNING = [event("launched"), *map(started, ("a", "r-0", "r-1"))]
RESTARTING = event("restarting", reason="r", restarts_in=1.0)


def state(*events: Mapping[str, Any]) -> RunState:
    return fold(WISH.processes, [*RUNNING, *events])


@pytest.mark.parametrize(("kind", "grace"), [("stop", 2.0), ("start", None), ("restart", None)])
def test_request_is_for_whole_units(kind: str, grace: float | None) -> None:
    accepted = accept(WISH, state(), kind, ["r-1", "a", "a"], grace, 9.0)
    assert accepted == (
        1,
        (
            {
                "event": "requested",
                "at": 9.0,
                "number": 1,
                "request": kind,
                "names": ["r-0", "r-1", "a"],
                "grace": grace,
            },
        ),
        {},
    )


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([event("stopping")], "the experiment is being stopped"),
        ([event("finished")], "the experiment is being stopped"),
        (
            [RESTARTING],
            "the experiment is being restarted after a failure; try again when it runs",
        ),
    ],
)
@pytest.mark.parametrize(
    "request_of",
    [
        lambda now: accept(WISH, now, "stop", ["a"], None, 2.0),
        lambda now: accept(WISH, now, "start", ["a"], None, 2.0),
        lambda now: check_signal(WISH, now, ["a"]),
        lambda now: check_change(now, 1, ["a"]),
        lambda now: finish(now, 2.0),
    ],
)
def test_requests_are_refused_while_the_experiment_is_stopped(
    events: list[dict[str, Any]], message: str, request_of: Callable[[RunState], object]
) -> None:
    with pytest.raises(Refused) as refused:
        request_of(state(*events))
    assert str(refused.value) == message


@pytest.mark.parametrize("kind", ["start", "restart"])
@pytest.mark.parametrize("earlier", ["stop", "start", "restart"])
def test_process_that_another_request_changes_is_busy(kind: str, earlier: str) -> None:
    now = state(requested(earlier, "a"))
    with pytest.raises(Refused, match="another request is stopping or restarting a; try again"):
        accept(WISH, now, kind, ["a", "r-0"], None, 2.0)
    assert accept(WISH, now, kind, ["r-0"], None, 2.0).number == 2


def test_stop_prevents_what_other_requests_have_not_done() -> None:
    ended = exited("a", 1)
    now = state(
        ended,
        requested("start", "a", "r-0", "r-1", number=1),
        requested("restart", "r-0", "r-1", number=2),
        requested("stop", "a", number=3),
    )
    # The earlier stop has taken the process from the first request.
    assert accept(WISH, now, "stop", ["a"], None, 2.0).prevented == {}
    assert accept(WISH, now, "stop", ["a", "r-0"], None, 2.0).prevented == {
        2: "another request stopped 'r-1'"
    }
    waiting = state(ended, requested("start", "a"))
    assert accept(WISH, waiting, "stop", ["a"], None, 2.0).prevented == {
        1: "another request stopped 'a'"
    }


def test_unknown_processes_are_refused() -> None:
    with pytest.raises(Refused, match="there is no process 'r-2'; did you mean 'r-1' or 'r-0'"):
        accept(WISH, state(), "stop", ["a", "r-2"], None, 2.0)


def test_signal_is_for_running_processes() -> None:
    assert check_signal(WISH, state(), ["a", "r-0", "a"]) == ["a", "r-0"]
    with pytest.raises(Refused, match="these processes are not running: a, b"):
        check_signal(WISH, state(exited("a")), ["a", "b", "r-0"])


RUNS, ENDED = Track(state=State.RUNNING), Track(state=State.FAILED)
WAITS, BACKS_OFF = Track(), Track(next_start=9.0)


@pytest.mark.parametrize(
    ("processes", "is_stopping", "is_starting", "is_startable"),
    [
        ([ENDED, ENDED], False, False, True),
        ([BACKS_OFF, WAITS], False, False, True),
        # It starts by itself.
        ([WAITS, WAITS], False, False, False),
        ([RUNS, ENDED], False, False, False),
        # It starts when it has exited.
        ([RUNS, ENDED], True, False, True),
        # The command that has requested the start can have been killed.
        ([WAITS], False, True, True),
    ],
)
def test_units_that_a_request_can_start(
    processes: list[Track], is_stopping: bool, is_starting: bool, is_startable: bool
) -> None:
    found = is_unit_startable(processes, is_stopping=is_stopping, is_starting=is_starting)
    assert found is is_startable


CHANGED = event("changed", revision=1, added=[], removed=["a"], restarted=[])


@pytest.mark.parametrize(
    ("events", "revision", "names", "message"),
    [
        ([], 2, [], "another program has changed the experiment"),
        ([CHANGED], 2, [], "another program is changing the experiment"),
        ([requested("stop", "a")], 1, ["a"], "another request is stopping or restarting a"),
    ],
)
def test_change_is_refused(
    events: list[dict[str, Any]], revision: int, names: list[str], message: str
) -> None:
    check_change(state(), 1, ["a", "b"])
    with pytest.raises(Refused, match=message):
        check_change(state(*events), revision, names)


def test_stop_of_the_whole_experiment() -> None:
    now = state()
    assert stop_all(now, 2.0) == ({"event": "stopping", "at": 2.0},)
    apply(now, stop_all(now, 2.0)[0])
    assert stop_all(now, 3.0) == ()
    together = stop_all(now, 3.0, is_together=True)
    assert together == ({"event": "stopping", "at": 3.0, "together": True},)
    apply(now, together[0])
    assert stop_all(now, 4.0, is_together=True) == ()


def test_experiment_finishes_on_request_if_it_waits_for_a_start() -> None:
    with pytest.raises(Refused, match="processes of the experiment are running"):
        finish(state(), 2.0)
    names = ("a", "r-0", "r-1")
    now = state(
        *(exited(name, 143, stopped=True) for name in names),
        event("never", "b", reason="r", stopped=True),
    )
    assert finish(now, 2.0) == ({"event": "stopping", "at": 2.0},)


# --- experiments that the system stops and starts again ---

REQUEUED = Ending(
    action="restart",
    reason="the experiment restarts: job 7 was requeued",
    reason_code=ReasonCode.EXPERIMENT_RESTARTS,
    cause="job 7 was requeued",
    restart=Restart(delay=0.0, in_row=0),
)
EVICTED = Ending(action="eviction", reason="job 7 ended", reason_code=ReasonCode.EVICTED)


def kinds(events: tuple[Mapping[str, Any], ...]) -> list[str]:
    return [" ".join(filter(None, (item["event"], item.get("process")))) for item in events]


def test_experiment_continues_elsewhere() -> None:
    now = state(requested("restart", "a"))
    events = continue_elsewhere(WISH, now, REQUEUED, 5.0)
    assert kinds(events) == [
        "restarting",
        "exited a",
        "exited r-0",
        "exited r-1",
        "request-done",
        "restarted",
    ]
    for item in events:
        apply(now, item)
    assert (now.restarts, now.evictions, now.requests) == (1, 1, {})
    decision = decide(WISH, now, Observation({}, strays=None), 5.0)
    assert [str(action) for action in decision.actions] == ["start a", "start r-0", "start r-1"]


def test_experiment_that_the_system_ended_has_failed() -> None:
    now = state()
    for item in continue_elsewhere(WISH, now, EVICTED, 5.0):
        apply(now, item)
    assert now.tracks["a"].state is State.FAILED
    decision = decide(WISH, now, Observation({"a": Seen()}), 5.0)
    assert kinds(decision.events) == ["never b", "finished"]
