"""The rule that chooses which programs of a process receive a signal.

A process of an experiment can consist of several programs: a shell and the program that it runs, a
server and its workers, or a program and the reader of its output. A signal is for the program that
handles it, which is often not the first one. See docs/adr/0015-stopping.md.

All functions in this module are pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from symphony.supervised.processes.identity import ProcessId
from symphony.support.data_classes import dataclass, field


class Program(NamedTuple):
    """One operating-system process of a process of the experiment.

    ``parent`` is the pid of its parent process. ``catches`` is true if it handles the signal, or
    waits for it. ``ignores`` is true if the signal has no effect on it. ``is_suspended`` is true if
    a signal such as SIGSTOP has suspended it.
    """

    process: ProcessId
    parent: int
    catches: bool = False
    ignores: bool = False
    is_suspended: bool = False


@dataclass(slots=True)
class Choice:
    """The programs that receive a signal, and the programs above them.

    ``above`` contains programs that do not handle the signal and started a receiver, directly or
    through others. For example, a shell continues with its next command when the receiver exits.
    Both lists contain parents before their children.
    """

    receivers: list[Program] = field(default_factory=list)
    above: list[Program] = field(default_factory=list)


class Forest:
    """Programs with their parents and children. It is a forest, because parents can have exited."""

    def __init__(self, programs: Iterable[Program]) -> None:
        self.programs = {program.process.pid: program for program in programs}
        self._children: dict[int, list[Program]] = {}
        self.roots: list[Program] = []
        for program in self.programs.values():
            if program.parent in self.programs:
                self._children.setdefault(program.parent, []).append(program)
            else:
                self.roots.append(program)

    def children(self, program: Program) -> Sequence[Program]:
        """Return the children of a program."""
        return self._children.get(program.process.pid, ())

    def descendants(self, program: Program) -> list[Program]:
        """Return the descendants of a program, parents before their children."""
        return self.in_order(self.children(program))

    def in_order(self, programs: Iterable[Program]) -> list[Program]:
        """Return programs and their descendants, parents before their children."""
        result = list(programs)
        for program in result:
            # The list grows while it is traversed.
            result += self.children(program)
        return result


def choose(
    forest: Forest, roots: Iterable[Program], done: Collection[ProcessId] = frozenset()
) -> Choice:
    """Return the programs that handle the signal and are reached only through those that do not.

    The search begins at ``roots``. The programs in ``done`` have already received the signal, so
    they are no receivers, and the search continues below them.
    """
    choice = Choice()
    # Each entry is a program and the programs above it.
    pending: list[tuple[Program, tuple[Program, ...]]] = [(root, ()) for root in roots]
    above: dict[ProcessId, Program] = {}
    while pending:
        program, path = pending.pop(0)
        if program.process not in done:
            if program.catches:
                choice.receivers.append(program)
                above.update({item.process: item for item in path})
                continue
            path = (*path, program)
        pending += [(child, path) for child in forest.children(program)]
    choice.above = list(above.values())
    return choice
