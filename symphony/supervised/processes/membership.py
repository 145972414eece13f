"""Finding all processes of a run, even if the run's supervisor was killed.

A process belongs to a run if one of these rules applies:

* It is a leader, which is a process that the supervisor started and recorded, or it is in the
  session of a leader.
* Its environment contains the run's identifier.
* Its environment was overwritten or cannot be read, and it has the run's mark (see `mark`) or is a
  child of a process that belongs to the run.

A process that leaves the session and has an environment without the identifier does not belong to
the run, even if the process has the mark. The supervisor of an experiment that a process of the run
has launched is such a process.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping

from symphony.supervised.processes.environment import read_environment
from symphony.supervised.processes.identity import (
    RUN_ID_VARIABLE,
    ProcessId,
    ProcessStat,
    is_alive,
    read_stat,
)
from symphony.supervised.processes.mark import mark_of, name_in, read_mark, run_part
from symphony.supervised.processes.own_children import has_child_exited

# One scan lists all processes at most this many times.
MAX_PASSES = 5
# This variable is set in the environment of the commands that `symphony exec` runs.
COMMAND_VARIABLE = "SYMPHONY_EXEC"


class RunProcesses:
    """The processes of one run.

    ``leaders`` contains the recorded identities of processes that the supervisor started. The
    process with a leader's pid does not count if its creation time differs. ``since`` is a creation
    time, as in `ProcessId`, before which no process of the run was created.

    An object of this class remembers the processes that it has found. It therefore still finds the
    other processes of a session after the leader of the session has exited.
    """

    def __init__(
        self, run_id: str, leaders: Iterable[ProcessId] = (), *, since: float = 0.0
    ) -> None:
        self._run_id = run_id
        self._since = since
        self._run_part = run_part(mark_of(run_id))
        self._found: set[ProcessId] = set()
        self._leaders = set(leaders)
        # The leaders that are running children of this program, by their pids. They lead sessions.
        self._own: dict[int, ProcessId] = {}
        # The pids of the leaders that are exited children of this program.
        self._exited: set[int] = set()

    def find(self, leaders: Iterable[ProcessId] = ()) -> list[ProcessId]:
        """Return the running processes of the run, except for the calling process and for processes
        to which this user cannot send signals.

        ``leaders`` contains further leaders. Those that are children of this program were started
        in sessions of their own, and their exits are collected only when they are not among the
        leaders any more.
        """
        present = set(leaders)
        states = {leader: has_child_exited(leader.pid) for leader in present}
        self._own = {leader.pid: leader for leader in present if states[leader] is False}
        self._exited = {leader.pid for leader in present if states[leader]}
        self._leaders |= present
        found: dict[int, ProcessId] = {}
        undecided: dict[int, ProcessStat] = {}
        for stat, belongs in self._scan():
            if belongs:
                found[stat.process.pid] = stat.process
            elif belongs is None:
                undecided[stat.process.pid] = stat
        self._add_children(found, undecided)
        self._found = {process for process in found.values() if accepts_signals(process)}
        return sorted(self._found, key=lambda process: process.pid)

    def _scan(self) -> list[tuple[ProcessStat, bool | None]]:
        """Return all processes, each with the decision of `_belongs`.

        A process that forks and exits during the scan can leave a child that was not listed. The
        scan therefore lists the processes again until there is no new pid, but at most `MAX_PASSES`
        times.
        """
        decisions: list[tuple[ProcessStat, bool | None]] = []
        sessions = self._sessions()
        # Hundreds of children can have exited whose exits are not collected yet.
        seen = {os.getpid(), *self._exited}
        for _ in range(MAX_PASSES):
            new_pids = [pid for pid in list_pids() if pid not in seen]
            if not new_pids:
                break
            for pid in new_pids:
                own = self._own.get(pid)
                if own is not None:
                    decisions.append((ProcessStat(own, parent=os.getpid(), session=pid), True))
                    continue
                # The identity is read before everything else. If another process reuses the pid in
                # the meantime, the identity is that of the process that has exited.
                stat = read_stat(pid)
                # Reading an environment takes three times as long as reading a creation time.
                if stat is not None and stat.process.birth >= self._since:
                    decisions.append((stat, self._belongs(stat, sessions)))
            seen.update(new_pids)
        return decisions

    def _sessions(self) -> dict[int, ProcessId]:
        """Return the sessions of the leaders that are running.

        The number of a session is not reused while its leader is running.
        """
        sessions: dict[int, ProcessId] = {}
        for leader in list(self._leaders):
            if self._own.get(leader.pid) == leader:
                sessions[leader.pid] = leader
                continue
            if leader.pid in self._exited:
                # No other process has its pid yet.
                self._leaders.discard(leader)
                continue
            stat = read_stat(leader.pid)
            if stat is None or stat.process != leader:
                self._leaders.discard(leader)
            else:
                sessions[stat.session] = leader
        return sessions

    def _belongs(self, stat: ProcessStat, sessions: dict[int, ProcessId]) -> bool | None:
        """Return whether a process belongs to the run, or None if its parent decides."""
        if stat.process in self._found:
            return True
        if stat.session in sessions and is_alive(sessions[stat.session]):
            return True
        environment = read_environment(stat.process.pid)
        if environment is not None:
            if environment.get(RUN_ID_VARIABLE) == self._run_id:
                return True
            if environment.is_intact:
                return False
        part = self._run_part
        if part is not None and run_part(read_mark(stat.process.pid)) == part:
            return True
        return None

    def _add_children(self, found: dict[int, ProcessId], undecided: dict[int, ProcessStat]) -> None:
        """Move the descendants of processes in ``found`` from ``undecided`` to ``found``."""
        while True:
            children = {
                pid: stat.process
                for pid, stat in undecided.items()
                # If the parent is still running, its pid was not reused since the scan.
                if stat.parent in found and is_alive(found[stat.parent])
            }
            if not children:
                return
            found.update(children)
            for pid in children:
                del undecided[pid]


def find_session_leaders(run_id: str) -> dict[str, ProcessId]:
    """Return a mapping from process names to a run's processes that are session leaders.

    These are the processes that a supervisor or a tmux window started. Their children are not
    included, and neither are processes that have overwritten their environment. If a descendant
    leads a session of its own, the process that was started first is returned.
    """
    found: dict[str, ProcessId] = {}
    for process in sorted(RunProcesses(run_id).find(), key=lambda process: process.birth):
        stat = read_stat(process.pid)
        name = _role(process.pid)
        if name is not None and stat is not None and stat.session == process.pid:
            found.setdefault(name, process)
    return found


def owner_names(
    processes: Collection[ProcessId],
    leaders: Mapping[str, ProcessId],
    names: Collection[str] = (),
) -> set[str | None]:
    """Return the names of the experiment's processes to which operating-system processes belong.

    The result contains None if one of them is unknown; see `owners_of`.
    """
    return set(owners_of(processes, leaders, names).values())


def owners_of(
    processes: Collection[ProcessId],
    leaders: Mapping[str, ProcessId],
    names: Collection[str] = (),
) -> dict[ProcessId, str | None]:
    """Return to which of the experiment's processes running operating-system processes belong.

    ``leaders`` maps names to the recorded leaders. A process that has left its leader's session and
    overwritten its environment is recognized by its mark if its name is in ``leaders`` or
    ``names``. Otherwise, its name is unknown, and the result contains None for it.
    """
    sessions: dict[int, str] = {}
    for name, leader in leaders.items() if processes else ():
        stat = read_stat(leader.pid)
        if stat is not None and stat.process == leader:
            sessions[stat.session] = name
    known = (*leaders, *names)
    found: dict[ProcessId, str | None] = {}
    for process in processes:
        stat = read_stat(process.pid)
        if stat is not None and stat.process == process:
            owner = sessions.get(stat.session) or _role(process.pid)
            found[process] = owner or name_in(read_mark(process.pid), known)
    return found


def is_command(process: ProcessId) -> bool:
    """Return whether a program belongs to a command that a user or a test runs in the environment
    of a process; see `symphony.supervised.access.exec_command.run`.
    """
    environment = read_environment(process.pid)
    return environment is not None and environment.get(COMMAND_VARIABLE) is not None


def _role(pid: int) -> str | None:
    """Return the process name in a process's environment, or None if the name is unknown."""
    environment = read_environment(pid)
    return None if environment is None else environment.get("SYMPHONY_ROLE")


def list_pids() -> list[int]:
    """Return the pids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def accepts_signals(process: ProcessId) -> bool:
    """Return whether this user may send signals to a process.

    The child process of a program such as sudo can belong to another user.
    """
    try:
        os.kill(process.pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True
