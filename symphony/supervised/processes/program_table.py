"""The programs that belong to processes of an experiment, as ``/proc`` shows them."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet

from symphony.supervised.processes.identity import ProcessId, TreeStat, read_tree_stat
from symphony.supervised.processes.membership import accepts_signals, list_pids
from symphony.supervised.processes.own_children import active_children, is_leading_child
from symphony.supervised.processes.signal_rule import Program
from symphony.support.data_classes import dataclass
from symphony.support.signal_effects import HARMLESS_SIGNALS

_STATUS_BYTES = 4096
_SHELLS = frozenset({"ash", "bash", "busybox", "dash", "ksh", "mksh", "sh", "zsh"})


@dataclass(frozen=True, slots=True)
class SignalMasks:
    """The signals that a program handles, ignores and blocks, as in ``/proc/PID/status``.

    ``name`` is the name of the program, which has at most 15 characters.
    """

    caught: int
    ignored: int
    blocked: int
    name: str = ""

    def catches(self, number: int, *, is_suspended: bool = False) -> bool:
        """Return whether the program handles a signal.

        A program that blocks a signal usually waits for it with sigwait(3) or signalfd(2). A shell
        blocks all signals before it waits for a command with sigsuspend(2), and this is also what
        ``/proc`` shows when it is suspended. A shell catches SIGINT while it waits for a command,
        and continues with the next command if the command handles the signal. Both therefore do not
        count.
        """
        is_shell = self.name in _SHELLS
        if number == signal.SIGINT and is_shell:
            return False
        waits = 0 if is_shell or is_suspended else self.blocked
        return bool((self.caught | waits) & _bit(number))

    def ignores(self, number: int) -> bool:
        """Return whether the signal has no effect on the program."""
        return bool(self.ignored & _bit(number))


_NO_MASKS = SignalMasks(0, 0, 0)


class ProgramTable:
    """All processes of this machine at one point in time.

    Reading a process from ``/proc`` costs more than 10 microseconds, so one table is used for all
    processes of an experiment. ``children`` contains children of this program that lead process
    groups of their own. Their places are known, so they are not read from ``/proc``. There can be
    thousands of them, so no more is kept of those that are neither suspended nor have exited.

    If ``found`` is not None, only the programs of ``children`` and of processes that have exited
    are wanted, and ``found`` contains those that were found before. Then, the other children that
    lead process groups are left out. They are processes of the experiment that are not concerned.
    """

    def __init__(
        self, children: Iterable[ProcessId] = (), found: Collection[ProcessId] | None = None
    ) -> None:
        known = {child.pid: child for child in children}
        leaves_out = found is not None
        was_found = {process.pid for process in found or ()}
        self._own_pid = os.getpid()
        active = active_children() if known else frozenset()
        self._active = {pid: known[pid] for pid in active if pid in known}
        self._stats: dict[int, TreeStat] = {}
        for pid in list_pids():
            if pid in self._active:
                continue
            stat: TreeStat | None
            child = known.get(pid)
            if child is not None:
                stat = _leading_child(child)
                if stat == self._place_of(child):
                    self._active[pid] = child
                    continue
            elif leaves_out and pid not in was_found and is_leading_child(pid):
                continue
            else:
                stat = read_tree_stat(pid)
            if stat is not None:
                self._stats[pid] = stat
        self._children: dict[int, list[TreeStat]] = {}
        self._groups: dict[int, list[TreeStat]] = {}
        for stat in self._stats.values():
            self._children.setdefault(stat.parent, []).append(stat)
            self._groups.setdefault(stat.group, []).append(stat)

    def members(
        self, leader: ProcessId, known: AbstractSet[ProcessId] = frozenset()
    ) -> list[TreeStat]:
        """Return the running processes that belong to a process of the experiment.

        These are its leader, the members of the leader's process group, those of the processes
        ``known`` that are running, and the descendants of all of these.
        """
        only = self._stat(leader.pid)
        is_known = only is not None and only.process == leader and known <= {leader}
        if only is not None and is_known and self._is_single(leader.pid):
            # This is the most frequent case, and a stop can concern thousands of processes.
            return [only]
        first = [self._stat(process.pid) for process in (leader, *known)]
        roots = [stat for stat in first if stat is not None and stat.process in (leader, *known)]
        found = {stat.process.pid: stat for stat in (*roots, *self._groups.get(leader.pid, ()))}
        pending = list(found.values())
        while pending:
            for child in self._children.get(pending.pop().process.pid, ()):
                if child.process.pid not in found:
                    found[child.process.pid] = child
                    pending.append(child)
        return list(found.values())

    def is_single_child(self, process: ProcessId) -> bool:
        """Return whether a process is a child that is running and not suspended, and no other
        program belongs to it.
        """
        return self._active.get(process.pid) == process and self._is_single(process.pid)

    def _is_single(self, pid: int) -> bool:
        """Return whether a process has no children, and its group no other members."""
        members = self._groups.get(pid, ())
        return pid not in self._children and all(stat.process.pid == pid for stat in members)

    def _stat(self, pid: int) -> TreeStat | None:
        child = self._active.get(pid)
        return self._stats.get(pid) if child is None else self._place_of(child)

    def _place_of(self, child: ProcessId) -> TreeStat:
        """Return the place of a child that leads a process group and is not suspended."""
        return TreeStat(child, self._own_pid, child.pid, is_suspended=False)


def _leading_child(child: ProcessId) -> TreeStat | None:
    """Return the place of a child that leads a process group, or None if it has exited.

    The kernel answers from the child's own data, which is 10 times as fast as reading ``/proc``.
    """
    options = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    try:
        change = os.waitid(os.P_PID, child.pid, options)
    except ChildProcessError:
        # Its exit has been collected, so another process can have its pid.
        return read_tree_stat(child.pid)
    if change is not None and change.si_code != os.CLD_STOPPED:
        return None
    return TreeStat(child, os.getpid(), child.pid, is_suspended=change is not None)


def programs_of(
    members: Collection[TreeStat], number: int, *, reads_single: bool = False
) -> list[Program]:
    """Return the members of a process as programs that may receive a signal.

    Programs of other users, such as those behind sudo, are omitted, because they cannot be sent
    signals. What a single program does with the signal is only read with ``reads_single``, because
    it receives a signal that stops the process in any case.
    """
    if len(members) == 1 and not reads_single:
        return [
            Program(member.process, member.parent, is_suspended=member.is_suspended)
            for member in members
        ]
    return [
        _program(member, read_masks(member.process.pid), number)
        for member in members
        if accepts_signals(member.process)
    ]


def _program(stat: TreeStat, masks: SignalMasks, number: int) -> Program:
    return Program(
        stat.process,
        stat.parent,
        catches=masks.catches(number, is_suspended=stat.is_suspended),
        ignores=masks.ignores(number),
        is_suspended=stat.is_suspended,
    )


def read_masks(pid: int) -> SignalMasks:
    """Return the signals that a program handles, ignores and blocks.

    The masks are empty if the process has exited.
    """
    try:
        descriptor = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = os.read(descriptor, _STATUS_BYTES)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, ProcessLookupError):
        return _NO_MASKS
    return parse_masks(content)


def parse_masks(status: bytes) -> SignalMasks:
    r"""Return the masks in the contents of ``/proc/PID/status``.

    >>> parse_masks(b"Name:\tsh\nSigBlk:\t0\nSigIgn:\t6\nSigCgt:\t4000\n").catches(signal.SIGTERM)
    True
    """
    lines = (line.partition(b":") for line in status.splitlines())
    values = {key: value.strip() for key, _, value in lines}
    return SignalMasks(
        caught=int(values.get(b"SigCgt", b"0"), 16),
        ignored=int(values.get(b"SigIgn", b"0"), 16),
        blocked=int(values.get(b"SigBlk", b"0"), 16),
        name=os.fsdecode(values.get(b"Name", b"")),
    )


def is_fatal(masks: SignalMasks, number: signal.Signals) -> bool:
    """Return whether a signal that a program does not handle ends the program."""
    return number not in HARMLESS_SIGNALS and not masks.ignores(number)


def _bit(number: int) -> int:
    return 1 << (number - 1)
