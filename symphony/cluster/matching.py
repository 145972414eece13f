"""Match the names of experiments and processes, and create the errors that all backends share.

The functions use only names and statuses, and do not access a backend.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from symphony.errors import AlreadyExists, NotFound, SpecError, Unsupported, shown
from symphony.status import ENDED, ExperimentStatus, ProcessStatus
from symphony.support.data_classes import replace
from symphony.support.names import did_you_mean, join_names
from symphony.support.select_names import NameIndex, select_names

if TYPE_CHECKING:
    from symphony.plan.changes import Changes

# The maximum number of processes that an error message names.
_MAX_NAMES = 10
# The condition for which `Cluster.wait` waits.
Until = Literal["started", "ready", "ended"]


def fuzzy_match(name: str, known: Sequence[str]) -> list[str]:
    """Return the known names that ``name`` can refer to.

    The result contains only the best matches: names equal to ``name``, else names that begin with
    it, else names that end with it, else names that contain it.

    >>> fuzzy_match("agent", ["agent-1", "agent-2", "big-agent"])
    ['agent-1', 'agent-2']
    """
    tests: tuple[Callable[[str], bool], ...] = (
        lambda other: other == name,
        lambda other: other.startswith(name),
        lambda other: other.endswith(name),
        lambda other: name in other,
    )
    for test in tests:
        matches = [other for other in known if test(other)]
        if matches:
            return matches
    return []


def find_status(
    status: ExperimentStatus, process: str, process_group: str | None = None
) -> ProcessStatus:
    """Return the status of ``process`` from its experiment's ``status``.

    Raises `NotFound` if the process does not exist, or if it is not in ``process_group``.
    """
    by_name = {item.name: item for item in status}
    found = by_name.get(process)
    if found is None:
        hint = did_you_mean(process, by_name) or f"; its processes are {join_names(by_name)}"
        raise NotFound(f"experiment {status.name!r} has no process {shown(process)}{hint}")
    if process_group is not None and found.group != process_group:
        actual = f"in group {found.group!r}" if found.group else "in no group"
        raise NotFound(
            f"process {process!r} of experiment {status.name!r} is {actual}, "
            f"not in {process_group!r}; write {found.path}"
        )
    return found


def find_by_path(status: ExperimentStatus, path: str) -> ProcessStatus:
    """Return the status of a process. ``path`` is its name, or ``group/process``."""
    group, _, name = path.rpartition("/")
    return find_status(status, name, group or None)


def find_names(
    status: ExperimentStatus,
    processes: Sequence[str] | None,
    removed: Callable[[], Collection[str]] = tuple,
) -> list[str]:
    """Return the names of the processes that ``processes`` select, as in `select_processes`.

    If ``processes`` is empty or None, return the names of all processes. ``removed`` returns the
    names of removed processes, which can be given, too; see `Cluster.removed_processes`. It is
    called only if a name is not the name of a process. Raises `NotFound` if a process does not
    exist, or if it is not in the given group.
    """
    if not processes:
        return [item.name for item in status]
    by_given = {given: item.name for item in status for given in (item.name, item.path)}
    index: NameIndex | None = None
    names: list[str] = []
    for given in dict.fromkeys(processes):
        name = by_given.get(given)
        if name is None and given in removed():
            name = given
        if name is not None:
            names.append(name)
            continue
        index = index or NameIndex(status.processes)
        selected = index.matching(given)
        if not selected:
            group, _, own_name = given.rpartition("/")
            selected = [find_status(status, own_name, group or None).name]
        names += selected
    return list(dict.fromkeys(names))


class SelectedNames(Collection[str]):
    """The names of the processes that ``processes`` select, as in `find_names`.

    A change can add processes: a name that is not known yet is looked up in a new status, which
    ``describe`` returns.
    """

    def __init__(
        self,
        status: ExperimentStatus,
        processes: Sequence[str],
        describe: Callable[[], ExperimentStatus],
        removed: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._processes = processes
        self._describe = describe
        self._removed = removed
        self._selected = dict.fromkeys(find_names(status, processes, removed))
        self._known = {process.name for process in status}.union(self._selected)

    def __contains__(self, name: object) -> bool:
        if name in self._selected:
            return True
        if not isinstance(name, str) or name in self._known:
            return False
        self._known.add(name)
        # The selected processes can have been removed, or the experiment deleted.
        with contextlib.suppress(NotFound):
            status = self._describe()
            self._known.update(process.name for process in status)
            self._selected.update(dict.fromkeys(find_names(status, self._processes, self._removed)))
        return name in self._selected

    def __iter__(self) -> Iterator[str]:
        return iter(self._selected)

    def __len__(self) -> int:
        return len(self._selected)


def select_processes(status: ExperimentStatus, names: Sequence[str] | None) -> list[ProcessStatus]:
    """Return the processes that ``names`` select, in declaration order.

    Each name is a process, ``group/process``, a group, or a process or group with a count, such as
    ``agent`` for ``agent-0`` and ``agent-1``. It can also be a pattern, such as ``agent-*``. If
    ``names`` is None, return all processes. Raises `NotFound` if a name selects no process.
    """
    if names is None:
        return list(status)
    selected = select_names(status.name, status.processes, names)
    return [process for process in status if process.name in selected]


def narrowed(status: ExperimentStatus, processes: Sequence[ProcessStatus]) -> ExperimentStatus:
    """Return ``status`` with only ``processes``, which alone then determine its state and its exit
    code.
    """
    names = {process.name for process in processes}
    selected = tuple(process for process in status if process.name in names)
    if len(selected) == len(status.processes):
        return status
    return replace(status, processes=selected, ends_with=())


_CONDITION_MET: dict[str, Callable[[ProcessStatus], bool]] = {
    "started": lambda process: process.started is not None,
    "ready": lambda process: process.ready or process.not_ready_in_time,
    "ended": lambda _: False,
}


def still_awaited(
    status: ExperimentStatus, until: Until, processes: Sequence[str] | None = None
) -> list[str]:
    """Return the paths of the processes for which `Cluster.wait` must continue to wait.

    ``processes`` selects processes as in `select_processes`. `Cluster.wait` does not wait for
    processes that have finished or, with ``until="ready"``, for processes that did not become ready
    in time. Raises `SpecError` if ``until`` is not a valid condition, and `NotFound` if an element
    of ``processes`` selects no process.
    """
    if until not in _CONDITION_MET:
        hint = did_you_mean(str(until), _CONDITION_MET)
        raise SpecError(f"until must be {', '.join(_CONDITION_MET)}, not {until!r}{hint}")
    is_met = _CONDITION_MET[until]
    return [
        process.path
        for process in select_processes(status, processes)
        if process.state not in ENDED and not is_met(process)
    ]


def wait_timeout(
    status: ExperimentStatus, until: Until, awaited: Sequence[str], timeout: float
) -> TimeoutError:
    """Return the error that `Cluster.wait` raises when its ``timeout`` (in seconds) expires.

    ``awaited`` contains the paths of the processes for which it waits; see `still_awaited`. The
    error says what each of them waits for, and also names the processes that have failed.
    """
    state = "is still running" if until == "ended" else f"is not {until}"
    waiting = [_with_cause(process) for process in status if process.path in awaited]
    names = join_names(waiting, limit=_MAX_NAMES)
    message = f"experiment {status.name!r} {state} after {timeout:g} s: {names}"
    failed = [_with_exit_code(process) for process in status if process.failed]
    if failed:
        message = f"{message}; failed: {join_names(failed, limit=_MAX_NAMES)}"
    return TimeoutError(message)


def _with_cause(process: ProcessStatus) -> str:
    """Return the path of a process, and why it is in its state, if this is known."""
    cause = process.test_result or process.reason
    return f"{process.path} ({cause})" if cause else process.path


def _with_exit_code(process: ProcessStatus) -> str:
    if process.exit_code is None:
        return process.path
    return f"{process.path} (exit code {process.exit_code})"


class ExperimentIsRunning(AlreadyExists):
    """Raised for launching an experiment whose name is in use by a running experiment."""


def check_not_running(observe: Callable[[str], ExperimentStatus], name: str) -> None:
    """Raise `AlreadyExists` if an experiment with this name has not finished."""
    with contextlib.suppress(NotFound):
        if not observe(name).ended:
            raise experiment_exists(name)


def experiment_exists(name: str) -> ExperimentIsRunning:
    """Return the error for launching an experiment whose name is in use by a running experiment."""
    return ExperimentIsRunning(
        f"experiment {name!r} is running and was not changed; delete it, or launch with force"
    )


def runs_from_elsewhere(name: str, origin: str) -> AlreadyExists:
    """Return the error for changing or launching an experiment whose name is in use by a running
    experiment with another origin; see `symphony.archive.origin`.
    """
    return AlreadyExists(
        f"experiment {name!r} runs from {origin} and was not changed; run a copy of it from this "
        "directory (--copy), choose another name (--name), or replace it with: launch --force"
    )


def launched_at_the_same_time(name: str) -> AlreadyExists:
    """Return the error for a launch with force that another launch of the name has overtaken."""
    return AlreadyExists(
        f"another command has launched experiment {name!r} at the same time, and that experiment "
        "was not changed; to replace it, run the command again"
    )


def launch_in_progress(name: str) -> AlreadyExists:
    """Return the error for an experiment that another command is launching."""
    return AlreadyExists(
        f"another command is launching experiment {name!r}, so nothing was changed; wait until it "
        "is done, and run the command again"
    )


def cannot_change(changes: Changes) -> AlreadyExists:
    """Return the error for a change that requires another launch."""
    reasons = "; ".join(changes.relaunch)
    return AlreadyExists(
        f"experiment {changes.experiment!r} cannot be changed while it is running: {reasons}; "
        "delete it, or use force to launch it again"
    )


def experiment_not_found(name: str, known: Iterable[str], location: str = "") -> NotFound:
    """Return the error for an unknown experiment. ``known`` contains the names of existing
    experiments, which are in ``location``.
    """
    known = list(known)
    if not known and location:
        return NotFound(f"no experiment {shown(name)}; there are no experiments in {location}")
    hint = did_you_mean(name, known) or f"; existing experiments: {join_names(known)}"
    return NotFound(f"no experiment {shown(name)}{hint}")


def unsupported(backend: str, what: str) -> Unsupported:
    """Return the error for a method that a backend does not have.

    ``what`` says what it cannot do.
    """
    return Unsupported(f"the {backend} backend {what}")
