"""Draw a scenario from a seed. The same seed gives the same scenario on every machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from simulate.scenario import TICK, Crash, Execution, Happening, Process, Scenario

_T = TypeVar("_T")

_RESTARTS = ("Never", "Never", "OnFailure", "Always")
_CONDITIONS = ("ready", "started", "succeeded")
_GRACES = (0.0, 1.0, 2.0, 5.0, 5.0)
# The kinds of requests of users, and of what the outside world does.
REQUESTS = ("stop", "start", "restart", "signal", "up", "scale", "up-again")
DISRUPTIONS = ("evicted", "node-lost", "deleted", "drained", "preempted", "started-again")
# The processes of one history in so many has many more of them.
_LARGE_EVERY = 40
# How many processes may restart without limit: the history has an end for other reasons.
_LAST_HAPPENING_TICKS = 40


def draw_scenario(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    return _Draw(seed).scenario()


class _Draw:
    """Random choices from a seed.

    Each history uses only some of the features (users, disruptions, crashes ...), because faults
    hide where everything happens at the same time.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random.Random(seed).random
        self._has_order = self._chance(0.7)
        self._has_probes = self._chance(0.5)
        self._has_gang = self._chance(0.2)
        self._has_children = self._chance(0.2)
        self._has_deadlines = self._chance(0.15)
        self._has_health = self._chance(0.15)

    def _chance(self, probability: float) -> bool:
        return self._random() < probability

    def _pick(self, values: Sequence[_T]) -> _T:
        return values[int(self._random() * len(values))]

    def _ticks(self, most: int) -> float:
        """Return a time of at most ``most`` ticks, in seconds."""
        return int(self._random() * (most + 1)) * TICK

    def _some(self, names: Sequence[str]) -> list[str]:
        """Return one of the names, or sometimes several or all of them."""
        if self._chance(0.6):
            return [self._pick(names)]
        if self._chance(0.3):
            return list(names)
        return [name for name in names if self._chance(0.5)] or [names[0]]

    def scenario(self) -> Scenario:
        """Return the scenario."""
        is_large = self._chance(1 / _LARGE_EVERY)
        count = 8 + int(self._random() * 8) if is_large else 1 + int(self._random() * 5)
        processes: list[Process] = []
        for number in range(count):
            processes.append(self._process(f"p{number}", processes))
        scenario = Scenario(self._seed, processes)
        if self._has_gang and count > 1:
            size = min(count, 2 + int(self._random() * 2))
            # Others can start before the ranks, and after them.
            first = int(self._random() * (count - size + 1))
            self._form_gang(processes[first : first + size])
        self._set_policies(scenario)
        names = [process.name for process in processes]
        if self._chance(0.55):
            self._add_requests(scenario, names)
        if self._chance(0.25):
            self._add_disruptions(scenario, names)
        if self._chance(0.04):
            self._add_eviction(scenario)
        if self._chance(0.4):
            self._add_crashes(scenario)
            if self._chance(0.5):
                scenario.record_limit = 1 + int(self._random() * 10)
        if self._chance(0.25):
            scenario.delays = [self._ticks(3) for _ in range(1 + int(self._random() * 6))]
            scenario.repeats = [self._chance(0.3) for _ in range(1 + int(self._random() * 4))]
        if self._has_gang and count > 1 and self._chance(0.3):
            self._limit_machines(processes)
        return scenario

    def _process(self, name: str, earlier: Sequence[Process]) -> Process:
        process = Process(name, self._pick(_RESTARTS), grace=self._pick(_GRACES))
        if process.restart != "Never":
            # Without a limit, nothing but a request would end the history.
            process.max_restarts = int(self._random() * 4)
            process.backoff = self._pick((None, 1.0, 2.0))
            if self._chance(0.1):
                process.max_restarts = None
        if self._has_order and earlier:
            for _ in range(1 + self._chance(0.3)):
                if self._chance(0.6):
                    process.starts_after[self._pick(earlier).name] = self._pick(_CONDITIONS)
        if self._has_probes and self._chance(0.6):
            process.has_probe = True
            process.ready_timeout = self._pick((2.0, 4.0, 30.0))
        if self._has_deadlines and self._chance(0.4):
            process.deadline = 1.0 + self._ticks(20)
        if self._has_health and self._chance(0.6):
            process.max_failed_tests = self._pick((1, 2, 3))
        process.reserves = self._chance(0.1)
        process.executions = [self._execution(process) for _ in range(self._pick((1, 1, 2, 3)))]
        return process

    def _execution(self, process: Process) -> Execution:
        execution = Execution()
        if self._chance(0.75):
            execution.exits_after = self._ticks(16)
            execution.code = 0 if self._chance(0.5) else 1 + int(self._random() * 3)
        if process.has_probe:
            execution.ready_after = self._ticks(10) if self._chance(0.85) else None
        is_tested = execution.ready_after is not None or not process.has_probe
        if process.max_failed_tests is not None and is_tested and self._chance(0.7):
            execution.unhealthy_after = self._ticks(12)
            execution.recovers = self._chance(0.3)
            if self._chance(0.7):
                execution.exits_after = None
        if self._chance(0.4):
            execution.stops_after = self._ticks(12) if self._chance(0.6) else None
        if self._has_children and self._chance(0.4):
            execution.child_seconds = self._ticks(20) if self._chance(0.5) else 1e6
            execution.child_ignores_term = self._chance(0.4)
            execution.child_left_group = self._chance(0.5)
        if self._chance(0.03):
            execution.cannot_start = True
        return execution

    def _form_gang(self, ranks: Sequence[Process]) -> None:
        """Make processes the ranks of a gang, which have the same settings."""
        first = ranks[0]
        for rank in ranks:
            rank.gang = "gang"
            rank.restart, rank.max_restarts = first.restart, first.max_restarts
            rank.backoff, rank.starts_after = first.backoff, dict(first.starts_after)
            rank.deadline = None

    def _limit_machines(self, processes: Sequence[Process]) -> None:
        """Let the ranks of the gang wait for machines, which are not always found in time."""
        within = self._pick((2.0, 4.0))
        for process in processes:
            if process.gang is None:
                continue
            process.place_within = within
            for execution in process.executions:
                if self._chance(0.5):
                    execution.placed_after = self._ticks(10) if self._chance(0.8) else None

    def _set_policies(self, scenario: Scenario) -> None:
        names = [process.name for process in scenario.processes]
        if self._chance(0.2):
            scenario.ends_with = [self._pick(names)]
        if self._chance(0.3):
            scenario.on_failure = self._pick(("stop", "stop", "restart"))
            scenario.max_restarts = int(self._random() * 3)
            scenario.backoff = self._pick((None, 1.0))
        if self._chance(0.15):
            scenario.deadline = 1.0 + self._ticks(40)

    def _add_requests(self, scenario: Scenario, names: Sequence[str]) -> None:
        for _ in range(1 + int(self._random() * 4)):
            kind = self._pick(REQUESTS)
            happening = Happening(self._ticks(_LAST_HAPPENING_TICKS), kind, self._some(names))
            if kind in ("stop", "restart") and self._chance(0.4):
                happening.value = self._pick((0.0, 1.0, 3.0))
            if kind == "up":
                happening.names = [self._pick(names)]
                happening.value = self._pick(("alter", "remove", "add"))
            if kind == "scale":
                happening.names = []
                happening.value = int(self._random() * (len(names) + 2))
            scenario.happenings.append(happening)
        if self._chance(0.4):
            at = self._ticks(_LAST_HAPPENING_TICKS)
            scenario.happenings.append(Happening(at, self._pick(("down", "down", "down-now"))))

    def _add_disruptions(self, scenario: Scenario, names: Sequence[str]) -> None:
        for _ in range(1 + self._chance(0.3)):
            kind = self._pick(DISRUPTIONS)
            at = self._ticks(_LAST_HAPPENING_TICKS)
            scenario.happenings.append(Happening(at, kind, self._some(names)))

    def _add_eviction(self, scenario: Scenario) -> None:
        at, how = self._ticks(_LAST_HAPPENING_TICKS), self._pick(("asks", "kills"))
        scenario.happenings.append(Happening(at, "evict-all", [], how))

    def _add_crashes(self, scenario: Scenario) -> None:
        """Kill the supervisor at a few moments, most of which are early, and sometimes
        its guardian.
        """
        if self._chance(0.3):
            scenario.happenings.append(Happening(self._ticks(12), "guardian-killed"))
        for _ in range(1 + int(self._random() * 2.5)):
            furthest = self._pick((6, 20, 60))
            point = int(self._random() * furthest)
            downtime = self._ticks(8) if self._chance(0.6) else 0.0
            crash = Crash(point, downtime, self._chance(0.3), self._chance(0.3))
            scenario.crashes.append(crash)
