"""Stop the programs of processes on one machine, in the event loop.

The decisions are those of `symphony.supervised.processes.tree_stop`. One timer and one list of the
machine's processes serve all stops that are in progress.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from symphony.supervised.processes.identity import ProcessId, is_alive
from symphony.supervised.processes.process_groups import send_signal, signal_group
from symphony.supervised.processes.program_table import ProgramTable, programs_of
from symphony.supervised.processes.spec import DEFAULT_STOP_SIGNAL
from symphony.supervised.processes.stop_record import Entry, Kind
from symphony.supervised.processes.tree_stop import LATE_PART, Step, TreeStop
from symphony.support.data_classes import dataclass, field

if TYPE_CHECKING:
    from symphony.supervised.processes.identity import TreeStat
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony.supervised.processes.stop_record import StopRecord

# The interval at which stops are continued. It increases while nothing happens.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.25
_PAUSE_FACTOR = 1.5
# The record of so many stops is written in one step. If this program is killed after that and
# before it has sent the signals, the programs do not receive them.
STOPS_PER_BATCH = 25


class StopOrder(NamedTuple):
    """How a process is stopped.

    ``signal`` asks its programs to exit, or ``command`` does so if it is not empty. With
    ``whole_group``, all programs of its process group receive the signal at once. ``grace`` is the
    time in seconds after which the programs are killed.
    """

    grace: float
    signal: str = DEFAULT_STOP_SIGNAL
    command: tuple[str, ...] = ()
    whole_group: bool = False

    @classmethod
    def of(cls, spec: ProcessSpec, grace: float) -> StopOrder:
        """Return the order for a process with the given description."""
        return cls(grace, spec.stop_signal, spec.stop_command, spec.signal_group)

    def to_dict(self) -> dict[str, Any]:
        """Return the order as a dictionary of JSON-serializable values."""
        return self._asdict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StopOrder:
        """Create an order from the output of `to_dict`."""
        return cls(**{**data, "command": tuple(data["command"])})


class Timers(Protocol):
    """The part of an event loop that a `Stopper` uses."""

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, after ``seconds`` seconds."""

    def post(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` as soon as possible. Any thread can call this method."""


@dataclass(slots=True, eq=False)
class _Stop:
    """A stop in progress.

    ``known`` contains the programs that were running at the last step, and ``awaited`` those of
    them that were asked to exit. ``polled`` contains those of them whose exit must be polled.
    ``recorded`` contains the programs that are recorded as asked in
    the way ``recorded_kind``. The exit of the leader was collected if ``has_leader_exited`` is
    true.
    """

    tree: TreeStop
    order: StopOrder
    known: set[ProcessId]
    awaited: set[ProcessId] = field(default_factory=set)
    polled: set[ProcessId] = field(default_factory=set)
    recorded: set[ProcessId] = field(default_factory=set)
    recorded_kind: Kind = Kind.SIGNALED
    next_time: float = 0.0
    has_begun: bool = False
    has_leader_exited: bool = False


class _SingleStop(NamedTuple):
    """The stop of a child of this program to which no other program belongs.

    This is the most frequent case, and a stop can concern thousands of processes. After the child
    has received the signal, there is nothing to do until it exits or a time passes, so that it
    needs no `_Stop` before.
    """

    leader: ProcessId
    order: StopOrder
    begin: float

    @property
    def next_time(self) -> float:
        """The time of the next step, which does not depend on the exit of the child."""
        return self.begin + self.order.grace * LATE_PART

    def tree(self) -> TreeStop:
        """Return the stop with all of its possible steps."""
        number = _number_of(self.order.signal)
        return TreeStop(self.leader, number, begin=self.begin, grace=self.order.grace)


class _Signals(NamedTuple):
    """The signals of one step of a stop.

    ``children`` contains the pids of the programs that are children of this program.
    """

    name: str
    stop: _Stop
    step: Step
    children: set[int]


# A function that runs the command that stops a process. It returns why the command failed, or "".
RunCommand = Callable[[], str]


class Stopper:
    """The stops that are in progress on this machine.

    ``on_done`` is called with the name of a process when none of its programs is running any more.
    With ``record``, stops that a killed program has begun are continued. If ``is_notified`` is
    true, the caller calls `handle_exit` when a process that symphony has started has exited.
    """

    def __init__(
        self,
        loop: Timers,
        *,
        on_done: Callable[[str], None] = lambda _: None,
        record: StopRecord | None = None,
        is_notified: bool = True,
    ) -> None:
        self._loop = loop
        self._pid = os.getpid()
        self._is_notified = is_notified
        self._on_done = on_done
        self._record = record
        self._stops: dict[str, _Stop] = {}
        # The stops that concern a single program as far as is known, and those of them whose first
        # step follows.
        self._singles: dict[str, _SingleStop] = {}
        self._new: dict[str, None] = {}
        # A single stop has no next step before this time.
        self._singles_time = math.inf
        self._pause = FIRST_PAUSE_SECONDS
        # The number of the timer that is awaited; earlier timers have no effect.
        self._timer = 0
        self._is_posted = False

    def begin(
        self,
        name: str,
        leader: ProcessId,
        order: StopOrder,
        run_command: RunCommand | None = None,
        on_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Begin to stop a process. If it is being stopped, its grace period can become shorter.

        ``run_command`` runs the command of the order. It blocks, so it runs in a thread.
        ``on_problem`` is called in the event loop with a message if the command fails.
        """
        now = time.monotonic()
        if name in self._singles:
            self._extend(name)
        stop = self._stops.get(name)
        if stop is not None and stop.tree.leader == leader:
            stop.tree.hasten(now, order.grace)
            stop.next_time = 0.0
        elif self._can_be_single(leader, order):
            self._stops.pop(name, None)
            self._singles[name] = _SingleStop(leader, order, now)
            self._new[name] = None
        else:
            has_command = run_command is not None and order.grace > 0
            tree = TreeStop(
                leader,
                _number_of(order.signal),
                begin=now,
                grace=order.grace,
                sends_signal=not has_command,
            )
            self._stops[name] = stop = _Stop(tree, order, {leader})
            is_begun = self._resume(stop)
            if run_command is not None and has_command and not is_begun:
                if self._record is not None:
                    self._record.add(Kind.COMMANDED, leader.pid, ())
                self._run(name, stop, run_command, on_problem)
        self._pause = FIRST_PAUSE_SECONDS
        self._schedule(0.0)

    def _can_be_single(self, leader: ProcessId, order: StopOrder) -> bool:
        """Return whether a new stop can be a `_SingleStop`, unless other programs are found."""
        if order.command or order.whole_group or order.grace <= 0 or not self._is_notified:
            return False
        return self._record is None or not self._record.has_previous(leader.pid)

    def _extend(self, name: str) -> None:
        """Replace a single stop by one with all of its possible steps."""
        single = self._singles.pop(name)
        self._stops[name] = stop = _Stop(single.tree(), single.order, {single.leader})
        if name in self._new:
            del self._new[name]
            return
        stop.tree.resume([single.leader], [], sends_signal=True)
        stop.recorded.add(single.leader)
        stop.awaited.add(single.leader)
        stop.has_begun = True
        stop.next_time = single.next_time

    def _resume(self, stop: _Stop) -> bool:
        """Continue a stop that a killed program has begun. Return whether there is one."""
        if self._record is None:
            return False
        previous = self._record.take_previous(stop.tree.leader.pid)
        if previous is None:
            return False
        signaled = previous.of(Kind.SIGNALED)
        sends_signal = bool(signaled) or Kind.COMMANDED not in previous.programs
        asked = signaled or previous.of(Kind.COMMANDED)
        stop.tree.resume(asked, previous.of(Kind.HELD), sends_signal=sends_signal)
        stop.recorded |= asked
        stop.recorded_kind = Kind.SIGNALED if sends_signal else Kind.COMMANDED
        stop.has_begun = bool(signaled)
        return True

    def is_active(self, name: str) -> bool:
        """Return whether programs of a process that is being stopped may be running."""
        return name in self._singles or name in self._stops

    def __len__(self) -> int:
        return len(self._singles) + len(self._stops)

    def programs(self) -> set[ProcessId]:
        """Return the programs of all processes that are being stopped."""
        found = {single.leader for single in self._singles.values()}
        return found.union(*(stop.known for stop in self._stops.values()))

    def handle_exit(self, name: str, leader: ProcessId) -> bool | None:
        """Handle the exit of the process that symphony has started. Return whether programs of it
        may be running, or None if it is not being stopped.
        """
        single = self._singles.get(name)
        if single is not None and single.leader == leader:
            if not signal_group(leader.pid, 0):
                self._end(name)
                return False
            self._extend(name)
        stop = self._stops.get(name)
        if stop is None:
            return None
        if stop.tree.leader != leader:
            return True
        stop.has_leader_exited = True
        if stop.known <= {leader} and not signal_group(leader.pid, 0):
            self._end(name)
            return False
        stop.next_time = 0.0
        self._pause = FIRST_PAUSE_SECONDS
        self._schedule(FIRST_PAUSE_SECONDS)
        return True

    def _end(self, name: str) -> None:
        self._stops.pop(name, None)
        self._singles.pop(name, None)
        self._new.pop(name, None)
        if not len(self) and self._record is not None:
            self._record.clear()
        self._on_done(name)

    def _run(
        self,
        name: str,
        stop: _Stop,
        run_command: RunCommand,
        on_problem: Callable[[str], None],
    ) -> None:
        """Run the command that stops a process. If it fails, send the signal."""

        def run() -> None:
            try:
                problem = run_command()
            except Exception as exc:
                problem = f"{type(exc).__name__}: {exc}"
            if problem:
                self._loop.post(lambda: fail(problem))

        def fail(problem: str) -> None:
            on_problem(problem)
            if self._stops.get(name) is stop:
                stop.tree.send_signal()
                stop.next_time = 0.0
                self._schedule(0.0)

        try:
            threading.Thread(target=run, daemon=True).start()
        except RuntimeError as exc:
            # The user's limit on processes and threads has been reached.
            problem = str(exc)
            self._loop.post(lambda: fail(problem))

    # --- progress ---

    def _schedule(self, seconds: float) -> None:
        if self._is_posted:
            # The next step comes before each timer.
            return
        self._timer += 1
        number = self._timer
        if seconds:
            self._loop.after(seconds, lambda: self._continue(number))
        else:
            self._is_posted = True
            self._loop.post(lambda: self._continue(number))

    def _continue(self, number: int) -> None:
        if number != self._timer:
            return
        self._is_posted = False
        if not len(self):
            return
        try:
            self._step()
        finally:
            times = [stop.next_time for stop in self._stops.values() if stop.next_time]
            times.append(self._singles_time)
            pause = min(self._pause, min(times, default=math.inf) - time.monotonic())
            self._pause = min(self._pause * _PAUSE_FACTOR, LONGEST_PAUSE_SECONDS)
            self._schedule(max(pause, FIRST_PAUSE_SECONDS))

    def _step(self) -> None:
        """Continue the stops for which a program has exited or a time has passed."""
        now = time.monotonic()
        self._extend_late(now)
        due = [name for name, stop in self._stops.items() if _is_due(stop, now)]
        while due or self._new:
            stops = self._stops.values()
            leaders = [stop.tree.leader for stop in stops if not stop.has_leader_exited]
            leaders += [single.leader for single in self._singles.values()]
            table = ProgramTable(leaders, self.programs())
            if self._new:
                due += self._signal_singles(table)
            again: list[str] = []
            # The first programs exit on other cores while the next steps are decided.
            for start in range(0, len(due), STOPS_PER_BATCH):
                signals: list[_Signals] = []
                for name in due[start : start + STOPS_PER_BATCH]:
                    if name in self._stops:
                        signals += self._advance(name, table)
                self._send(signals)
                again += [item.name for item in signals if item.step.lists_again]
            due = again

    def _extend_late(self, now: float) -> None:
        """Extend the single stops whose next step is due."""
        if now < self._singles_time:
            return
        times = {name: single.next_time for name, single in self._singles.items()}
        for name, next_time in times.items():
            if name not in self._new and next_time <= now:
                self._extend(name)
        later = [times[name] for name in self._singles]
        self._singles_time = min(later, default=math.inf)

    def _signal_singles(self, table: ProgramTable) -> list[str]:
        """Send the first signals of single stops. Return the names of new stops that turn out to
        concern several programs.
        """
        singles: list[str] = []
        others: list[str] = []
        for name in self._new:
            is_single = table.is_single_child(self._singles[name].leader)
            (singles if is_single else others).append(name)
        for name in others:
            self._extend(name)
        for start in range(0, len(singles), STOPS_PER_BATCH):
            self._signal_batch(singles[start : start + STOPS_PER_BATCH])
        return others

    def _signal_batch(self, names: Sequence[str]) -> None:
        """Record that children will be asked to exit, and send the signals; see `_send`."""
        batch = [self._singles[name] for name in names]
        if self._record is not None:
            leaders = [single.leader for single in batch]
            self._record.add_all(Entry(Kind.SIGNALED, item.pid, (item,)) for item in leaders)
        for name, single in zip(names, batch, strict=True):
            del self._new[name]
            self._singles_time = min(self._singles_time, single.next_time)
            # The program can belong to another user; see `_send`.
            with contextlib.suppress(PermissionError):
                os.kill(single.leader.pid, _number_of(single.order.signal))

    def _advance(self, name: str, table: ProgramTable) -> list[_Signals]:
        """Decide the next step of a stop, and return the signals to send, which can be none."""
        stop = self._stops[name]
        members = table.members(stop.tree.leader, stop.known)
        if not members:
            self._end(name)
            return []
        stop.known = {member.process for member in members}
        number = stop.tree.number
        now = time.monotonic()
        order, stop.has_begun, is_first = stop.order, True, not stop.has_begun
        if is_first and order.whole_group and not order.command and order.grace > 0:
            self._signal_group(stop, members)
        # The only program receives the first signal in any case.
        programs = programs_of(members, number, reads_single=bool(stop.tree.asked))
        step = stop.tree.step(programs, now)
        stop.next_time = stop.tree.next_time(now)
        stop.awaited = stop.polled = stop.tree.asked & stop.known
        is_leader_alone = len(members) == 1 and members[0].process == stop.tree.leader
        if self._is_notified and is_leader_alone and members[0].parent == self._pid:
            # On tmux, the process is no child, and its exit is reported after the end of the stop.
            # An orphan is a child of this program, too, but its exit is not reported.
            stop.polled = set()
        children = {member.process.pid for member in members if member.parent == self._pid}
        return [_Signals(name, stop, step, children)]

    def _send(self, batch: Sequence[_Signals]) -> None:
        """Record which programs will be asked to exit or suspended, and send the signals.

        The record comes first. A program that receives a signal often runs at once, and this
        program could be killed before it continues.
        """
        if self._record is not None:
            entries = [entry for item in batch for entry in _new_entries(item.stop, item.step)]
            if entries:
                self._record.add_all(entries)
        for item in batch:
            for process, sent in item.step.signals:
                try:
                    if process.pid in item.children:
                        # The pid of a child is not used again before this thread collects its exit.
                        os.kill(process.pid, sent)
                    else:
                        send_signal(process, sent)
                except PermissionError:
                    # Programs of other users, such as sudo, accept no signals of this user.
                    continue
            if item.step.signals:
                self._pause = FIRST_PAUSE_SECONDS

    def _signal_group(self, stop: _Stop, members: Sequence[TreeStat]) -> None:
        """Send the signal to the whole process group, whose programs are not asked again."""
        tree = stop.tree
        asked = [member for member in members if member.group == tree.leader.pid]
        tree.asked.update(member.process for member in asked)
        if self._record is not None:
            self._record.add_all(_new_entries(stop, Step()))
        signal_group(tree.leader.pid, tree.number)
        for member in asked:
            if member.is_suspended:
                send_signal(member.process, signal.SIGCONT)


@functools.cache
def _number_of(name: str) -> signal.Signals:
    """Return a signal by its name without SIG."""
    return signal.Signals[f"SIG{name}"]


def _is_due(stop: _Stop, now: float) -> bool:
    """Return whether a time has passed, or a program has exited whose exit must be polled."""
    if now >= stop.next_time or not stop.awaited:
        return True
    return bool(stop.polled) and not all(is_alive(process) for process in stop.polled)


def _new_entries(stop: _Stop, step: Step) -> list[Entry]:
    """Return what must be recorded before the signals of a step are sent."""
    tree = stop.tree
    entries: list[Entry] = []
    held = [process for process, sent in step.signals if sent is signal.SIGSTOP]
    if held:
        entries.append(Entry(Kind.HELD, tree.leader.pid, held))
    kind = Kind.SIGNALED if tree.sends_signal else Kind.COMMANDED
    if kind is not stop.recorded_kind:
        stop.recorded.clear()
        stop.recorded_kind = kind
    new = tree.asked - stop.recorded
    if new:
        entries.append(Entry(kind, tree.leader.pid, new))
        stop.recorded |= new
    return entries
