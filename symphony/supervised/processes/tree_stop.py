"""The stop of one process and of all programs that belong to it.

`TreeStop` decides which programs receive which signals. It reads neither clocks nor ``/proc``: the
caller passes the time and the running programs, and sends the signals.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable

from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.signal_rule import Choice, Forest, Program, choose
from symphony.support.data_classes import dataclass, field

# When this part of the grace period has passed, the programs below those that have not exited
# receive the signal, too.
LATE_PART = 2 / 3
# How long programs that do not handle the signal may take to exit by themselves when the others
# have exited. For example, the reader of a pipe still reads what the pipe contains.
SETTLE_SECONDS = 0.3
# How long a program may take to exit by itself if its starter has ended the shell between the two.
# Some starters, such as concurrently, have sent the signal to the program too. Others, such as
# nodemon, have not.
DEFER_SECONDS = 5.0
DEFER_PART = 1 / 3
# A shell can start another program before it is suspended. The programs are listed again at most
# this many times.
MAX_HOLD_ATTEMPTS = 5


@dataclass(slots=True)
class Step:
    """The signals to send now, in this order.

    If ``lists_again`` is true, the caller then lists the programs again and asks for another step.
    """

    signals: list[tuple[ProcessId, signal.Signals]] = field(default_factory=list)
    lists_again: bool = False

    def send(self, program: Program, number: signal.Signals) -> None:
        """Send a signal to a program."""
        self.signals.append((program.process, number))


class TreeStop:
    """The stop of one process.

    ``leader`` is the process that symphony has started. ``number`` is the signal that asks programs
    to exit. ``begin`` is the time of the stop, and ``grace`` the grace period in seconds. If the
    programs are asked to exit in another way, such as by a command, ``sends_signal`` is false; see
    `send_signal`.
    """

    def __init__(
        self,
        leader: ProcessId,
        number: signal.Signals,
        *,
        begin: float,
        grace: float,
        sends_signal: bool = True,
    ) -> None:
        self.leader = leader
        self.number = number
        self.kill_time = begin + grace
        self._late_time = begin + grace * LATE_PART
        self.sends_signal = sends_signal
        # The programs that were asked to exit, and those that are suspended until they can exit.
        self.asked: set[ProcessId] = set()
        self._held: set[ProcessId] = set()
        self._hold_attempts = 0
        # The shells between a program and the program above it that was asked to exit.
        self._between: dict[ProcessId, list[ProcessId]] = {}
        self._defer_seconds = min(DEFER_SECONDS, grace * DEFER_PART)
        self._deferred_until: float | None = None
        self._settled_at: float | None = None
        self._is_late_done = False
        # The programs that were asked to exit and have not exited until the late time.
        self._waiting: set[ProcessId] = set()

    def resume(
        self, asked: Iterable[ProcessId], held: Iterable[ProcessId], *, sends_signal: bool
    ) -> None:
        """Continue a stop that another program has begun before it was killed.

        ``asked`` contains the programs that it has asked to exit, and ``held`` those that it has
        suspended. If ``sends_signal`` is false, the command that stops the process was begun, and
        no signal was sent.
        """
        self.asked.update(asked)
        self._held.update(held)
        self.sends_signal = sends_signal

    def hasten(self, now: float, grace: float) -> None:
        """Shorten the grace period to ``grace`` seconds from now. It never becomes longer."""
        self.kill_time = min(self.kill_time, now + grace)
        self._late_time = min(self._late_time, now + grace * LATE_PART)

    def send_signal(self) -> None:
        """Send the signal in the next step, because the command that stops the process failed."""
        if not self.sends_signal:
            self.sends_signal = True
            self.asked.clear()

    def next_time(self, now: float) -> float:
        """Return the time of the next step that does not depend on the exit of a program."""
        for moment in (self._deferred_until, self._settled_at):
            if moment is not None and moment > now:
                return min(moment, self.kill_time)
        if not self._is_late_done and now < self._late_time:
            return self._late_time
        return self.kill_time

    def step(self, programs: Collection[Program], now: float) -> Step:
        """Return the signals that the running programs receive now."""
        if len(programs) == 1 and not self.asked and now < self._late_time:
            # This is the most frequent case, and a stop can concern thousands of processes.
            (program,) = programs
            return self._ask_only(program)
        forest = Forest(programs)
        running = forest.programs.values()
        if now >= self.kill_time:
            return Step([(program.process, signal.SIGKILL) for program in running])
        if now >= self._late_time and not self.sends_signal:
            self.send_signal()
            self._is_late_done = True
        if not any(program.process in self.asked for program in running):
            return self._ask_next(forest, now)
        if now >= self._late_time and not self._is_late_done:
            return self._ask_late(forest)
        return self._ask_below(forest, now)

    def _ask_only(self, program: Program) -> Step:
        """Ask the only program to exit, whether or not it handles the signal."""
        step = Step()
        self.asked.add(program.process)
        self._send_to(program, step)
        if program.is_suspended or program.process in self._held:
            step.send(program, signal.SIGCONT)
        self._held.discard(program.process)
        return step

    def _send_to(self, program: Program, step: Step) -> None:
        """Send the signal to a program, unless a command asks it to exit."""
        if self.sends_signal:
            # Shells let their background jobs ignore SIGINT.
            step.send(program, signal.SIGTERM if program.ignores else self.number)

    def _ask_next(self, forest: Forest, now: float) -> Step:
        """Ask the next programs to exit, because none that was asked is running."""
        if self.asked:
            # Only the programs that the command concerned are not sent a signal.
            self.sends_signal = True
        leaders = [root for root in forest.roots if root.process == self.leader]
        choice = choose(forest, leaders or forest.roots)
        if not choice.receivers and self.asked:
            choice = choose(forest, forest.roots)
        if self._defers(forest, choice, now):
            return Step()
        if choice.receivers:
            return self._ask(forest, choice)
        if not self.asked:
            # No program handles the signal. A shell receives it before the program that it runs,
            # so that it does not continue with its next command.
            return self._ask(forest, Choice(receivers=forest.in_order(forest.roots)))
        return self._ask_rest(forest, forest.in_order(forest.roots), now)

    def _defers(self, forest: Forest, choice: Choice, now: float) -> bool:
        """Return whether a program may have received the signal from its starter, and may exit."""
        running = {program.process for program in forest.programs.values()}
        is_orphaned = any(
            not running.issuperset(self._between.get(program.process, ()))
            for program in choice.receivers
        )
        if not is_orphaned:
            return False
        if self._deferred_until is None:
            self._deferred_until = now + self._defer_seconds
        return now < self._deferred_until

    def _ask(self, forest: Forest, choice: Choice) -> Step:
        """Ask programs to exit. Programs that another program has suspended are continued, because
        a receiver cannot react otherwise, or can wait for them.
        """
        self._settled_at = None
        step = self._hold(choice)
        if step.signals:
            return step
        self._hold_attempts = 0
        for program in choice.receivers:
            self._between[program.process] = []
            self._note_between(forest, program)
            self.asked.add(program.process)
            self._send_to(program, step)
        # A shell can have set a trap, or executed another program, since the last look.
        released = {program.process for program in choice.receivers} & self._held
        self._held -= released
        for program in forest.programs.values():
            is_suspended = program.is_suspended and program.process not in self._held
            if is_suspended or program.process in released:
                step.send(program, signal.SIGCONT)
        return step

    def _note_between(self, forest: Forest, receiver: Program) -> None:
        """Note the shells between a receiver and each of its descendants."""
        for program in forest.descendants(receiver):
            parent = forest.programs[program.parent]
            above: list[ProcessId] = []
            if not parent.catches:
                above = [*self._between[parent.process], parent.process]
            self._between[program.process] = above

    def _hold(self, choice: Choice) -> Step:
        """Suspend the programs above the receivers that are not suspended yet."""
        step = Step()
        if self._hold_attempts < MAX_HOLD_ATTEMPTS:
            for program in choice.above:
                if program.process not in self._held:
                    self._held.add(program.process)
                    step.send(program, signal.SIGSTOP)
        if step.signals:
            self._hold_attempts += 1
            step.lists_again = True
        return step

    def _ask_rest(self, forest: Forest, programs: Iterable[Program], now: float) -> Step:
        """Ask programs that do not handle the signal, when the others have exited.

        A suspended program without running descendants exits at once. The other programs may exit
        by themselves first.
        """
        if self._settled_at is None:
            self._settled_at = now + SETTLE_SECONDS
        is_settled = now >= self._settled_at
        step = Step()
        for program in programs:
            is_held = program.process in self._held
            if is_settled or (is_held and not forest.children(program)):
                # A shell that ignores the signal would continue with its next command.
                is_killed = is_held and program.ignores
                step.send(program, signal.SIGKILL if is_killed else signal.SIGTERM)
                if is_held or program.is_suspended:
                    step.send(program, signal.SIGCONT)
                self.asked.add(program.process)
        if is_settled:
            self._settled_at = None
        return step

    def _ask_late(self, forest: Forest) -> Step:
        """Ask the programs below those that have not exited, and the programs without a parent.

        For example, a program can wait for its child without passing on the signal. The shells
        above and the readers of pipes are not asked, because a program may still use them.
        """
        choice = choose(forest, forest.roots, self.asked)
        found = {program.process for program in choice.receivers}
        for program in forest.programs.values():
            if program.process not in self.asked:
                continue
            below = forest.descendants(program)
            if not any(item.process in found for item in below):
                choice.receivers += [item for item in below if item.process not in self.asked]
        step = self._ask(forest, choice)
        if not step.lists_again:
            receivers = {program.process for program in choice.receivers}
            self._waiting = self.asked - receivers
            self._is_late_done = True
        return step

    def _ask_below(self, forest: Forest, now: float) -> Step:
        """Ask the shells below a program that waits for them, when their programs have exited."""
        running = {program.process for program in forest.programs.values()}
        if not self._waiting or not running.isdisjoint(self.asked - self._waiting):
            return Step()
        waiting = [item for item in forest.programs.values() if item.process in self._waiting]
        below = [item for program in waiting for item in forest.descendants(program)]
        rest = [item for item in below if item.process not in self.asked]
        return self._ask_rest(forest, rest, now) if rest else Step()
