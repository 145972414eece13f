"""The decisions about a running experiment: facts in, events and actions out.

Each test is a story. The lines of a step are the recorded events, and then the actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from symphony.plan.actions import (
    Action,
    Answer,
    Clear,
    Finish,
    Kill,
    Release,
    Remove,
    Reserve,
    Start,
    Stop,
    Sweep,
)
from symphony.plan.changes import ProcessSnapshot, Snapshot, compare
from symphony.plan.decide import Decision, decide
from symphony.plan.disruption import Disruption, DisruptionCause
from symphony.plan.observation import ABSENT, Observation, Seen
from symphony.plan.policies import Ending, Policies
from symphony.plan.restart_policy import Restart, RestartPolicy
from symphony.plan.state import Index, apply, fold
from symphony.plan.unit_decision import release_unit
from symphony.plan.wish import ProcessWish, Wish, difference
from symphony.status import ReasonCode, State

ALWAYS = RestartPolicy(policy="Always", backoff=10.0)
ON_FAILURE = RestartPolicy(policy="OnFailure", backoff=10.0)

# The details of events that the lines of a story show.
_SHOWN = (
    "program",
    "running",
    "code",
    "action",
    "restarts_in",
    "kill_at",
    "stopped",
    "number",
    "reason",
)


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
        self._check_state(decision)
        again = decide(self.wish, self.state, self.observation(), self.now)
        assert again.events == ()
        if not self.state.finished:
            kept = [action for action in decision.actions if not isinstance(action, Answer)]
            assert list(again.actions) == kept
        self.wake_at = decision.wake_at
        return decision

    def _check_state(self, decision: Decision) -> None:
        """Check that the state after a decision is the one that its events lead to."""
        assert (decision.state is None) == (not decision.events)
        if decision.state is None:
            return
        assert decision.state == self.state
        renewed = self.state.copy()
        renewed.renew_index()
        for state in (decision.state, self.state):
            for name in Index.__slots__:
                assert getattr(state.index, name) == getattr(renewed.index, name), name

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
            if any(isinstance(action, Finish) for action in actions):
                return lines
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


def test_program_in_the_background_is_recorded_for_a_process_that_has_succeeded() -> None:
    story = Story(process("web"), process("bad"), process("on"))
    story.lines()
    server = {"background": "server (pid 7)", "in_background": True}
    story.at(2).exits("web").exits("bad", 3)
    assert story.see("web", **server).see("bad", **server).lines() == [
        "exited web",
        "exited bad code=3",
        "background web program=server (pid 7) running=True",
    ]
    assert story.at(3).see("web", in_background=False).lines() == [
        "background web program=server (pid 7)"
    ]
    story.request("start", "web").lines()
    assert story.state.tracks["web"].background == ""


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


def test_final_exit_code_ends_the_restarts() -> None:
    policy = RestartPolicy(policy="Always", final_codes=(2,))
    story = Story(process("a", restart=policy), process("b"))
    story.lines()
    assert story.at(1).exits("a", 1).lines()[-1] == "started a"
    assert story.at(2).exits("a", 2).lines() == [
        "exited a code=2 reason=not restarted, because exit code 2 is final"
    ]


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


# --- health ---

REFUSED = "unhealthy: connection refused, 3 tests in a row"


def fails(story: Story, name: str, tests: int = 3) -> Story:
    return story.see(name, failed_tests=tests, health_result="connection refused")


def test_unhealthy_process_is_stopped_and_started_again_whatever_its_exit_code_is() -> None:
    for code in (0, 2, None):
        policy = RestartPolicy(policy="OnFailure", final_codes=(2,), max_restarts=1)
        story = Story(process("a", restart=policy, max_failed_tests=3, grace=5.0), process("b"))
        story.lines()
        assert fails(story.at(1), "a", 2).lines() == []
        assert fails(story.at(2), "a").lines() == [
            f"unhealthy a reason={REFUSED}",
            f"> stop a: {REFUSED}",
        ]
        assert story.wake_at == 7
        track = story.state.tracks["a"]
        assert (track.reason, track.reason_code) == (REFUSED, ReasonCode.UNHEALTHY)
        assert fails(story.at(3), "a", 4).lines() == []
        words = f" code={code}" if code else ""
        assert story.at(4).exits("a", code).lines() == [
            f"exited a{words} reason=restarts now ({REFUSED})",
            "> stop the remains of a: before it starts again",
            f"> start a (again: {REFUSED})",
            "started a",
        ]
        assert story.state.tracks["a"].retries == 1
        # The new execution has its own tests, and no restart is left.
        story.at(5).lines()
        fails(story.at(6), "a").lines()
        limit = "not restarted again, because the limit is 1"
        assert story.at(7).exits("a", code).lines() == [
            f"exited a{words} reason={REFUSED}; {limit}"
        ]
        track = story.state.tracks["a"]
        assert (track.state, track.reason_code) == (State.FAILED, ReasonCode.UNHEALTHY)


def test_unhealthy_process_without_restarts_has_failed_and_stops_the_experiment() -> None:
    story = Story(
        process("a", max_failed_tests=1), process("b"), policies=Policies(on_failure="stop")
    )
    story.lines()
    reason = "unhealthy: connection refused"
    fails(story.at(1), "a", 1).lines()
    assert story.at(2).exits("a", 0).lines()[:2] == [
        f"exited a reason={reason}",
        f"ending action=stop reason=the experiment failed: a failed (exit code 0, {reason})",
    ]
    assert story.state.tracks["a"].state is State.FAILED


def test_unhealthy_process_that_ignores_the_signal_is_killed() -> None:
    story = Story(process("a", max_failed_tests=3, grace=5.0), process("b"))
    story.lines()
    fails(story.at(1), "a").lines()
    assert story.at(6).lines() == [f"> kill a: {REFUSED}"]


def test_failed_tests_of_a_process_that_is_being_stopped_are_no_news() -> None:
    story = Story(process("a", max_failed_tests=3, restart=ALWAYS), process("b"))
    story.ignored = (Answer,)
    story.lines()
    story.at(1).request("stop", "a").lines()
    assert fails(story.at(2), "a").lines() == []
    assert story.at(3).exits("a", 143).lines()[0] == "exited a code=143 stopped=True reason=stopped"


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("stop", "exited a code=143 stopped=True reason=stopped"),
        ("restart", "exited a code=143 reason=restarts now (restart requested)"),
    ],
)
def test_request_wins_over_an_unhealthy_process(kind: str, line: str) -> None:
    story = Story(process("a", max_failed_tests=3), process("b"))
    story.lines()
    fails(story.at(1), "a").lines()
    story.at(2).request(kind, "a").lines()
    assert story.at(3).exits("a", 143).lines()[0] == line
    assert story.state.tracks["a"].reason_code is not ReasonCode.UNHEALTHY


def test_new_supervisor_continues_to_stop_an_unhealthy_process() -> None:
    story = Story(process("a", max_failed_tests=3), process("b"))
    story.lines()
    story.ignored = (Stop,)
    fails(story.at(1), "a").lines()
    # The next supervisor knows no tests.
    story.ignored = ()
    story.see("a", failed_tests=0, health_result="")
    assert story.at(2).lines() == [f"> stop a: {REFUSED}"]
    assert story.at(3).exits("a", 0).lines()[0] == f"exited a reason={REFUSED}"


def test_platform_that_stops_an_unhealthy_process_by_itself() -> None:
    story = Story(process("a", restart=ON_FAILURE, max_failed_tests=3), process("b"))
    story.lines()
    assert fails(story.at(2), "a").exits("a", 137).lines()[:2] == [
        f"unhealthy a reason={REFUSED}",
        f"exited a code=137 reason=restarts now ({REFUSED})",
    ]


def test_unhealthy_rank_restarts_its_unit() -> None:
    story = Story(*ranks(2, restart=ON_FAILURE, max_failed_tests=3))
    story.lines()
    assert fails(story.at(1), "r1").lines() == [
        f"unhealthy r1 reason={REFUSED}",
        f"> stop r1: {REFUSED}",
    ]
    assert story.at(2).exits("r1", 0).lines()[:2] == [
        f"exited r1 reason=restarts now ({REFUSED})",
        f"> stop r0: the unit restarts: r1 failed ({REFUSED})",
    ]


# --- exits ---


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


# --- stops ---


def chain(**values: Any) -> list[ProcessWish]:
    return [
        process("db", grace=30.0, **values),
        process("app", starts_after={"db": "started"}, grace=10.0, **values),
        process("web", starts_after={"app": "started"}, grace=5.0, **values),
        process("job", grace=5.0, **values),
    ]


def test_experiment_is_stopped_in_waves() -> None:
    story = Story(*chain())
    story.lines()
    assert story.at(1).stop().lines() == ["> stop web: requested"]
    assert story.wake_at == 6
    assert story.at(6).lines() == ["> kill web: requested"]
    assert story.at(7).exits("web", 137).lines() == [
        "exited web code=137 stopped=True reason=stopped",
        "> stop app: requested",
    ]
    assert story.wake_at == 17, "each wave has its own grace period"
    assert story.at(8).exits("app").lines() == [
        "exited app stopped=True reason=stopped",
        "> stop db: requested",
        "> stop job: requested",
    ]
    story.at(9).exits("db", 143).exits("job", 143)
    assert story.lines() == [
        "exited db code=143 stopped=True reason=stopped",
        "exited job code=143 stopped=True reason=stopped",
        "> stop the programs that belong to no process",
        "finished",
        "> finish",
    ]


def test_processes_that_have_not_started_are_never_started_after_a_stop() -> None:
    story = Story(
        process("a", restart=RestartPolicy(policy="Always")),
        process("b", starts_after={"a": "succeeded"}),
    )
    story.lines()
    story.at(1).exits("a", 1).lines()
    story.at(2).exits("a", 1).lines()
    assert story.at(3).stop().lines() == [
        "never a stopped=True reason=stopped before it restarted",
        "never b stopped=True reason=stopped before it started",
        "> stop the programs that belong to no process",
        "finished",
        "> finish",
    ]


def test_stop_without_order_and_without_grace_period() -> None:
    story = Story(*chain())
    story.lines()
    story.at(1).stop()
    story.lines()
    assert story.at(2).stop(together=True).lines() == [
        "> stop db: requested",
        "> stop job: requested",
        "> stop app: requested",
    ]
    story.facts["kills_at_once"] = True
    assert story.at(3).lines() == [
        "> kill db: requested",
        "> kill job: requested",
        "> kill app: requested",
        "> kill web: requested",
    ]


def test_whole_grace_period_follows_the_signal_if_the_supervisor_was_killed_before_it() -> None:
    story = Story(process("a", grace=10.0))
    story.lines()
    story.at(1).stop()
    # The supervisor was killed before it had sent the signal.
    story.at(60)
    assert story.lines() == ["> stop a: requested"]
    assert story.wake_at == 70


def test_stop_that_had_begun_before_the_supervisor_was_killed_ends_in_time() -> None:
    story = Story(process("a", grace=10.0))
    story.lines()
    story.at(1).stop().see("a", signaled_at=1.0)
    assert story.at(6).lines() == ["> stop a: requested"]
    assert story.wake_at == 11
    assert story.at(11).lines() == ["> kill a: requested"]


def test_stop_of_the_experiment_ends_the_longer_grace_period_of_a_request() -> None:
    story = Story(process("a", grace=1.0))
    story.lines()
    story.at(1).request("restart", "a", grace=100.0).lines()
    story.at(50).stop().lines()
    # The grace period of the process begins with the stop of the experiment.
    assert story.wake_at == 51
    assert story.at(51).lines() == ["> kill a: requested"]


# --- requests of users ---


def test_stop_and_start_on_request() -> None:
    story = Story(*chain(restart=ALWAYS))
    story.lines()
    assert story.at(1).request("stop", "app", "web").lines() == [
        "terminating web kill_at=6",
        "> stop web: requested",
    ]
    assert story.at(2).exits("web", 143).lines() == [
        "exited web code=143 stopped=True reason=stopped",
        "terminating app kill_at=12",
        "> stop app: requested",
        "> stop the remains of web: it is stopped",
    ]
    assert story.at(3).exits("app", 143).lines() == [
        "exited app code=143 stopped=True reason=stopped",
        "> stop the remains of app: it is stopped",
        "request-done number=1",
        "> answer request 1: done",
    ]
    assert story.at(9).request("start", "web", "app").lines() == [
        "start-requested app",
        "start-requested web",
        "request-done number=2",
        "waiting web reason=waiting for app to start",
        "> start app (after db has started)",
        "> answer request 2: done",
        "started app",
        "> start web (after app has started)",
        "started web",
    ]


def test_stopped_experiment_waits_for_a_start() -> None:
    story = Story(process("a"))
    story.lines()
    story.request("stop", "a", grace=0.0)
    assert story.lines() == ["terminating a", "> kill a: requested"]
    story.exits("a", 137).lines()
    assert not story.state.finished
    assert story.at(5).stop().lines()[-2:] == ["finished", "> finish"]


class _CountedName(str):
    """A name in a request, which counts the comparisons with other names."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        type(self).comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("kind", ["stop", "restart", "change"])
def test_the_cost_of_a_request_does_not_grow_with_the_square_of_its_processes(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"p-{number}" for number in range(400)]
    story = Story(*map(process, names))
    story.lines()
    story.at(1).request(kind, *map(_CountedName, names))
    monkeypatch.setattr(_CountedName, "comparisons", 0)
    decision = decide(story.wish, story.state, story.observation(), story.now)
    assert len([action for action in decision.actions if isinstance(action, Stop)]) == 400
    # A single search for each name in the list of names would take 200 comparisons.
    assert _CountedName.comparisons < 100 * len(names)


def test_waiting_process_is_stopped_on_request() -> None:
    story = Story(
        process("a", has_test=True),
        process("b", starts_after={"a": "ready"}),
        process("c", starts_after={"b": "succeeded"}),
    )
    story.lines()
    assert story.at(1).request("stop", "b").lines() == [
        "never b stopped=True reason=stopped before it started",
        "request-done number=1",
        "waiting c reason=waiting for b to succeed (b is stopped)",
        "> answer request 1: done",
    ]


def test_restart_on_request() -> None:
    story = Story(process("db", has_test=True), process("app", starts_after={"db": "ready"}))
    story.lines()
    story.see("db", ready=True).lines()
    assert story.at(1).request("restart", "db", "app").lines() == [
        "terminating app kill_at=31",
        "> stop app: a restart is requested",
    ]
    assert story.at(2).exits("app", 143).lines() == [
        "exited app code=143 reason=restarts now (restart requested)",
        "terminating db kill_at=32",
        "> stop db: a restart is requested",
        "> stop the remains of app: before it starts again",
    ]
    assert story.at(3).exits("db", 143).lines() == [
        "exited db code=143 reason=restarts now (restart requested)",
        "> stop the remains of db: before it starts again",
        "start-requested db",
        "start-requested app",
        "request-done number=1",
        "waiting app reason=waiting for db to be ready",
        "> start db",
        "> answer request 1: done",
        "started db",
    ]


def test_restart_does_not_wait_for_other_processes_of_the_request() -> None:
    story = Story(process("a"), process("b"))
    story.lines()
    story.at(1).request("restart", "a", "b").lines()
    assert story.at(2).exits("b", 143).lines() == [
        "exited b code=143 reason=restarts now (restart requested)",
        "> stop the remains of b: before it starts again",
        "start-requested b",
        "> start b",
        "started b",
    ]
    assert list(story.state.requests) == [1]


def test_stop_replaces_a_restart_and_shortens_the_grace_period() -> None:
    story = Story(process("a", grace=30.0), process("b"))
    story.lines()
    story.at(1).request("restart", "a").lines()
    assert story.at(2).request("stop", "a", grace=5.0).lines() == [
        "request-done number=1",
        "terminating a kill_at=7",
        "> stop a: requested",
        "> answer request 1: done",
    ]
    # A longer grace period has no effect.
    assert story.at(3).request("stop", "a", grace=60.0).lines() == []
    assert story.at(7).lines() == ["> kill a: requested"]
    assert story.at(8).exits("a", 137).lines() == [
        "exited a code=137 stopped=True reason=stopped",
        "> stop the remains of a: it is stopped",
        "request-done number=2",
        "request-done number=3",
        "> answer request 2: done",
        "> answer request 3: done",
    ]


def test_request_gives_the_whole_grace_period_if_the_supervisor_was_killed() -> None:
    """The supervisor was killed between the record of the stop and the signal."""
    story = Story(process("a", grace=10.0), process("b"))
    story.lines()
    story.ignored = (Stop,)
    assert story.at(1).request("stop", "a").lines() == [
        "terminating a kill_at=11",
        "> stop a: requested",
    ]
    story.ignored = ()
    assert story.at(60).lines() == ["terminating a kill_at=70", "> stop a: requested"]


def test_request_that_a_killed_supervisor_has_begun_ends_in_time() -> None:
    story = Story(process("a", grace=10.0), process("b"))
    story.lines()
    story.at(1).request("stop", "a").lines()
    story.see("a", kill_at=None)
    assert story.at(6).lines() == ["> stop a: requested"]
    assert story.wake_at == 11


def test_start_of_a_process_that_waits_for_its_restart() -> None:
    story = Story(process("a", restart=ALWAYS))
    story.lines()
    story.at(1).exits("a", 1).lines()
    story.at(2).exits("a", 1).lines()
    assert story.at(3).request("start", "a").lines() == [
        "start-requested a",
        "request-done number=1",
        "> start a",
        "> answer request 1: done",
        "started a",
    ]
    assert story.state.tracks["a"].retries == 0


def test_start_of_running_and_waiting_processes_does_nothing() -> None:
    story = Story(process("a", has_test=True), process("b", starts_after={"a": "ready"}))
    story.lines()
    assert story.request("start", "a", "b").lines() == [
        "request-done number=1",
        "> answer request 1: done",
    ]


def test_resources_are_reserved_before_a_start_on_request() -> None:
    story = Story(process("a", reserves=True), process("b", reserves=True), process("c"))
    story.lines()
    story.at(1).exits("a").exits("b").lines()
    story.see("a", reserved=False).see("b", unavailable="another experiment has leased its GPUs")
    assert story.at(2).request("start", "a", "b").lines() == [
        "> stop the remains of a: before it starts again",
        "> reserve the resources of a: a request starts it",
        "start-requested a",
        "request-done number=1",
        "> start a",
        "> answer request 1: another experiment has leased its GPUs",
        "started a",
    ]


def test_requests_are_given_up_when_the_experiment_is_stopped() -> None:
    story = Story(process("a"), process("b"))
    story.lines()
    story.at(1).request("restart", "a").lines()
    story.at(2).stop()
    assert story.lines() == ["> stop b: requested"]
    assert story.at(3).exits("a", 143).lines() == [
        "exited a code=143 stopped=True reason=stopped",
        "request-done number=1",
        "> answer request 1: the experiment is being stopped",
    ]


def test_request_of_an_unknown_kind_is_done() -> None:
    story = Story(process("a"))
    story.lines()
    assert story.request("hibernate", "a").lines() == [
        "request-done number=1",
        "> answer request 1: done",
    ]


def test_process_that_a_user_stops_while_its_start_fails() -> None:
    story = Story(process("a"), process("b"), policies=Policies(on_failure="restart"))
    story.ignored = (Start,)
    story.lines()
    story.see("b", attempt=0, running=True, pid=7).see("a", attempt=0, starting=True)
    assert story.at(1).request("stop", "a").lines() == ["started b"]
    story.ignored = ()
    # The experiment restarts at the same time, but not this process.
    story.at(2).exits("b", 1).see("a", starting=False, failed=True, reason="no such program")
    assert story.lines() == [
        "never a stopped=True reason=stopped before it started",
        "restarting reason=the experiment restarts: b failed (exit code 1)",
        "exited b code=1",
        "request-done number=1",
        "restarted",
        "> start b",
        "> answer request 1: done",
        "started b",
    ]


# --- units of ranks ---


def ranks(count: int = 3, **values: Any) -> list[ProcessWish]:
    return [process(f"r{index}", gang="train", grace=10.0, **values) for index in range(count)]


def test_unit_restarts_as_a_whole() -> None:
    story = Story(*ranks(restart=ON_FAILURE))
    assert story.lines()[:3] == ["> start r0", "> start r1", "> start r2"]
    story.at(1).exits("r0").lines()
    assert story.at(2).exits("r1", 3).lines() == [
        "exited r1 code=3 reason=restarts now (exit code 3)",
        "start-requested r0",
        "> stop r2: the unit restarts: r1 exited with 3",
        "> stop the remains of r0: before it starts again",
        "> stop the remains of r1: before it starts again",
    ]
    assert story.at(3).exits("r2", 143).lines() == [
        "exited r2 code=143 reason=restarts now (the unit restarts: r1 exited with 3)",
        "> stop the remains of r2: before it starts again",
        "> start r0",
        "> start r1 (again: exit code 3)",
        "> start r2 (again: the unit restarts: r1 exited with 3)",
        "started r0",
        "started r1",
        "started r2",
    ]


def test_unit_waits_for_its_next_start_together() -> None:
    story = Story(*ranks(2, restart=ON_FAILURE))
    story.lines()
    story.at(1).exits("r0", 1).exits("r1", 1).lines()
    story.at(2).exits("r0", 1).lines()
    story.at(4).exits("r1", 143).lines()
    assert story.wake_at == 12
    assert story.at(11).lines() == []
    assert story.at(12).lines()[:2] == [
        "> start r0 (again: exit code 1)",
        "> start r1 (again: the unit restarts: r0 exited with 1)",
    ]


def test_unit_fails_as_a_whole() -> None:
    story = Story(*ranks(2))
    story.lines()
    assert story.at(1).exits("r0", 3).lines() == [
        "exited r0 code=3",
        "> stop r1: the unit failed: r0 exited with 3",
    ]
    assert story.at(2).exits("r1", 143).lines() == [
        "exited r1 code=143 reason=the unit failed: r0 exited with 3",
        "> stop the programs that belong to no process",
        "finished",
        "> finish",
    ]


def test_rank_that_waits_never_starts_when_its_unit_has_failed() -> None:
    story = Story(*ranks(2, restart=RestartPolicy(policy="OnFailure", max_restarts=1)))
    story.lines()
    story.at(1).exits("r0", 1).lines()
    story.see("r1", running=False, exit_code=1, refused=False)
    story.ignored = (Start,)
    story.lines()
    story.see("r0", attempt=1, running=False, failed=True, refused=True, reason="no session")
    assert story.at(2).lines()[:2] == [
        "never r0 reason=no session",
        "never r1 reason=the unit failed: r0 exited with 1",
    ]


def test_request_for_a_unit_starts_it_when_all_ranks_have_exited() -> None:
    story = Story(*ranks(2))
    story.lines()
    story.at(1).request("restart", "r0", "r1").lines()
    assert story.at(2).exits("r0", 143).lines() == [
        "exited r0 code=143 reason=restarts now (restart requested)",
        "> stop the remains of r0: before it starts again",
    ]
    assert story.at(3).exits("r1", 143).lines() == [
        "exited r1 code=143 reason=restarts now (restart requested)",
        "> stop the remains of r1: before it starts again",
        "start-requested r0",
        "start-requested r1",
        "request-done number=1",
        "> start r0",
        "> start r1",
        "> answer request 1: done",
        "started r0",
        "started r1",
    ]


def test_start_of_a_failing_unit_waits_for_the_ranks_that_are_stopped() -> None:
    story = Story(*ranks(2))
    story.lines()
    story.at(1).exits("r0", 3).lines()
    assert story.at(2).request("start", "r0", "r1").lines() == [
        "> stop the remains of r0: before it starts again"
    ]
    assert story.at(3).exits("r1", 143).lines() == [
        "exited r1 code=143 reason=the unit failed: r0 exited with 3",
        "> stop the remains of r1: before it starts again",
        "start-requested r0",
        "start-requested r1",
        "request-done number=1",
        "> start r0",
        "> start r1",
        "> answer request 1: done",
        "started r0",
        "started r1",
    ]


def test_restarting_unit_follows_the_start_order_of_a_rank_that_a_user_has_started() -> None:
    story = Story(
        process("data"), *ranks(2, restart=ON_FAILURE, starts_after={"data": "succeeded"})
    )
    story.lines()
    story.at(1).exits("data").lines()
    story.at(2).exits("r0").lines()
    story.at(3).request("start", "data", "r0", "r1").lines()
    story.at(4).exits("r1", 1).lines()
    assert story.state.tracks["data"].state is State.RUNNING
    assert story.lines() == []
    assert story.at(5).exits("data").lines() == [
        "exited data",
        "> start r0 (after data has succeeded)",
        "> start r1 (again: exit code 1)",
        "started r0",
        "started r1",
    ]


# --- the policies of the experiment ---


def test_experiment_ends_with_a_process() -> None:
    story = Story(
        process("learner"),
        process("actor", restart=ALWAYS),
        process("eval", starts_after={"actor": "succeeded"}),
        policies=Policies(ends_with=("learner",)),
    )
    story.lines()
    assert story.at(1).exits("learner").lines() == [
        "exited learner",
        "ending action=finish reason=the experiment ended with learner",
        "never eval stopped=True reason=the experiment ended with learner",
        "> stop actor: the experiment ended with learner",
    ]
    assert story.at(2).exits("actor", 143).lines()[0] == (
        "exited actor code=143 stopped=True reason=the experiment ended with learner"
    )
    assert story.state.finished


def test_failure_stops_the_experiment() -> None:
    story = Story(process("a"), process("b"), policies=Policies(on_failure="stop"))
    story.lines()
    assert story.at(1).exits("a", 3).lines() == [
        "exited a code=3",
        "ending action=stop reason=the experiment failed: a failed (exit code 3)",
        "> stop b: the experiment failed: a failed (exit code 3)",
    ]


def test_no_process_starts_after_the_decision_to_end() -> None:
    """One process can never start, so the experiment ends, and another one could start."""
    story = Story(
        process("a"),
        process("b", starts_after={"a": "succeeded"}),
        process("c", starts_after={"a": "started"}),
        policies=Policies(on_failure="stop"),
    )
    story.ignored = (Start,)
    story.lines()
    story.ignored = ()
    story.at(1).see("a", attempt=0, running=False, pid=7, exit_code=3)
    assert story.lines() == [
        "started a",
        "exited a code=3",
        "ending action=stop reason=the experiment failed: a failed (exit code 3)",
        "never b stopped=True reason=the experiment failed: a failed (exit code 3)",
        "never c stopped=True reason=the experiment failed: a failed (exit code 3)",
        "finished",
        "> finish",
    ]


def test_experiment_is_restarted() -> None:
    policies = Policies(on_failure="restart", max_restarts=1, backoff=5.0)
    story = Story(
        process("a"), process("b"), process("c", starts_after={"b": "succeeded"}),
        policies=policies,
    )  # fmt: skip
    story.lines()
    assert story.at(1).exits("a", 3).lines() == [
        "restarting reason=the experiment restarts: a failed (exit code 3)",
        "exited a code=3",
        "> stop b: the experiment restarts: a failed (exit code 3)",
    ]
    assert story.at(2).exits("b", 143).lines() == [
        "exited b code=143 reason=killed by SIGTERM",
        "> stop the programs that belong to no process",
        "restarted",
        "waiting c reason=waiting for b to succeed",
        "> start a",
        "> start b",
        "started a",
        "started b",
    ]
    assert (story.state.restarts, story.state.tracks["a"].restarts) == (1, 1)
    assert story.at(3).exits("a", 3).lines()[1] == (
        "ending action=stop reason=the experiment failed: a failed (exit code 3); "
        "not restarted again, because the limit is 1"
    )


def test_restart_of_the_experiment_is_delayed() -> None:
    story = Story(process("a"), policies=Policies(on_failure="restart", backoff=5.0))
    story.lines()
    story.at(1).exits("a", 3).lines()
    assert story.at(2).exits("a", 3).lines() == [
        "restarting restarts_in=5 reason=the experiment restarts: a failed (exit code 3)",
        "exited a code=3 restarts_in=5",
    ]
    assert story.wake_at == 7
    assert story.at(7).lines() == [
        "> stop the programs that belong to no process",
        "restarted",
        "> start a",
        "started a",
    ]


def test_restart_of_the_experiment_does_not_start_what_a_user_has_stopped() -> None:
    story = Story(process("a"), process("b"), process("c"), policies=Policies(on_failure="restart"))
    story.lines()
    story.at(1).request("stop", "b").lines()
    story.exits("b", 143).lines()
    # This one is being stopped when the decision is made.
    story.at(2).request("stop", "c").lines()
    story.at(3).exits("a", 1)
    assert story.lines() == [
        "restarting reason=the experiment restarts: a failed (exit code 1)",
        "exited a code=1",
    ]
    assert story.at(4).exits("c", 143).lines() == [
        "exited c code=143 stopped=True reason=stopped",
        "request-done number=2",
        "> stop the programs that belong to no process",
        "> answer request 2: done",
        "restarted",
        "> start a",
        "started a",
    ]


def test_deadline_of_the_experiment() -> None:
    story = Story(process("a"), policies=Policies(deadline=60.0))
    story.lines()
    assert story.wake_at == 60
    assert story.at(60).lines() == [
        "ending action=deadline reason=deadline exceeded",
        "> stop a: deadline exceeded",
    ]
    assert story.at(61).exits("a", 0).lines()[0] == "exited a reason=deadline exceeded"
    assert story.state.tracks["a"].state is State.FAILED


def test_deadline_of_a_process() -> None:
    story = Story(process("a", deadline=60.0, restart=ALWAYS, grace=5.0), process("b"))
    story.lines()
    story.at(10).exits("a", 1).lines()
    assert story.wake_at == 60, "the deadline is that of all attempts together"
    assert story.at(60).lines() == ["> stop a: deadline exceeded"]
    assert story.wake_at == 65
    assert story.at(61).exits("a", 0).lines() == ["exited a reason=deadline exceeded"]
    # A start on request begins a new time, and the exit after it has its own reason.
    story.at(100).request("start", "a").lines()
    assert story.wake_at == 160
    assert story.at(110).exits("a", 3).lines()[0] == (
        "exited a code=3 reason=restarts now (exit code 3)"
    )


def test_process_that_succeeds_at_its_deadline_has_succeeded() -> None:
    story = Story(process("a", deadline=60.0), process("b"))
    story.lines()
    assert story.at(60.1).exits("a", 0).lines() == ["exited a"]
    assert story.state.tracks["a"].state is State.SUCCEEDED


def test_deadline_of_a_process_that_waits_for_its_restart() -> None:
    story = Story(process("a", deadline=30.0, restart=RestartPolicy(policy="Always", backoff=50)))
    story.lines()
    story.at(1).exits("a", 1).lines()
    story.at(2).exits("a", 1).lines()
    assert story.at(30).lines()[:1] == ["never a reason=deadline exceeded"]


# --- disruptions ---

DRAINED = Disruption(cause=DisruptionCause.DRAINED, node="node1")
NODE_LOST = Disruption(cause=DisruptionCause.NODE_LOST, node="node1")


@pytest.mark.parametrize(
    ("policy", "code", "disruption", "lines"),
    [
        ("Never", 143, DRAINED, ["exited a code=143 reason=lost: node1 was drained"]),
        ("Never", None, NODE_LOST, ["exited a reason=lost: node1 was lost"]),
        (
            "OnFailure",
            143,
            DRAINED,
            [
                "exited a code=143 reason=restarts now (lost: node1 was drained)",
                "> stop the remains of a: before it starts again",
                "> start a (again: lost: node1 was drained)",
                "started a",
            ],
        ),
        # What has succeeded in the meantime has succeeded.
        ("OnFailure", 0, DRAINED, ["exited a"]),
    ],
)
def test_disruption_is_no_failure(
    policy: str, code: int | None, disruption: Disruption, lines: list[str]
) -> None:
    restart = RestartPolicy(policy=policy, max_restarts=1)
    story = Story(process("a", restart=restart), process("b"))
    story.lines()
    assert story.at(1).exits("a", code, disruption=disruption).lines() == lines
    track = story.state.tracks["a"]
    assert (track.restarts, track.retries) == (0, 0)


def test_unit_is_started_again_after_a_disruption_of_one_rank() -> None:
    story = Story(*ranks(3, restart=ON_FAILURE))
    story.lines()
    story.exits("r2", 0).lines()
    assert story.at(1).exits("r0", None, disruption=NODE_LOST).lines() == [
        "exited r0 reason=restarts now (lost: node1 was lost)",
        "start-requested r2",
        "> stop r1: lost: r0 (node1 was lost)",
        "> stop the remains of r0: before it starts again",
        "> stop the remains of r2: before it starts again",
    ]
    assert story.at(2).exits("r1", 143).lines()[-6:] == [
        "> start r0 (again: lost: node1 was lost)",
        "> start r1 (again: lost: r0 (node1 was lost))",
        "> start r2",
        "started r0",
        "started r1",
        "started r2",
    ]
    for track in story.state.tracks.values():
        assert (track.restarts, track.retries) == (0, 0)


def test_processes_start_in_their_order_after_a_disruption() -> None:
    server = process("server", restart=ALWAYS)
    client = process("client", restart=ALWAYS, starts_after={"server": "started"})
    story = Story(server, client)
    story.lines()
    story.at(1).exits("client", None, disruption=DRAINED)
    story.exits("server", None, disruption=DRAINED)
    assert [line for line in story.lines() if line.startswith("> start")] == [
        "> start server (again: lost: node1 was drained)",
        "> start client (again: lost: node1 was drained)",
    ]


def test_process_starts_after_a_disruption_even_if_another_one_cannot() -> None:
    server = process("server", restart=ALWAYS)
    client = process("client", restart=ALWAYS, starts_after={"server": "started"})
    story = Story(server, client)
    story.lines()
    story.at(1).exits("client", None, disruption=DRAINED)
    story.exits("server", None, disruption=DRAINED)
    story.ignored = (Start,)
    story.see("server", cleared=True).lines()
    story.see("server", attempt=1, failed=True, refused=True, reason="no session")
    assert story.see("client", cleared=True).lines() == [
        "never server reason=no session",
        "> start client (again: lost: node1 was drained)",
    ]


def test_unit_is_released_if_not_all_ranks_are_placed_in_time() -> None:
    story = Story(*ranks(2, restart=ON_FAILURE, place_within=8.0), name="exp")
    story.ignored = (Start,)
    story.lines()
    story.see("r0", attempt=0, running=True, since=0.0, placed=False)
    story.see("r1", attempt=0, running=True, since=2.0, placed=False)
    # A unit that holds nothing keeps waiting.
    assert story.at(100).lines() == ["started r0", "started r1"]
    story.see("r0", placed=True)
    assert story.at(9).lines() == []
    assert story.wake_at == 10.0
    reason = "only 1 of 2 ranks could be scheduled within 8 s"
    assert story.at(10).lines() == [f"> stop r0: {reason}", f"> stop r1: {reason}"]
    story.exits("r1", None).exits("r0", 143)
    events = story.decide().events
    assert [event["reason_code"] for event in events] == [ReasonCode.UNSCHEDULABLE] * 2
    assert {story.state.tracks[name].retries for name in ("r0", "r1")} == {0}
    assert 14.0 <= (story.wake_at or 0.0) <= 18.0


def placed_unit(count: int) -> Story:
    """Return the story of a unit whose ranks must find machines in 8 s, and whose first has one."""
    story = Story(*ranks(count, restart=ON_FAILURE, place_within=8.0), name="exp")
    story.ignored = (Start, Clear)
    story.lines()
    story.see("r0", attempt=0, running=True, since=0.0, placed=True)
    return story


def test_rank_that_has_finished_needs_no_machine() -> None:
    story = placed_unit(2)
    story.see("r1", attempt=0, running=True, since=0.0, placed=True).lines()
    story.at(1).exits("r1", 0)
    assert story.lines() == ["exited r1"]
    assert story.at(100).lines() == []


def test_rank_that_a_user_starts_again_has_time_to_find_a_machine() -> None:
    story = placed_unit(2)
    story.see("r1", attempt=0, running=True, since=0.0, placed=True).lines()
    story.at(1).exits("r1", 0).lines()
    story.see("r1", cleared=True).at(100).request("start", "r1")
    assert story.lines()[0] == "start-requested r1"
    story.see("r1", attempt=1, running=True, since=100.0, placed=False)
    assert story.at(107).lines() == ["started r1"]
    assert story.wake_at == 108.0


def test_unit_is_released_if_a_rank_cannot_be_created() -> None:
    story = placed_unit(2)
    assert story.lines() == ["started r0", "> start r1"]
    reason = "only 1 of 2 ranks could be scheduled within 8 s"
    assert story.at(8).lines() == [f"> stop r0: {reason}"]


def test_rank_that_has_finished_waits_until_the_others_have_released_their_machines() -> None:
    story = placed_unit(3)
    story.see("r1", attempt=0, running=True, since=0.0, placed=True)
    story.see("r2", attempt=0, running=True, since=0.0, placed=False).lines()
    story.at(1).exits("r1", 0).lines()
    reason = "only 1 of 2 ranks could be scheduled within 8 s"
    assert story.at(8).lines() == [f"> stop r0: {reason}", f"> stop r2: {reason}"]
    story.exits("r2", None)
    events = [(each["event"], each["process"]) for each in story.decide().events]
    assert events == [("exited", "r2"), ("start-requested", "r1")]


def two_units() -> Story:
    """Return the story of two units of two ranks, each of which must find its machines in 8 s."""
    first = ranks(2, restart=ON_FAILURE, place_within=8.0)
    second = [item._replace(name=item.name.replace("r", "s"), gang="s") for item in first]
    story = Story(*first, *second, name="exp")
    story.ignored = (Start,)
    story.lines()
    for name in ("r0", "r1", "s0", "s1"):
        story.see(name, attempt=0, running=True, since=0.0, placed=False)
    story.at(1).lines()
    return story


def test_unit_that_has_waited_for_its_first_machine_has_time_for_the_others() -> None:
    story = two_units()
    story.see("r0", placed=True, placed_since=100.0)
    assert story.at(100).lines() == []
    assert story.wake_at == 108.0


def test_first_of_two_units_keeps_its_machines_while_the_other_releases_its_own() -> None:
    story = two_units()
    for name in ("r0", "s0"):
        story.see(name, placed=True, placed_since=100.0)
    reason = "only 1 of 2 ranks could be scheduled within 8 s"
    assert story.at(108).lines() == [f"> stop s0: {reason}", f"> stop s1: {reason}"]
    story.exits("s1", None).exits("s0", 143).lines()
    assert story.at(109).lines() == []
    # It does not keep them for ever, because other experiments can need them.
    found = story.at(116).lines()
    assert [line for line in found if line.startswith("> stop")] == [
        f"> stop r0: {reason}",
        f"> stop r1: {reason}",
    ]


def test_pauses_of_a_unit_that_finds_too_few_machines_differ_more_with_each_attempt() -> None:
    def pauses(attempt: int) -> list[float]:
        names = [f"exp/unit-{number}" for number in range(50)]
        return [release_unit(name, "r0", 1, 2, 8.0, attempt, 0.0).next_start for name in names]

    assert 4.0 <= min(pauses(1)) < max(pauses(1)) <= 8.0
    assert 4.0 <= min(pauses(7)) < 8.0
    assert 24.0 < max(pauses(7)) <= 32.0
    assert pauses(8) == pauses(7)


def test_system_stops_the_experiment_and_starts_it_again_later() -> None:
    story = Story(process("a"), process("b", starts_after={"a": "succeeded"}))
    story.lines()
    story.facts["eviction"] = Ending(
        action="restart",
        reason="the experiment restarts: job 7 was requeued",
        reason_code=ReasonCode.EXPERIMENT_RESTARTS,
        cause="job 7 was requeued",
        restart=Restart(delay=0.0, in_row=0),
    )
    assert story.at(1).lines() == [
        "restarting reason=the experiment restarts: job 7 was requeued",
        "> stop a: the experiment restarts: job 7 was requeued",
    ]
    assert story.at(2).exits("a", 143).lines()[:3] == [
        "exited a code=143 reason=killed by SIGTERM",
        "> stop the programs that belong to no process",
        "> end until the system starts the experiment again",
    ]


# --- changes ---


def changed(story: Story, *processes: ProcessWish, policies: Policies | None = None) -> Story:
    """Replace the wish, as `up` does."""
    new = Wish(processes)
    found = difference(story.wish, new)
    names = {*found.removed, *found.restarted}
    story.wish = Wish(
        processes,
        policies or story.wish.policies,
        previous=[item for name, item in story.wish.processes.items() if name in names],
        change={
            "event": "changed",
            "at": story.now,
            "revision": story.wish.revision + 1,
            "added": list(found.added),
            "removed": list(found.removed),
            "restarted": list(found.restarted),
        },
    )
    return story


def test_change_adds_removes_and_restarts() -> None:
    story = Story(process("a", grace=50.0, fingerprint="1"), process("b"), process("c"))
    story.lines()
    changed(
        story.at(1),
        process("a", grace=1.0, fingerprint="2"),
        process("b"),
        process("d", starts_after={"a": "started"}),
    )
    assert story.lines() == [
        "changed",
        "terminating c kill_at=31",
        # The program that is running has the grace period with which it was started.
        "terminating a kill_at=51",
        "> stop a: its description has changed",
        "> stop c: it does not belong to the experiment any more",
    ]
    assert story.at(2).exits("c", 143).lines() == [
        "exited c code=143 stopped=True reason=stopped",
        "> stop the remains of c: it is stopped",
        "> remove c: it does not belong to the experiment any more",
        "> release the resources that change 1 has replaced",
    ]
    assert story.at(3).exits("a", 143).lines() == [
        "exited a code=143 reason=restarts now (restart requested)",
        "> stop the remains of a: before it starts again",
        "start-requested a",
        "start-requested d",
        "request-done number=1",
        "waiting d reason=waiting for a to start",
        "> start a",
        "> answer request 1: done",
        "started a",
        "> start d (after a has started)",
        "started d",
    ]
    assert not story.state.tracks["a"].outdated


def described(**processes: dict[str, Any]) -> Snapshot:
    """Return the snapshot of an experiment whose processes have these settings."""
    return Snapshot(
        experiment="shop",
        backend="local",
        processes={name: ProcessSnapshot(settings=items) for name, items in processes.items()},
    )


def wishes(snapshot: Snapshot) -> list[ProcessWish]:
    return [
        process(
            name,
            starts_after=item.settings.get("starts_after", {}),
            gang=item.settings.get("rank_of"),
            fingerprint=str(item.settings.get("command")),
        )
        for name, item in snapshot.processes.items()
    ]


def carried_out(story: Story) -> list[str]:
    """Carry out the actions of a change, in which every process exits when it is told to stop."""
    actions: list[Action] = []
    while True:
        decision = story.decide()
        done = [action for action in decision.actions if type(action) in (Start, Stop, Remove)]
        if not decision.actions and not decision.events:
            return [f"{type(action).__name__} {action.process}" for action in actions]
        for action in decision.actions:
            story._carry_out(action)
            if isinstance(action, Stop):
                story.exits(action.process, 143)
        actions += done


def test_up_shows_the_actions_that_follow_from_the_change() -> None:
    """The text of `up` comes from the descriptions alone, and the decisions are made later."""
    old = described(
        web={"command": "1", "starts_after": {"app": "started"}},
        app={"command": "1", "starts_after": {"db": "started"}},
        db={"command": "1"},
        **{f"rank-{number}": {"command": "1", "rank_of": "rank"} for number in range(2)},
        viewer={"command": "1"},
        old={"starts_after": {"app": "started"}},
    )
    new = described(
        web={"command": "2", "starts_after": {"app": "started"}},
        app={"command": "1", "starts_after": {"db": "started"}},
        db={"command": "2"},
        **{
            f"rank-{number}": {"command": str(2 - number), "rank_of": "rank"} for number in range(2)
        },
        viewer={"command": "1", "log_limit": "1G"},
        extra={"starts_after": {"web": "started"}},
    )
    story = Story(*wishes(old))
    story.lines()
    shown = compare(old, new, live_settings=["log_limit"])
    assert str(shown).splitlines() == [
        "shop on local: 1 added, 1 removed, 4 restarted, 1 updated, 1 unchanged",
        "update viewer: log_limit set to '1G'",
        "stop web, db, rank-0: command changed from '1' to '2'",
        "stop old: not part of the experiment any more",
        "stop rank-1: rank-0 of the same unit is restarted",
        "remove old",
        "start db, rank-0, rank-1",
        "start web (after app has started)",
        "start extra (new; after web has started)",
    ]
    changed(story.at(1), *wishes(new))
    found = carried_out(story)
    expected = [f"{type(action).__name__} {action.process}" for action in shown.actions]
    assert sorted(found) == sorted(line for line in expected if not line.startswith("Update"))
    stops = [line for line in expected if line.startswith("Stop")]
    assert [line for line in found if line.startswith("Stop")] == stops


def test_change_without_running_processes() -> None:
    story = Story(process("a"), process("b", starts_after={"a": "succeeded"}))
    story.lines()
    changed(story.at(1), process("a"), process("c"))
    assert story.lines() == [
        "changed",
        "start-requested c",
        "> start c",
        "> release the resources that change 1 has replaced",
        "started c",
        "request-done number=1",
        "> answer request 1: done",
    ]


def test_port_of_a_removed_process_is_used_when_it_has_exited() -> None:
    story = Story(process("a", ports=(7000,)), process("x"))
    story.lines()
    changed(story.at(1), process("b", ports=(7000,)), process("x"))
    assert story.lines()[-1] == "> stop a: it does not belong to the experiment any more"
    lines = story.at(2).exits("a").lines()
    assert "> start b" in lines
    assert lines.index("> start b") > lines.index("exited a stopped=True reason=stopped")


def test_change_during_a_stop_removes_what_it_has_removed() -> None:
    story = Story(process("a"), process("b"))
    story.lines()
    changed(story.at(1), process("a")).lines()
    story.at(2).stop()
    assert story.lines() == ["> stop a: requested"]
    story.at(3).exits("b", 143).exits("a", 143)
    assert story.lines() == [
        "exited a code=143 stopped=True reason=stopped",
        "exited b code=143 stopped=True reason=stopped",
        "> remove b: it does not belong to the experiment any more",
        "> release the resources that change 1 has replaced",
        "request-done number=1",
        "> stop the programs that belong to no process",
        "> answer request 1: done",
        "finished",
        "> finish",
    ]
