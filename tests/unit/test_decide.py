"""The decisions about a running experiment: facts in, events and actions out.

Each test is a story. The lines of a step are the recorded events, and then the actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from symphony.plan.actions import (
    Answer,
    Clear,
    Kill,
    Release,
    Remove,
    Reserve,
    Start,
    Stop,
    Sweep,
)
from symphony.plan.decide import Decision, decide
from symphony.plan.observation import ABSENT, Observation, Seen
from symphony.plan.policies import Policies
from symphony.plan.restart_policy import RestartPolicy
from symphony.plan.state import apply, fold
from symphony.plan.wish import ProcessWish, Wish

ALWAYS = RestartPolicy(policy="Always", backoff=10.0)
ON_FAILURE = RestartPolicy(policy="OnFailure", backoff=10.0)

# The details of events that the lines of a story show.
_SHOWN = ("code", "action", "restarts_in", "kill_at", "stopped", "number", "reason")


def process(name: str, **values: Any) -> ProcessWish:
    return ProcessWish(name=name, **values)


class Story:
    """An experiment whose actions take effect at once, unless a test says otherwise."""

    def __init__(
        self, *processes: ProcessWish, policies: Policies | None = None, **options: Any
    ) -> None:
        self.wish = Wish(processes, policies, **options)
        names = [*self.wish.processes, *self.wish.previous]
        self.state = fold(names, [{"event": "launched", "at": 0.0}])
        self.seen: dict[str, Seen] = {}
        self.facts: dict[str, Any] = {}
        self.now = 0.0
        self.pid = 100
        self.events: list[Mapping[str, Any]] = []
        # The executor does not carry out these actions.
        self.ignored: tuple[type, ...] = ()
        self.wake_at: float | None = None

    # --- what happens outside ---

    def at(self, now: float) -> Story:
        self.now = now
        return self

    def see(self, name: str, **facts: Any) -> Story:
        self.seen[name] = self.seen.get(name, ABSENT)._replace(**facts)
        return self

    def exits(self, name: str, code: int | None = 0, **facts: Any) -> Story:
        return self.see(name, running=False, exit_code=code, since=self.now, **facts)

    def request(self, kind: str, *names: str, grace: float | None = None) -> Story:
        number = self.state.request_count + 1
        self._record(
            {
                "event": "requested",
                "at": self.now,
                "number": number,
                "request": kind,
                "names": list(names),
                "grace": grace,
            }
        )
        return self

    def stop(self, **details: Any) -> Story:
        self._record({"event": "stopping", "at": self.now, **details})
        return self

    def _record(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)
        apply(self.state, event)

    # --- decisions ---

    def observation(self) -> Observation:
        return Observation(dict(self.seen), **self.facts)

    def decide(self) -> Decision:
        """Decide once, and check that the decision has no other effect and is not repeated."""
        before = self.state.copy()
        tracks = {name: track.copy() for name, track in self.state.tracks.items()}
        decision = decide(self.wish, self.state, self.observation(), self.now)
        assert self.state == before, "the state was changed"
        assert self.state.tracks == tracks, "the tracks were changed"
        for event in decision.events:
            self._record(event)
        again = decide(self.wish, self.state, self.observation(), self.now)
        assert again.events == ()
        if not self.state.finished:
            kept = [action for action in decision.actions if not isinstance(action, Answer)]
            assert list(again.actions) == kept
        self.wake_at = decision.wake_at
        return decision

    def lines(self) -> list[str]:
        """Decide and carry out the actions, until nothing happens. Return what has happened."""
        lines: list[str] = []
        for _ in range(50):
            decision = self.decide()
            actions = [action for action in decision.actions if type(action) not in self.ignored]
            lines += [shown(event) for event in decision.events]
            lines += [f"> {action}" for action in decision.actions]
            if not actions and not decision.events:
                return lines
            for action in actions:
                self._carry_out(action)
            if not actions and self.ignored:
                return lines
        raise RuntimeError("the decisions do not come to an end", lines[-10:])

    def _carry_out(self, action: Any) -> None:
        if isinstance(action, Start):
            self.pid += 1
            seen = self.seen.get(action.process, ABSENT)
            is_running = seen.running or seen.leftovers
            assert not is_running, f"{action.process} is running"
            self.seen[action.process] = Seen(
                attempt=action.attempt, running=True, pid=self.pid, birth=1.0, since=self.now
            )
            self.facts["strays"] = None
        elif isinstance(action, Stop):
            signaled_at = self.seen[action.process].signaled_at
            begin = self.now if signaled_at is None else signaled_at
            self.see(action.process, kill_at=action.kill_at, signaled_at=begin)
        elif isinstance(action, Kill):
            self.see(action.process, killed=True)
        elif isinstance(action, Clear):
            self.see(action.process, cleared=True)
        elif isinstance(action, Reserve):
            self.see(action.process, reserved=True)
        elif isinstance(action, Remove):
            del self.seen[action.process]
        elif isinstance(action, Release):
            self.facts["released"] = action.revision
        elif isinstance(action, Sweep):
            self.facts["strays"] = False


def shown(event: Mapping[str, Any]) -> str:
    words = [event["event"]]
    if "process" in event:
        words.append(event["process"])
    for key in _SHOWN:
        value = event.get(key)
        if value:
            words.append(f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}")
    return " ".join(words)


# --- starts ---


def test_processes_start_in_their_order() -> None:
    story = Story(
        process("db", has_test=True),
        process("app", starts_after={"db": "ready"}),
        process("web", starts_after={"app": "started", "db": "ready"}),
    )
    assert story.lines() == [
        "waiting app reason=waiting for db to be ready",
        "waiting web reason=waiting for app to start and db to be ready",
        "> start db",
        "started db",
    ]
    assert story.at(1).see("db", ready=True).lines() == [
        "ready db",
        "waiting web reason=waiting for app to start",
        "> start app (after db is ready)",
        "started app",
        "> start web (after app has started and db is ready)",
        "started web",
    ]


def test_one_shot_starts_others_when_it_has_succeeded() -> None:
    story = Story(process("migrate"), process("app", starts_after={"migrate": "succeeded"}))
    story.lines()
    assert story.at(2).exits("migrate").lines() == [
        "exited migrate",
        "> start app (after migrate has succeeded)",
        "started app",
    ]


def test_failed_one_shot_ends_the_experiment() -> None:
    story = Story(
        process("migrate"),
        process("app", starts_after={"migrate": "succeeded"}),
        process("web", starts_after={"app": "started"}),
    )
    story.lines()
    assert story.at(2).exits("migrate", 3).lines() == [
        "exited migrate code=3",
        "never app reason=never started: migrate failed",
        "never web reason=never started: app failed (never started: migrate failed)",
        "> stop the programs that belong to no process",
        "finished",
        "> finish",
    ]


def test_process_that_does_not_become_ready_in_time() -> None:
    story = Story(
        process("db", has_test=True, ready_timeout=5.0),
        process("app", starts_after={"db": "ready"}),
    )
    story.lines()
    assert story.wake_at == 5
    assert story.at(1).see("db", test_result="refused").lines() == [
        "tested db reason=not ready yet: refused"
    ]
    assert story.at(5).see("db", testing=True).lines() == []
    assert story.wake_at == 6, "the last test can still succeed"
    assert story.at(5.5).see("db", testing=False).lines() == [
        "not-ready db reason=not ready within 5 s: refused",
        "never app reason=never started: db was not ready within 5 s: refused",
    ]
    assert story.at(7).see("db", test_result="timeout").lines() == [
        "tested db reason=not ready within 5 s: timeout"
    ]
    assert story.at(8).see("db", ready=True).lines() == ["ready db"]


def test_test_that_does_not_return_is_not_awaited() -> None:
    story = Story(process("db", has_test=True, ready_timeout=5.0))
    story.lines()
    assert story.at(6).see("db", testing=True).lines() == [
        "not-ready db reason=not ready within 5 s: the last test has not finished"
    ]


def test_start_that_fails() -> None:
    story = Story(process("a", restart=ON_FAILURE), process("b"))
    story.ignored = (Start,)
    assert story.lines() == ["> start a", "> start b"]
    failed = {"attempt": 0, "failed": True, "since": 0.0}
    story.see("a", reason="no such program", **failed).see("b", reason="no such program", **failed)
    assert story.lines() == [
        "start-failed a reason=restarts now (no such program)",
        "never b reason=no such program",
        "> start a (again: no such program)",
    ]
    story.see("a", attempt=1, refused=True, failed=True, reason="the session is closed")
    assert story.lines() == [
        "never a reason=the session is closed",
        "finished",
        "> finish",
    ]


def test_start_in_progress_is_awaited() -> None:
    story = Story(process("a"))
    story.ignored = (Start,)
    story.lines()
    assert story.see("a", attempt=0, starting=True).lines() == []
    assert story.stop().lines() == [], "the process is not known yet"
    assert story.at(1).see("a", starting=False, running=True, pid=7, since=0.5).lines() == [
        "started a",
        "> stop a: requested",
    ]
    assert story.events[-1]["at"] == 0.5


# --- exits and restarts ---


def test_finished_experiment() -> None:
    story = Story(process("a"), process("b"))
    assert story.lines() == ["> start a", "> start b", "started a", "started b"]
    assert story.at(1).exits("b").lines() == ["exited b"]
    assert story.at(2).exits("a", 137).lines() == [
        "exited a code=137 reason=killed by SIGKILL",
        "> stop the programs that belong to no process",
        "finished",
        "> finish",
    ]
    assert story.lines() == []


@pytest.mark.parametrize(
    ("code", "reason", "line"),
    [
        (0, "", "exited a"),
        (3, "", "exited a code=3"),
        (127, "", "exited a code=127 reason=the command was not found"),
        (126, "", "exited a code=126 reason=the command cannot be executed"),
        (None, "the supervisor was killed",
         "exited a reason=exit status unknown: the supervisor was killed"),
        (139, "core dumped", "exited a code=139 reason=core dumped"),
    ],
)  # fmt: skip
def test_reason_of_an_exit(code: int | None, reason: str, line: str) -> None:
    story = Story(process("a"), process("b"))
    story.lines()
    assert story.exits("a", code, reason=reason).lines() == [line]


def test_restarts_and_their_delays() -> None:
    story = Story(process("a", restart=RestartPolicy(policy="Always", backoff=10, max_restarts=3)))
    story.lines()
    assert story.at(1).exits("a", 1).lines() == [
        "exited a code=1 reason=restarts now (exit code 1)",
        "> stop the remains of a: before it starts again",
        "> start a (again: exit code 1)",
        "started a",
    ]
    assert story.at(2).exits("a", 0).lines() == [
        "exited a restarts_in=10 reason=restarts in 10 s (exit code 0)",
        "> stop the remains of a: before it starts again",
    ]
    assert story.wake_at == 12
    assert story.at(11).lines() == []
    assert story.at(12).lines() == ["> start a (again: exit code 0)", "started a"]
    # The sequence of delays begins again after a long run.
    assert story.at(700).exits("a", 1).lines() == [
        "exited a code=1 reason=restarts now (exit code 1)",
        "> stop the remains of a: before it starts again",
        "> start a (again: exit code 1)",
        "started a",
    ]
    assert story.at(701).exits("a", 1).lines() == [
        "exited a code=1 reason=not restarted again, because the limit is 3",
        "> stop the programs that belong to no process",
        "finished",
        "> finish",
    ]


def test_exits_are_recorded_in_the_order_of_their_times() -> None:
    story = Story(process("a"), process("b"), process("c"))
    story.lines()
    story.at(9).see("a", running=False, since=3.0, exit_code=1)
    story.see("b", running=False, since=2.0, exit_code=2)
    assert story.lines() == ["exited b code=2", "exited a code=1"]
    assert [event["at"] for event in story.events[-2:]] == [2.0, 3.0]


def test_execution_that_was_started_but_not_recorded() -> None:
    """The supervisor was killed between the start and its record."""
    story = Story(process("a", restart=ALWAYS))
    story.see("a", attempt=0, running=False, exit_code=4, since=0.5, cleared=True)
    assert story.at(1).lines() == [
        "started a",
        "exited a code=4 reason=restarts now (exit code 4)",
        "> start a (again: exit code 4)",
        "started a",
    ]


def test_platform_that_restarts_a_process_by_itself() -> None:
    story = Story(process("a"))
    story.lines()
    story.see("a", attempt=1, pid=8, done_by="the kubelet")
    assert story.lines() == [
        "exited a reason=restarts now (the kubelet has started it again)",
        "started a",
    ]
    assert story.state.tracks["a"].restarts == 1


# --- remains of earlier executions ---


def test_no_process_starts_beside_what_an_earlier_execution_has_left_behind() -> None:
    story = Story(process("a"), process("b"))
    story.lines()
    story.at(1).exits("a", 0).lines()
    story.ignored = (Clear,)
    # The request waits until nothing is left.
    assert story.at(2).request("start", "a").lines() == [
        "> stop the remains of a: before it starts again"
    ]
    assert story.see("a", clearing=True).lines() == []
    assert story.at(3).see("a", clearing=False, cleared=True).lines() == [
        "start-requested a",
        "request-done number=1",
        "> start a",
        "> answer request 1: done",
        "started a",
    ]


def test_process_waits_for_an_unrecorded_execution_after_a_crash() -> None:
    """The leader of an execution that was not recorded has exited, and its child is running."""
    story = Story(process("a"))
    apply(story.state, {"event": "supervisor-replaced", "at": 1.0})
    story.ignored = (Clear,)
    assert story.at(1).lines() == ["> stop the remains of a: before it starts again"]
    assert story.see("a", clearing=True).lines() == [
        "waiting a reason=waiting for programs of its previous execution to exit"
    ]
    assert story.see("a", clearing=False, cleared=True).lines() == ["> start a", "started a"]


def test_programs_in_the_group_of_an_exited_process_are_stopped() -> None:
    story = Story(process("a", restart=ALWAYS, grace=5.0))
    story.lines()
    assert story.at(1).exits("a", 1, leftovers=True).lines() == [
        "exited a code=1 reason=restarts now (exit code 1)",
        "> stop a: programs of its process group have outlived it",
    ]
    assert story.wake_at == 6
    assert story.at(6).lines() == ["> kill a: programs of its process group have outlived it"]
    assert story.at(7).see("a", leftovers=False, cleared=True).lines() == [
        "> start a (again: exit code 1)",
        "started a",
    ]


def test_strays_are_stopped_before_the_end() -> None:
    story = Story(process("a", grace=4.0))
    story.lines()
    story.ignored = (Sweep,)
    assert story.at(1).exits("a").lines() == [
        "exited a",
        "> stop the programs that belong to no process",
    ]
    story.facts.update(strays=True, strays_since=1.0)
    assert story.lines() == []
    assert story.wake_at == 5
    assert story.at(5).lines() == ["> kill the programs that belong to no process"]
    story.facts.update(strays_killed=True)
    assert story.lines() == []
    story.facts.update(strays=False)
    assert story.lines() == ["finished", "> finish"]
