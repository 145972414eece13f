"""What the promises remember of a history: the past of each process and of the experiment."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulate.clock import LAUNCH_TIME
from simulate.machine import Machine, Program
from simulate.scenario import Process, Scenario

# Rounding errors of sums of times.
EPSILON = 1e-6
# The cause of a restart of an experiment that the system has stopped.
EVICTION_CAUSE = "evicted"
# The default delays before restarts, in seconds; see `symphony.plan.restart_policy.Backoff`.
_FIRST_BACKOFF, _LONGEST_BACKOFF = 10.0, 300.0


@dataclass(slots=True)
class Asked:
    """A request of a user that the supervisor has accepted.

    ``programs`` contains the latest execution of each of its processes at that moment, and
    ``concerned`` those on which the request has an effect: a process that has ended cannot be
    stopped, and a process that runs cannot be started. ``is_replaced`` is true if a later request
    stops one of them; the supervisor then answers that it was interrupted.
    """

    number: int
    kind: str
    names: tuple[str, ...]
    grace: float | None
    at: float
    removed: tuple[str, ...] = ()
    concerned: tuple[str, ...] = ()
    is_done: bool = False
    is_replaced: bool = False
    programs: list[Program] = field(default_factory=list)
    is_answered: bool = False


class Past:
    """The past of one process.

    ``first`` is the index in ``programs`` of the first execution that counts: a user, a change or a
    restart of the experiment begins to count anew. ``resumed`` is the index of the first execution
    after the latest disruption; others wait until it runs, or is ready, again. ``restarts`` is the
    number of restarts that count since then, and ``in_row`` that of those that determine the next
    delay. ``may_start`` is true if a user has asked for a start that has not happened yet, and
    ``must_start`` if the request has an effect because the process did not run. ``is_prevented`` is
    true if a user has stopped it when it had ended by itself and was to start again, so that its
    end still counts for the processes that wait for it. ``was_stopped`` is true if a user had
    stopped it before the latest request that starts it, until ``start-requested`` is recorded.
    ``is_given_up`` is true if it was recorded that the process does not start any more. ``graces``
    contains the grace periods that can apply to the present stop, each with the time at which it
    began to apply.
    """

    __slots__ = (
        "first",
        "first_started",
        "graces",
        "in_row",
        "is_given_up",
        "is_prevented",
        "is_removed",
        "is_stopped",
        "may_start",
        "must_start",
        "never_ready",
        "programs",
        "ready_recorded",
        "restarts",
        "resumed",
        "settings",
        "stop_request",
        "was_stopped",
    )

    def __init__(self, settings: Process) -> None:
        self.settings = settings
        self.programs: list[Program] = []
        self.first = self.resumed = 0
        self.restarts = self.in_row = 0
        self.is_stopped = self.was_stopped = self.is_removed = self.is_given_up = False
        self.may_start = self.must_start = self.is_prevented = False
        self.ready_recorded = self.never_ready = False
        self.graces: list[tuple[float, float]] = []
        self.first_started: float | None = None
        self.stop_request: Asked | None = None

    @property
    def latest(self) -> Program | None:
        """The latest execution that counts, or None."""
        return self.programs[-1] if len(self.programs) > self.first else None

    @property
    def is_running(self) -> bool:
        """True if an execution is running, whether it counts or not."""
        return bool(self.programs) and self.programs[-1].ended is None

    @property
    def is_recorded_as_running(self) -> bool:
        """True if the start of the latest execution is recorded, and its exit is not."""
        program = self.programs[-1] if self.programs else None
        return program is not None and program.start_recorded and not program.exit_recorded

    @property
    def is_held(self) -> bool:
        """True if processes that wait for this one wait until a user starts it.

        They do not wait while it runs, or starts again, and is being stopped.
        """
        if not self.is_stopped or self.is_prevented:
            return False
        if not self.programs:
            return True
        latest = self.programs[-1]
        return latest.exit_recorded or latest.execution.cannot_start

    @property
    def was_ready(self) -> bool:
        """True if an execution for which others wait has been ready."""
        return any(each.ready is not None for each in self.awaited)

    @property
    def awaited(self) -> list[Program]:
        """The executions that can meet the start conditions of other processes."""
        return self.programs[max(self.first, self.resumed) :]

    def is_overdue(self, now: float) -> bool:
        """Return whether the process's own deadline has passed."""
        deadline, started = self.settings.deadline, self.first_started
        return deadline is not None and started is not None and now >= started + deadline - EPSILON

    def count_anew(self) -> None:
        """Begin to count executions and restarts anew."""
        self.first = len(self.programs)
        self.restarts = self.in_row = 0
        self.ready_recorded = self.never_ready = self.is_given_up = False
        self.first_started = None

    def await_again(self) -> None:
        """Let other processes wait until the process runs, or is ready, again."""
        self.resumed, self.ready_recorded = len(self.programs), False

    def allow_grace(self, grace: float | None, since: float) -> None:
        """Note that a grace period applies from now on; None is that of the process."""
        self.graces.append((self.settings.grace if grace is None else grace, since))

    @property
    def shortest_grace(self) -> float:
        """The shortest grace period that applies to the present stop."""
        return min((grace for grace, _ in self.graces), default=self.settings.grace)

    def kill_times(self, terminated: float) -> tuple[float, float]:
        """Return the earliest and the latest time at which a kill keeps the grace periods."""
        graces = self.graces or [(self.settings.grace, terminated)]
        # A process that has had its grace period since the signal needs no other one.
        shortest = min(grace for grace, _ in graces)
        return terminated + shortest, max(max(terminated, since) + grace for grace, since in graces)

    def may_restart(self, program: Program) -> bool:
        """Return whether the policy restarts the process after an execution."""
        settings = self.settings
        if program.is_lost:
            return settings.restart != "Never"
        has_failed = not program.has_succeeded
        applies = settings.restart == "Always" or (settings.restart == "OnFailure" and has_failed)
        limit = settings.max_restarts
        return applies and (limit is None or self.restarts < limit)

    def restart_delay(self) -> float:
        """Return the delay before the next restart in seconds."""
        return backoff_delay(self.in_row, self.settings.backoff)


def backoff_delay(in_row: int, first: float | None) -> float:
    """Return the delay after a number of consecutive restarts."""
    if in_row == 0:
        return 0.0
    delay = (_FIRST_BACKOFF if first is None else first) * 2.0 ** (in_row - 1)
    return min(delay, _LONGEST_BACKOFF)


@dataclass(slots=True)
class Gang:
    """The past of a gang: how often its ranks have been restarted, those of the last time, and when
    the first of these started.

    ``released`` is the time at which its ranks were first stopped because machines were not found
    for all of them, until they start again, or None.
    """

    restarts: int = 0
    restarted: list[str] = field(default_factory=list)
    began: float = 0.0
    released: float | None = None

    def count_anew(self) -> None:
        """Set the count of restarts to zero, because a user or the experiment starts the ranks."""
        self.forget_restarts()
        if self.released is not None:
            # The user does not want to wait until others have used the machines.
            self.released = 0.0

    def forget_restarts(self) -> None:
        """Forget how often the ranks have been restarted."""
        self.restarts = 0
        self.restarted.clear()


@dataclass(slots=True)
class Experiment:
    """The past of an experiment.

    ``stopping_since`` is the time from which on nothing starts any more. ``is_restarting`` is true
    while all processes are stopped in order to be started again. ``is_at_once`` is true if a user
    stops all processes without an order, and ``kills_at_once`` if there are no grace periods.
    ``is_evicted`` is true if the system has stopped the experiment at least once. ``restarts`` are
    those after failures, and ``in_row`` those of them that determine the next delay.
    """

    scenario: Scenario
    machine: Machine
    pasts: dict[str, Past]
    gone: list[Past] = field(default_factory=list)
    gangs: dict[str, Gang] = field(default_factory=dict)
    asked: dict[int, Asked] = field(default_factory=dict)
    ends_with: list[str] = field(default_factory=list)
    stopping_since: float | None = None
    ending: str = ""
    is_stopped_by_user: bool = False
    is_evicted: bool = False
    is_restarting: bool = False
    is_at_once: bool = False
    kills_at_once: bool = False
    restarts: int = 0
    in_row: int = 0
    restart_due: float = 0.0
    launched: float = LAUNCH_TIME

    def restart_delay(self) -> float:
        """Return the delay before the next restart of the experiment in seconds."""
        return backoff_delay(self.in_row, self.scenario.backoff)

    def past(self, name: str) -> Past | None:
        """Return the past of a process, or of one that a change has removed."""
        found = self.pasts.get(name)
        if found is not None:
            return found
        namesakes = [each for each in self.gone if each.settings.name == name]
        return namesakes[-1] if namesakes else None

    def is_asked(self, kind: str, name: str) -> bool:
        """Return whether a request of a kind for a process is in progress."""
        return any(
            asked.kind == kind and not asked.is_done and name in asked.names
            for asked in self.asked.values()
        )

    def gang_of(self, past: Past) -> list[Past]:
        """Return the ranks of the gang of a process, or an empty list if it is in none."""
        gang = past.settings.gang
        if gang is None:
            return []
        return [each for each in self.pasts.values() if each.settings.gang == gang]

    def removed_from(self, gang: str | None) -> list[Past]:
        """Return the ranks that changes of the experiment have removed from a gang."""
        return [each for each in self.gone if gang is not None and each.settings.gang == gang]
