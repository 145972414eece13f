"""What is known of running processes: one portable set of states for every backend."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any


class State(str, enum.Enum):
    """Where a process is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


class ReasonCode(str, enum.Enum):
    """Why a process is in its state, as a value that programs can compare.

    Every backend uses the same codes. `ProcessStatus.reason` has the words for a person, which differ
    between backends and may change.
    """

    # The process has not started yet.
    WAITING = "waiting"  # for another process, because of `starts_after`
    SCHEDULING = "scheduling"  # no machine has been chosen yet
    UNSCHEDULABLE = "unschedulable"  # no machine fits
    PULLING_IMAGE = "pulling-image"
    IMAGE_UNAVAILABLE = "image-unavailable"
    CREATING = "creating"  # volumes, the network and init containers are being set up
    MOUNT_FAILED = "mount-failed"
    NOT_PERMITTED = "not-permitted"  # a quota or a policy refuses it
    CANNOT_START = "cannot-start"  # the command or its directory cannot be used
    BACKING_OFF = "backing-off"  # it failed, and starts again after a delay

    # The process is running.
    NOT_READY = "not-ready"  # the time to become ready has passed
    DELETING = "deleting"  # it is being stopped and removed
    SUPERVISOR_KILLED = "supervisor-killed"  # nothing restarts it any more or probes its readiness

    # The process has exited, or will never start.
    EXITED = "exited"  # on its own, with an exit code
    KILLED = "killed"  # by a signal that symphony did not send
    OUT_OF_MEMORY = "out-of-memory"
    DEADLINE_EXCEEDED = "deadline-exceeded"
    EVICTED = "evicted"
    STOPPED = "stopped"  # by symphony
    NEVER_STARTED = "never-started"  # what it waited for cannot happen any more
    LOST = "lost"  # no process saw how it ended

    def __str__(self) -> str:
        return self.value


ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One process as it was when somebody looked.

    ``exit_code`` follows the shell: 128 + n for a process that signal n ended. ``started`` and ``ended``
    are seconds since the epoch, of the latest start where it was restarted. ``stopped`` says that
    symphony itself ended the process, which is no failure. ``pid`` is set where the backend has one.
    ``not_ready_in_time`` means that the process runs and was not ready before its timeout. A backend that keeps
    probing clears it once the process is ready.
    """

    name: str
    group: str | None = None
    state: State = State.PENDING
    ready: bool = False
    exit_code: int | None = None
    reason: str = ""
    reason_code: ReasonCode | None = None
    restarts: int = 0
    started: float | None = None
    ended: float | None = None
    stopped: bool = False
    pid: int | None = None
    not_ready_in_time: bool = False

    @property
    def path(self) -> str:
        """``group/process``, or ``process`` where it is in no group."""
        return f"{self.group}/{self.name}" if self.group else self.name

    @property
    def failed(self) -> bool:
        """Whether this is a failure of the process's own."""
        return self.state in (State.FAILED, State.UNKNOWN) and not self.stopped

    def to_dict(self) -> dict[str, Any]:
        """The status as JSON knows it."""
        code = None if self.reason_code is None else str(self.reason_code)
        data = {**asdict(self), "state": str(self.state), "reason_code": code}
        data["late"] = data.pop("not_ready_in_time")  # the JSON format has the short key
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentStatus:
    """An experiment and its processes, in declaration order.

    ``note`` is for what concerns all of it (``the supervisor was killed``), ``created`` seconds since the epoch.
    """

    name: str
    backend: str
    processes: tuple[ProcessStatus, ...] = ()
    created: float | None = None
    note: str = ""

    def __iter__(self) -> Iterator[ProcessStatus]:
        return iter(self.processes)

    @property
    def state(self) -> State:
        """All in one word: what is worst among those that ended, else what still goes on."""
        return combined_state(process.state for process in self.processes)

    @property
    def ended(self) -> bool:
        """Whether every process has ended."""
        return all(process.state in ENDED for process in self.processes)

    @property
    def exit_code(self) -> int:
        """0 when all succeeded, else that of the failure that came first (1 where it has none)."""
        failures = [process for process in self.processes if process.failed]
        if not failures:
            return 0
        first = min(failures, key=lambda process: process.ended or float("inf"))
        return first.exit_code or 1

    def to_dict(self) -> dict[str, Any]:
        """The status as JSON knows it."""
        return {
            "name": self.name,
            "backend": self.backend,
            "state": str(self.state),
            "created": self.created,
            "note": self.note,
            "processes": [process.to_dict() for process in self.processes],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line that a process wrote, without its newline."""

    process: str
    text: str


_WORST_FIRST = (State.RUNNING, State.PENDING, State.UNKNOWN, State.FAILED, State.SUCCEEDED)


def combined_state(states: Iterable[State]) -> State:
    """One state for many: what still goes on outranks what has ended, and the worst end the better.

    >>> combined_state([State.SUCCEEDED, State.FAILED]).value
    'failed'
    """
    present = set(states)
    return next((state for state in _WORST_FIRST if state in present), State.SUCCEEDED)
