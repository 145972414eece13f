"""The observations of an executor: facts about processes, without any decision."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from symphony.plan.disruption import Disruption
from symphony.plan.policies import Ending
from symphony.status import ReasonCode


class Seen(NamedTuple):
    """The facts that an executor knows about one process. Times are in seconds since the epoch.

    A process that is missing in an `Observation`, or whose ``attempt`` is less than that of the
    record, has nothing new: nothing is decided about its exit.

    * ``attempt`` is the number of the latest execution: that of `actions.Start`, or -1 if there is
      none. An execution that a killed supervisor has started without recording it has the number
      `state.Track.attempts`.
    * ``starting`` is true while the executor starts the process and does not know the result.
      ``failed`` is true if it could not be started, because of ``reason``, and ``refused`` if every
      further attempt would fail too.
    * ``running`` is true while the process is running. If all three are false, it has exited, with
      ``exit_code``, or None if the exit code is unknown. ``reason`` is the executor's explanation
      of the exit, or ``""``. ``log_bytes`` is the length of its log at the exit, if readers need
      it. ``reason_code`` is not None if the platform explains the exit completely.
    * ``since`` is the time at which this state began, or None if it has just begun.
    * ``pid``, ``birth`` and ``log_start`` are values of the execution for the record.
    * ``disruption`` is what has taken the process away from outside, such as the loss of its node,
      or None. While the process is ``running`` nevertheless, nothing follows from it.
    * ``ready`` is true when the readiness test has succeeded. ``test_result`` is its latest result
      that is worth recording, or ``""``. ``testing`` is true while a test is running that can still
      succeed before the timeout.
    * ``failed_tests`` is how many health tests have failed in a row until now, and
      ``health_result`` the result of the latest of them.
    * ``signaled_at`` is the time at which the stop of this execution has begun, or None.
      ``kill_at`` is the time at which the executor has been told to kill it, and ``killed`` is true
      when this has happened.
    * ``background`` names a program that the process has left running outside of its process group,
      such as ``"redis-server (pid 123)"``, or is ``""``. ``in_background`` is true while it runs.
    * ``leftovers`` is true if the process has exited and programs in its process group are running.
    * ``cleared`` is true if no program is running that an earlier execution has left behind outside
      its process group, and ``clearing`` if the executor has looked and is stopping some.
    * ``reserved`` is true if the resources of the process are reserved, and ``unavailable`` is why
      they could not be reserved, or ``""``.
    * ``done_by`` names the platform if it has started or stopped this execution by itself.
    * ``placed`` is false while no machine has been found on which the process can run.
      ``placed_since`` is the time at which one was found, or None if it is not known.
    """

    attempt: int = -1
    starting: bool = False
    failed: bool = False
    refused: bool = False
    running: bool = False
    exit_code: int | None = None
    reason: str = ""
    log_bytes: int | None = None
    since: float | None = None
    pid: int = 0
    birth: float = 0.0
    log_start: int = 0
    disruption: Disruption | None = None
    ready: bool = False
    test_result: str = ""
    testing: bool = False
    failed_tests: int = 0
    health_result: str = ""
    signaled_at: float | None = None
    kill_at: float | None = None
    killed: bool = False
    background: str = ""
    in_background: bool = False
    leftovers: bool = False
    cleared: bool = False
    clearing: bool = False
    reserved: bool = False
    unavailable: str = ""
    done_by: str = ""
    reason_code: ReasonCode | None = None
    placed: bool = True
    placed_since: float | None = None

    def changed(self, changes: Mapping[str, Any]) -> Seen:
        """Return a copy with other values of some fields, faster than `_replace`."""
        values: list[Any] = list(self)
        for name, value in changes.items():
            values[_POSITIONS[name]] = value
        return _new_tuple(Seen, values)


_new_tuple = tuple.__new__
_POSITIONS = {name: position for position, name in enumerate(Seen._fields)}
ABSENT = Seen()


def is_active(seen: Seen) -> bool:
    """Return whether a process or a program of its group is running or starting."""
    return seen.running or seen.leftovers or seen.starting


class Observation(NamedTuple):
    """The facts that an executor knows about an experiment.

    * ``processes`` maps names to what is known about processes. It can contain processes that a
      change has removed, until the executor has carried out `actions.Remove`.
    * ``strays`` is true if programs of the experiment are running that belong to no process, and
      None if the executor has not looked for them since the latest start. ``strays_since`` is the
      time at which they were found first, and ``strays_killed`` is true when they were killed.
    * ``released`` is the number of the latest change whose `actions.Release` was carried out.
    * ``eviction`` is why the system stops the whole experiment, or None.
    * ``kills_at_once`` is true if a user stops the experiment without grace periods.
    * ``active`` contains the processes for which `is_active` is true, and ``news`` those about
      which something is new since the latest decision. They are None if the executor does not keep
      them; see `Known`. Then, all processes are examined.
    """

    processes: Mapping[str, Seen]
    strays: bool | None = False
    strays_since: float | None = None
    strays_killed: bool = False
    released: int = 0
    eviction: Ending | None = None
    kills_at_once: bool = False
    active: Collection[str] | None = None
    news: Collection[str] | None = None


class Known:
    """The facts that an executor knows about the processes, for its observations.

    ``processes``, ``active`` and ``news`` are those of an `Observation`. Until the first decision,
    ``news`` is None. It keeps the order in which something has happened.
    """

    __slots__ = ("active", "news", "processes")

    def __init__(self) -> None:
        self.processes: dict[str, Seen] = {}
        self.active: dict[str, None] = {}
        self.news: dict[str, None] | None = None

    def put(self, name: str, seen: Seen) -> None:
        """Replace what is known about a process."""
        self.processes[name] = seen
        if is_active(seen):
            self.active[name] = None
        else:
            self.active.pop(name, None)
        if self.news is not None:
            self.news[name] = None

    def forget(self, name: str) -> None:
        """Forget a process that does not belong to the experiment any more."""
        self.processes.pop(name, None)
        self.active.pop(name, None)
        if self.news is not None:
            self.news.pop(name, None)

    def note_decision(self) -> None:
        """Note that what is known until now was considered in a decision."""
        self.news = {}
