"""What happens in one simulated history, as data that can be shrunk.

A scenario contains everything that the outside world does: what each execution of a process does,
what users request, which machines are lost, when the supervisor is killed and how late its
observations are. The seed determines the scenario. A run of a scenario needs no random number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# Times are multiples of this number of seconds, so that different things often happen at once.
TICK = 0.5


@dataclass(slots=True)
class Execution:
    """What one execution of a process does. Times are in seconds.

    The process exits with ``code`` ``exits_after`` seconds after its start, or runs until it is
    stopped if this is None. If it has a readiness test, it becomes ready after ``ready_after``
    seconds, or never if this is None. After SIGTERM, it exits within ``stops_after`` seconds, or
    ignores the signal if this is None. A child process outlives it by ``child_seconds`` seconds if
    this is not None, and exits at once when it is signaled, unless ``child_ignores_term`` is true.
    The child has left the process group if ``child_left_group`` is true. If ``cannot_start`` is
    true, the command cannot be run. A machine for it is found after ``placed_after`` seconds, or
    never if this is None. The times before its exit and its readiness begin then. If it has a
    health test, this begins to fail ``unhealthy_after`` seconds after it is ready, or after its
    begin if it has no readiness test, unless this is None. If ``recovers`` is true, only two tests
    fail.
    """

    exits_after: float | None = None
    code: int = 0
    ready_after: float | None = None
    stops_after: float | None = 0.0
    child_seconds: float | None = None
    child_ignores_term: bool = False
    child_left_group: bool = False
    cannot_start: bool = False
    placed_after: float | None = 0.0
    unhealthy_after: float | None = None
    recovers: bool = False


@dataclass(slots=True)
class Process:
    """The settings of a process, and what its executions do.

    After the last of ``executions``, each further execution does the same as the last. A change of
    ``version`` means that the command has changed. If ``reserves`` is true, the process needs
    resources such as GPUs, which are reserved again when a request starts it. After
    ``max_failed_tests`` failed health tests in a row, it is stopped and has failed.
    ``place_within`` is the time within which machines must be found for all ranks of its gang, or
    0.0 for no limit.
    """

    name: str
    restart: str = "Never"
    max_restarts: int | None = None
    backoff: float | None = None
    starts_after: dict[str, str] = field(default_factory=dict)
    has_probe: bool = False
    ready_timeout: float = 30.0
    max_failed_tests: int | None = None
    grace: float = 5.0
    deadline: float | None = None
    gang: str | None = None
    place_within: float = 0.0
    reserves: bool = False
    version: int = 0
    executions: list[Execution] = field(default_factory=lambda: [Execution()])


@dataclass(slots=True)
class Happening:
    """Something that a user or the outside world does ``at`` seconds after the launch.

    ``kind`` is one of those in `KINDS`. ``names`` contains the processes that it concerns, and
    ``value`` a grace period, a signal or the kind of a change.
    """

    at: float
    kind: str
    names: list[str] = field(default_factory=list)
    value: Any = None


@dataclass(slots=True)
class Crash:
    """The death of the supervisor at the ``point``-th moment before or after a write or an action.

    The next supervisor begins ``downtime`` seconds later. If ``torn`` is true, half of the line
    that is being written is on the disk. If ``codes_lost`` is true, nobody keeps the exit codes of
    the processes that exit in the meantime, because the guardian is dead, too.
    """

    point: int
    downtime: float = 0.0
    torn: bool = False
    codes_lost: bool = False


@dataclass(slots=True)
class Scenario:
    """Everything that determines one history.

    ``delays`` contains the seconds by which the observations of the executor are late, in turn, and
    ``repeats`` says in turn whether an observation comes twice. ``record_limit`` is the number of
    events after which a checkpoint replaces the oldest ones, or None.
    """

    seed: int
    processes: list[Process]
    ends_with: list[str] = field(default_factory=list)
    on_failure: str = "continue"
    max_restarts: int | None = None
    backoff: float | None = None
    deadline: float | None = None
    happenings: list[Happening] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    repeats: list[bool] = field(default_factory=list)
    record_limit: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the scenario as a dictionary of JSON-serializable values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scenario:
        """Create a scenario from the output of `to_dict`."""
        values = dict(data)
        values["processes"] = [_process(item) for item in data["processes"]]
        values["happenings"] = [Happening(**item) for item in data["happenings"]]
        values["crashes"] = [Crash(**item) for item in data["crashes"]]
        return cls(**values)


def _process(data: Mapping[str, Any]) -> Process:
    executions = [Execution(**item) for item in data["executions"]]
    return Process(**{**data, "executions": executions})
