"""The invariants. Each function returns the violations that it has found, one line for each.

The functions use only the basic functions that read ``/proc``, and not symphony's own search for
the processes of a run, so that they also find the processes that this search misses.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from symphony.status import ExperimentStatus, State
from symphony.supervised.processes.environment import read_environment
from symphony.supervised.processes.identity import (
    RUN_ID_VARIABLE,
    ProcessId,
    ProcessStat,
    is_alive,
    read_stat,
)
from symphony.supervised.processes.mark import mark_of, read_mark, run_part
from symphony.supervised.processes.membership import list_pids

# All processes of a round inherit this variable, except for those that overwrite their environment.
# Each round has a different value. A tmux server has no other variable of the user's.
ROUND_VARIABLE = "TMUX_TMPDIR"

# The names that a root directory may contain when it contains no experiment.
PERMITTED_NAMES = frozenset({".lock"})
MAX_COMMAND_SECONDS = 60.0
_SHOWN_LINES = 5
# The second text is in the message for every error that symphony does not expect.
_UNEXPECTED_ERRORS = ("Traceback (most recent call last)", "run it again with --debug")


@dataclass(frozen=True, slots=True)
class FoundProcess:
    """A process that belongs to a round.

    ``run_id`` is None if the process does not belong to an experiment. Such a process is, for
    example, a supervisor or a tmux server.
    """

    process: ProcessId
    command: str
    run_id: str | None

    @property
    def pid(self) -> int:
        """Return the pid."""
        return self.process.pid

    def __str__(self) -> str:
        return f"{self.pid} ({self.command})"


def on_busy_machine(seconds: float) -> float:
    """Return a time limit for this machine as busy as it is now.

    If three programs wait for each processor, everything takes three times as long.
    """
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * max(1.0, waiting)


def find_processes(
    identity: str,
    run_ids: Iterable[str] = (),
    recorded: Iterable[ProcessId] = (),
    *,
    since: float = 0.0,
) -> list[FoundProcess]:
    """Return the running processes of a round.

    These are the processes whose variable `ROUND_VARIABLE` is ``identity``, the processes that have
    the mark of one of the runs, and the processes in ``recorded``. Processes that were created
    before ``since`` (see `ProcessId`) are skipped, because most processes of a machine were.
    """
    marks = {run_part(mark_of(run_id)): run_id for run_id in run_ids}
    marks.pop(None, None)
    expected = set(recorded)
    found: list[FoundProcess] = []
    for stat in _list_processes():
        if stat.process.birth < since:
            continue
        pid = stat.process.pid
        environment = read_environment(pid)
        variables: Mapping[str, str] = {} if environment is None else environment.variables
        run_id = marks.get(run_part(read_mark(pid))) if marks else None
        if variables.get(ROUND_VARIABLE) == identity:
            run_id = variables.get(RUN_ID_VARIABLE) or run_id
        elif run_id is None and stat.process not in expected:
            continue
        elif run_id is None:
            run_id = "unknown"
        process = FoundProcess(stat.process, command_of(pid), run_id)
        # A process that has exited or was replaced in the meantime has other data.
        if is_alive(process.process):
            found.append(process)
    return found


def _list_processes() -> list[ProcessStat]:
    """Return all processes except for this one.

    A process that forks and exits in the meantime can leave a child that was not listed, so the
    processes are listed until there is no new one.
    """
    seen = {os.getpid()}
    found: list[ProcessStat] = []
    while True:
        pids = [pid for pid in list_pids() if pid not in seen]
        if not pids:
            return found
        seen.update(pids)
        stats = [read_stat(pid) for pid in pids]
        found += [stat for stat in stats if stat is not None]


def command_of(pid: int) -> str:
    """Return the command line of a process, or ``""`` if it has exited."""
    try:
        content = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return content.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")[:200]


def left_processes(processes: Iterable[FoundProcess]) -> list[str]:
    """Return a violation for each process that should have exited."""
    return [f"process {process} is left" for process in processes]


def left_files(root: Path) -> list[str]:
    """Return a violation for each name that is left in a root directory without experiments."""
    names = sorted(os.listdir(root)) if root.exists() else []
    return [f"{root / name} is left" for name in names if name not in PERMITTED_NAMES]


def used_ports(ports: Iterable[int]) -> list[str]:
    """Return a violation for each port that a program cannot bind."""
    violations = []
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                probe.listen()
            except OSError as exc:
                violations.append(f"port {port} is not free: {exc.strerror}")
    return violations


def wrong_answer(
    command: Sequence[str], code: int, output: str, *, is_permitted: Callable[[int], bool]
) -> list[str]:
    """Return the violations in the answer of a command.

    ``output`` contains both of its streams.
    """
    violations = []
    name = f"symphony {' '.join(command)}"
    if not is_permitted(code):
        violations.append(f"{name} exited with {code}: {_last_line(output)}")
    if any(sign in output for sign in _UNEXPECTED_ERRORS):
        violations.append(f"{name} failed with an unexpected error: {_last_line(output)}")
    return violations


def is_usual(code: int) -> bool:
    """Return whether an exit code is one that every command may return."""
    return 0 <= code <= 3


def wrong_lines(expected: int, lines: Sequence[str]) -> list[str]:
    """Return the violations in the log of a process that has printed ``line 0``, ``line 1``, ..."""
    wanted = [f"line {number}" for number in range(expected)]
    if list(lines) == wanted:
        return []
    found = set(lines)
    lost = [line for line in wanted if line not in found]
    seen: set[str] = set()
    doubled = [line for line in lines if line in seen or seen.add(line)]  # type: ignore[func-returns-value]
    foreign = sorted(found.difference(wanted))
    violations = [
        f"{len(items)} of {expected} lines are {problem}: {items[:_SHOWN_LINES]}"
        for problem, items in (("lost", lost), ("doubled", doubled), ("foreign", foreign))
        if items
    ]
    return violations or ["the lines are in another order"]


def changed_texts(sent: Sequence[str], received: Sequence[str]) -> list[str]:
    """Return a violation for each text that did not arrive unchanged."""
    if len(sent) != len(received):
        return [f"{len(sent)} texts were sent and {len(received)} arrived: {received!r}"]
    pairs = zip(sent, received, strict=True)
    return [f"{before!r} arrived as {after!r}" for before, after in pairs if before != after]


def several_runs(processes: Iterable[FoundProcess], permitted: Collection[str]) -> list[str]:
    """Return a violation for each process that belongs to a run other than the permitted ones."""
    return [
        f"process {process} of run {process.run_id} is orphaned"
        for process in processes
        if process.run_id is not None and process.run_id not in permitted
    ]


def wrong_status(status: ExperimentStatus, running: Collection[int]) -> list[str]:
    """Return the differences between the status of processes that never succeed and reality.

    ``running`` contains the pids of the processes that are running.
    """
    shown = {process.pid for process in status if process.state is State.RUNNING}
    violations = [
        f"process {pid} runs and is not shown as running" for pid in sorted(set(running) - shown)
    ]
    for process in status:
        if process.state is State.RUNNING and process.pid not in running:
            violations.append(f"{process.path} ({process.pid}) is shown as running, but is not")
        if process.state is State.SUCCEEDED:
            violations.append(f"{process.path} is shown as succeeded, which is impossible")
    return violations


def not_running(status: ExperimentStatus | None) -> list[str]:
    """Return a violation for each process that is not running.

    ``status`` is None if the experiment does not exist.
    """
    if status is None:
        return ["the experiment does not exist"]
    return [
        f"{process.path} is {process.state.value}, not running: {process.reason}"
        for process in status
        if process.state is not State.RUNNING
    ]


def shared_ports(ports: Mapping[str, Collection[int]]) -> list[str]:
    """Return a violation for each port that two running experiments have.

    ``ports`` maps the names of experiments to their ports.
    """
    owners: dict[int, str] = {}
    violations = []
    for name, numbers in ports.items():
        for port in numbers:
            if port in owners:
                violations.append(f"{owners[port]} and {name} both have port {port}")
            owners[port] = name
    return violations


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1] if lines else "(no output)"
