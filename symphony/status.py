"""The status of experiments and processes, in the same form for every backend."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from symphony.support.data_classes import dataclass, field


class State(str, enum.Enum):
    """The state of a process."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


class ReasonCode(str, enum.Enum):
    """The reason for a process's state, as a value that programs can compare.

    Every backend uses the same codes. In contrast, the text in `ProcessStatus.reason` is for users,
    differs between backends, and can change.
    """

    # --- The process has not started yet, or will be restarted. ---

    # The process waits for another process because of `starts_after`.
    WAITING = "waiting"
    # The backend has not selected a machine yet.
    SCHEDULING = "scheduling"
    # No machine meets the process's requirements, such as free resources.
    UNSCHEDULABLE = "unschedulable"
    PULLING_IMAGE = "pulling-image"
    IMAGE_UNAVAILABLE = "image-unavailable"
    # The volumes, the network or the init containers of the process are being set up.
    CREATING = "creating"
    MOUNT_FAILED = "mount-failed"
    # A quota or a policy does not permit the process to be created.
    NOT_PERMITTED = "not-permitted"
    # The command cannot be run, or the working directory cannot be used.
    CANNOT_START = "cannot-start"
    # The process has exited and will be restarted, usually after a delay.
    BACKING_OFF = "backing-off"
    # The experiment is started again, because a process failed and `on_failure` is `restart`.
    EXPERIMENT_RESTARTS = "experiment-restarts"
    # A disruption, such as the drain of a node, has taken the process away. It is started again, or
    # has been started again and is running.
    DISRUPTED = "disrupted"

    # --- The process is running. ---

    # The process is not ready, and its timeout has not passed.
    NOT_READY_YET = "not-ready-yet"
    # The process did not become ready before its timeout.
    NOT_READY = "not-ready"
    # The process has exited, and the backend has not decided yet whether it has succeeded.
    FINISHING = "finishing"
    # The process has received SIGTERM, and is killed when its grace period is over.
    STOPPING = "stopping"
    # The process is being stopped and removed.
    DELETING = "deleting"
    # Its health tests have failed several times in a row, and it is being stopped because of this.
    # After its exit, it is the reason for its failure.
    UNHEALTHY = "unhealthy"
    # The process is no longer supervised: it is not restarted, and its readiness is not probed.
    SUPERVISOR_KILLED = "supervisor-killed"

    # --- The process has exited, or will never start. ---

    # The process exited with an exit code and was not killed by a signal.
    EXITED = "exited"
    # The process was killed by a signal that symphony did not send.
    KILLED = "killed"
    OUT_OF_MEMORY = "out-of-memory"
    DEADLINE_EXCEEDED = "deadline-exceeded"
    EVICTED = "evicted"
    # The process was stopped by symphony.
    STOPPED = "stopped"
    # The process was stopped because the processes in the experiment's `ends_with` have finished.
    EXPERIMENT_ENDED = "experiment-ended"
    # The process was stopped because another process failed and `on_failure` is `stop`, or is
    # `restart` and no restart is left.
    EXPERIMENT_FAILED = "experiment-failed"
    # Another rank of the process's unit has failed.
    UNIT_FAILED = "unit-failed"
    # The process will never start, for example because its start condition can no longer be met.
    NEVER_STARTED = "never-started"
    # The process's state or exit status cannot be determined.
    LOST = "lost"

    def __str__(self) -> str:
        return self.value


# The words for a process that symphony has stopped or is stopping, in place of its state.
STOPPED_STATE = "stopped"
STOPPING_STATE = "stopping"
# The states as tables show them. Those that need the user's attention come first.
STATES_BY_ATTENTION = (
    "failed",
    "unknown",
    "pending",
    STOPPING_STATE,
    "running",
    STOPPED_STATE,
    "succeeded",
)
ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.UNKNOWN})
# The exit code of an experiment that has exceeded its deadline. timeout(1) has the same exit code.
DEADLINE_EXIT_CODE = 124


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """The status of a process at one point in time.

    If signal n killed the process, ``exit_code`` is 128 + n. ``started`` and ``ended`` are times in
    seconds since the epoch. After a restart, both refer to the latest execution. ``stopped`` is
    true if symphony stopped the process. In this case, its exit does not count as a failure.
    ``pid`` is None if the process is not running or the backend does not report process IDs.
    ``node`` is the node on which the process runs or has run, or ``""`` if the backend does not
    report it.
    ``not_ready_in_time`` is true if the process is running and did not become ready before its
    timeout. It becomes false once the process is ready. While the process is running and not ready,
    ``test_result`` is the last result of its readiness test, such as ``connection refused at
    127.0.0.1:7000``, or ``""`` if it is not known yet. ``next_start`` is the time of the next start
    of a process that has exited and waits to be restarted, or None if the time is unknown.
    ``kill_at`` is the time at which a process that is being stopped is killed, or None if it is
    unknown. While the process waits to be restarted by its restart policy, ``restart_number`` is
    the number of this restart, and ``max_restarts`` is the number of permitted restarts, or None if
    it is not limited.
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
    node: str = ""
    not_ready_in_time: bool = False
    test_result: str = ""
    next_start: float | None = None
    kill_at: float | None = None
    restart_number: int | None = None
    max_restarts: int | None = None

    @property
    def path(self) -> str:
        """The path: ``group/process``, or ``process`` if the process is not in a group."""
        return f"{self.group}/{self.name}" if self.group else self.name

    @property
    def failed(self) -> bool:
        """True if the process failed or its state is unknown, and symphony did not stop it."""
        return self.state in (State.FAILED, State.UNKNOWN) and not self.stopped

    @property
    def has_started(self) -> bool:
        """True if the process runs or has run since its start was last requested.

        On a cluster, the machine of the process may still be preparing the start.
        """
        waits = self.reason_code in (ReasonCode.WAITING, ReasonCode.BACKING_OFF)
        return self.started is not None or (self.state is State.PENDING and not waits)

    @property
    def displayed_state(self) -> str:
        """The state as tables and JSON show it.

        It is ``stopped`` if symphony stopped the process, whatever its exit code is, and
        ``stopping`` if symphony is stopping it.
        """
        if self.stopped and self.state in ENDED:
            return STOPPED_STATE
        if self.reason_code is ReasonCode.STOPPING and self.state is State.RUNNING:
            return STOPPING_STATE
        return str(self.state)

    def displayed_reason(self, now: float) -> str:
        """Return the reason at the time ``now``, in seconds since the epoch.

        While the process waits to be restarted, or is being stopped, the reason states how many
        seconds remain. If the number of restarts is limited, the reason contains it.
        """
        if self.kill_at is not None:
            remaining_seconds = math.ceil(self.kill_at - now)
            return f"kill in {remaining_seconds} s" if remaining_seconds > 0 else "killed"
        if self.next_start is None:
            return self.reason
        remaining_seconds = math.ceil(self.next_start - now)
        when = f"in {remaining_seconds} s" if remaining_seconds > 0 else "now"
        details = self.reason
        if self.restart_number is not None and self.max_restarts is not None:
            details = f"{self.restart_number} of {self.max_restarts}, {self.reason}"
        return f"restarts {when} ({details})"

    def to_dict(self) -> dict[str, Any]:
        """Return the status as a dictionary that can be written as JSON."""
        code = None if self.reason_code is None else str(self.reason_code)
        # A deletion converts thousands of processes. No field contains other data classes.
        data = {item: getattr(self, item) for item in self.__slots__}
        data.update(state=self.displayed_state, reason_code=code)
        # The JSON format uses a shorter key for this field.
        data["late"] = data.pop("not_ready_in_time")
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProcessStatus:
        """Return the status that `to_dict` has converted.

        Raises KeyError, TypeError or ValueError if ``data`` is damaged.
        """
        values = {key: value for key, value in data.items() if key != "late"}
        state, code = values["state"], values["reason_code"]
        if state == STOPPED_STATE:
            state = State.SUCCEEDED if values["exit_code"] == 0 else State.FAILED
        elif state == STOPPING_STATE:
            state = State.RUNNING
        values["state"] = State(state)
        values["reason_code"] = None if code is None else ReasonCode(code)
        return cls(**values, not_ready_in_time=data["late"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentStatus:
    """The status of an experiment and of its processes, which are in declaration order.

    ``created`` is a time in seconds since the epoch. ``note`` is a message about the whole
    experiment, such as ``the supervisor was killed``. ``ends_with`` contains the names of the
    processes with which the experiment ends; it is empty if it ends with all processes.
    ``deadline`` is the time at which a running experiment is stopped, in seconds since the epoch,
    or None. ``parameters`` contains the values of parameters that the user has given, in which
    secrets are hidden. ``clock_offset`` is how many seconds the clock of all these times is ahead
    of the clock of this machine.
    """

    name: str
    backend: str
    processes: tuple[ProcessStatus, ...] = ()
    created: float | None = None
    note: str = ""
    ends_with: tuple[str, ...] = ()
    deadline: float | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    # Two statuses are equal although the estimate of the clock has become more precise.
    clock_offset: float = field(default=0.0, compare=False, repr=False)

    def __iter__(self) -> Iterator[ProcessStatus]:
        return iter(self.processes)

    def now(self) -> float:
        """Return the time of the clock of all times in this status, in seconds since the epoch."""
        return time.time() + self.clock_offset

    @property
    def state(self) -> State:
        """The combined state of all processes; see `combined_state`.

        If the experiment ended with the processes in ``ends_with``, it is the combined state of
        these processes.
        """
        processes = self._decisive if self.ended else self.processes
        return combined_state(process.state for process in processes)

    @property
    def _decisive(self) -> tuple[ProcessStatus, ...]:
        """The processes whose results are the result of the experiment.

        These are the processes in ``ends_with`` if all of them have finished and symphony did not
        stop them, and otherwise all processes.
        """
        named = tuple(process for process in self.processes if process.name in self.ends_with)
        has_ended = all(process.state in ENDED and not process.stopped for process in named)
        return named if named and has_ended else self.processes

    @property
    def displayed_state(self) -> str:
        """The combined state as tables and JSON show it.

        It is ``stopped`` if no process is running, symphony has stopped processes, and no other
        process has failed.
        """
        was_stopped = any(process.stopped for process in self._decisive)
        has_failed = any(process.failed for process in self._decisive)
        if self.ended and was_stopped and not has_failed:
            return STOPPED_STATE
        return str(self.state)

    @property
    def ended(self) -> bool:
        """True if no process is pending or running."""
        return all(process.state in ENDED for process in self.processes)

    @property
    def has_finished(self) -> bool:
        """True if every process has succeeded, has failed, or was stopped at the end of the
        experiment.

        An experiment with a process that the user has stopped, or whose state is unknown, may go
        on.
        """
        return all(
            process.state in (State.SUCCEEDED, State.FAILED)
            and process.reason_code is not ReasonCode.STOPPED
            for process in self.processes
        )

    @property
    def exit_code(self) -> int:
        """The exit code of the process that failed first, or 0 if no process failed.

        A rank that was stopped because another one had failed does not count.

        If the experiment ended with the processes in ``ends_with``, only these are considered. The
        value is 124 if the deadline was the reason for the failure, and 1 if the process has no
        exit code, or if nothing is known about any process.
        """
        if not self.processes:
            return 1
        failures = [process for process in self._decisive if process.failed]
        if not failures:
            return 0
        first = min(failures, key=_order_of_failure)
        if first.reason_code is ReasonCode.DEADLINE_EXCEEDED:
            return DEADLINE_EXIT_CODE
        return first.exit_code or 1

    def to_dict(self) -> dict[str, Any]:
        """Return the status as a dictionary that can be written as JSON."""
        return {
            "name": self.name,
            "backend": self.backend,
            "state": self.displayed_state,
            "created": self.created,
            "note": self.note,
            "ends_with": list(self.ends_with),
            "deadline": self.deadline,
            "parameters": dict(self.parameters),
            "processes": [process.to_dict() for process in self.processes],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ExperimentStatus:
        """Return the status that `to_dict` has converted.

        Raises KeyError, TypeError or ValueError if ``data`` is damaged.
        """
        values = {key: value for key, value in data.items() if key != "state"}
        values["ends_with"] = tuple(data["ends_with"])
        values["processes"] = tuple(map(ProcessStatus.from_dict, data["processes"]))
        return cls(**values)


def _order_of_failure(process: ProcessStatus) -> tuple[bool, float]:
    """Return the key by which failed processes are sorted. Causes precede their effects."""
    is_effect = process.reason_code is ReasonCode.UNIT_FAILED
    return is_effect, process.ended or float("inf")


class LogLine(NamedTuple):
    """One line of a process's output, without its newline.

    ``at`` is the time at which the line was written, in seconds since the epoch, or None if it is
    unknown. On one machine, it is accurate to about one second.
    """

    process: str
    text: str
    at: float | None = None


def background_reason(program: str, is_running: bool) -> str:
    """Return the reason of a process that has exited, but has left a program running.

    ``program`` names the program and its pid. ``is_running`` is false if it has exited meanwhile.

    >>> background_reason("redis-server (pid 123)", True)
    'went to the background: redis-server (pid 123) is running; let it run in the foreground'
    """
    state = "is running" if is_running else "has exited"
    return f"went to the background: {program} {state}; let it run in the foreground"


def not_ready_reason(result: str, timeout: float | None) -> str:
    """Return the reason for the state of a process that is running and not ready.

    ``result`` is the last result of its readiness test, or ``""``. ``timeout`` is the timeout of
    the test in seconds if it has passed, and None otherwise.

    >>> not_ready_reason("exit code 7", 2.0)
    'not ready within 2 s: exit code 7'
    """
    text = "not ready yet" if timeout is None else f"not ready within {timeout:g} s"
    return f"{text}: {result}" if result else text


# The beginning of the reason of a process that is stopped, or has failed, because it is unhealthy.
UNHEALTHY = "unhealthy"


def unhealthy_reason(result: str, tests: int) -> str:
    """Return the reason of a process whose health tests have failed ``tests`` times in a row.

    ``result`` is the result of the latest test.

    >>> unhealthy_reason("HTTP 500 from http://127.0.0.1:7000/", 3)
    'unhealthy: HTTP 500 from http://127.0.0.1:7000/, 3 tests in a row'
    """
    text = f"{UNHEALTHY}: {result}" if result else UNHEALTHY
    return f"{text}, {tests} tests in a row" if tests > 1 else text


# The combined state is the first of these states that any process is in.
_STATE_PRIORITY = (State.RUNNING, State.PENDING, State.UNKNOWN, State.FAILED, State.SUCCEEDED)


def combined_state(states: Iterable[State]) -> State:
    """Combine the states of several processes into one state.

    The result is running if any process is running, and otherwise pending if any process is
    pending. Otherwise, it is the worst state. From worst to best, the states are unknown, failed
    and succeeded. Without any process, the result is unknown.

    >>> combined_state([State.SUCCEEDED, State.FAILED]).value
    'failed'
    """
    present = set(states)
    if not present:
        return State.UNKNOWN
    for state in _STATE_PRIORITY:
        if state in present:
            return state
    return State.SUCCEEDED
