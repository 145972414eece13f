"""Which experiment or process is meant, and the words in which every backend says that one is not there, live or late.

Pure: names and statuses in, names, statuses and errors out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from symphony.errors import AlreadyExists, NotFound, SpecError
from symphony.names import did_you_mean, join_names
from symphony.status import ENDED, ExperimentStatus, ProcessStatus

# How far processes have come that `Cluster.wait` waits for.
Until = Literal["started", "ready", "ended"]


def fuzzy_match(name: str, known: Sequence[str]) -> list[str]:
    """The names that ``name`` may mean: equal, else beginning, else ending with it, else holding it.

    >>> fuzzy_match("agent", ["agent-1", "agent-2", "big-agent"])
    ['agent-1', 'agent-2']
    """
    tests: tuple[Callable[[str], bool], ...] = (
        lambda other: other == name,
        lambda other: other.startswith(name),
        lambda other: other.endswith(name),
        lambda other: name in other,
    )
    matches = ([other for other in known if test(other)] for test in tests)
    return next((found for found in matches if found), [])


def find_status(
    status: ExperimentStatus, process: str, process_group: str | None = None
) -> ProcessStatus:
    """One process out of an experiment's; a wrong group is an error, never another group's process."""
    by_name: Mapping[str, ProcessStatus] = {item.name: item for item in status}
    found = by_name.get(process)
    if found is None:
        hint = did_you_mean(process, by_name) or f"; it has {join_names(by_name)}"
        raise NotFound(f"experiment {status.name!r} has no process {process!r}{hint}")
    if process_group is not None and found.group != process_group:
        where = f"in group {found.group!r}" if found.group else "in no group"
        raise NotFound(
            f"process {process!r} of experiment {status.name!r} is {where}, not in {process_group!r}"
        )
    return found


def still_awaited(status: ExperimentStatus, until: Until) -> list[str]:
    """The processes that `Cluster.wait` still waits for: those that may yet come so far.

    Raises `SpecError` for what cannot be waited for.
    """
    if until not in _COME_SO_FAR:
        raise SpecError(
            f"until is {', '.join(_COME_SO_FAR)}, not {until!r}{did_you_mean(str(until), _COME_SO_FAR)}"
        )
    there = _COME_SO_FAR[until]
    return [process.path for process in status if process.state not in ENDED and not there(process)]


_COME_SO_FAR: dict[str, Callable[[ProcessStatus], bool]] = {
    "started": lambda process: process.started is not None,
    "ready": lambda process: process.ready or process.not_ready_in_time,
    "ended": lambda _: False,
}


def wait_timeout(name: str, until: Until, going: Sequence[str], timeout: float) -> TimeoutError:
    """The error of `Cluster.wait` when the time is up, in the words that every backend uses."""
    what = "still runs" if until == "ended" else f"is not {until}"
    return TimeoutError(f"experiment {name!r} {what} after {timeout:g} s: {join_names(going)}")


def experiment_exists(name: str) -> AlreadyExists:
    """The refusal of a live name, in the words that every backend uses."""
    return AlreadyExists(
        f"experiment {name!r} is live and was left alone; delete it, or launch with force"
    )


def experiment_not_found(name: str, known: Iterable[str]) -> NotFound:
    """The error for a name that is not there, in the words that every backend uses."""
    known = list(known)
    hint = did_you_mean(name, known) or f"; there are {join_names(known)}"
    return NotFound(f"no experiment {name!r}{hint}")
