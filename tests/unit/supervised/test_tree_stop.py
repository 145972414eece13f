"""The rule that chooses which programs of a process receive a signal, and when."""

from __future__ import annotations

import signal

import pytest

from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.program_table import parse_masks
from symphony.supervised.processes.signal_rule import Forest, Program, choose
from symphony.supervised.processes.tree_stop import DEFER_PART, LATE_PART, SETTLE_SECONDS, TreeStop

GRACE = 12.0
LATE = GRACE * LATE_PART
# The names of programs that handle the signal. All others are ended by it.
CATCHING = frozenset({"app", "app2", "master", "worker", "npm", "just"})


class Tree:
    """The programs of a process, as a mapping from names to the names of their parents.

    The first program is the leader. A program without a parent in the tree has lost its parent.
    """

    def __init__(self, parents: dict[str, str], *, ignoring: frozenset[str] = frozenset()) -> None:
        names = [*parents, *(set(parents.values()) - {"", *parents})]
        self.pids = {name: 100 + index for index, name in enumerate(names)}
        self.programs = {
            name: Program(
                ProcessId(self.pids[name], 1.0),
                self.pids.get(parent, 1),
                catches=name in CATCHING,
                ignores=name in ignoring,
            )
            for name, parent in parents.items()
        }

    def end(self, *names: str) -> None:
        """Remove programs that have exited. Their children lose their parent."""
        for name in names:
            pid = self.programs.pop(name).process.pid
            for other, program in self.programs.items():
                if program.parent == pid:
                    self.programs[other] = program._replace(parent=1)

    def suspend(self, name: str) -> None:
        self.programs[name] = self.programs[name]._replace(is_suspended=True)

    def stop(self, number: signal.Signals = signal.SIGTERM, **options: bool) -> TreeStop:
        leader = next(iter(self.programs.values())).process
        return TreeStop(leader, number, begin=0.0, grace=GRACE, **options)

    def step(self, stop: TreeStop, now: float = 0.0) -> list[str]:
        """Do a step, and return the signals as words such as ``TERM app``.

        A program that receives STOP is suspended, as the kernel does it.
        """
        by_process = {program.process: name for name, program in self.programs.items()}
        words = []
        lists_again = True
        while lists_again:
            step = stop.step(self.programs.values(), now)
            lists_again = step.lists_again
            for process, number in step.signals:
                name = by_process[process]
                words.append(f"{number.name.removeprefix('SIG')} {name}")
                if number in (signal.SIGSTOP, signal.SIGCONT):
                    is_suspended = number == signal.SIGSTOP
                    program = self.programs[name]._replace(is_suspended=is_suspended)
                    self.programs[name] = program
        return words


@pytest.mark.parametrize(
    ("parents", "receivers", "above"),
    [
        ({"app": ""}, ["app"], []),
        ({"sleep": ""}, [], []),
        ({"sh": "", "app": "sh"}, ["app"], ["sh"]),
        # The reader of a pipe.
        ({"sh": "", "app": "sh", "cat": "sh"}, ["app"], ["sh"]),
        # The master of a pool stops its workers.
        ({"sh": "", "master": "sh", "worker": "master"}, ["master"], ["sh"]),
        ({"sh": "", "xargs": "sh", "app": "xargs"}, ["app"], ["sh", "xargs"]),
        ({"sh": "", "app": "sh", "sh2": "sh", "app2": "sh2"}, ["app", "app2"], ["sh", "sh2"]),
        ({"npm": "", "sh": "npm", "app": "sh"}, ["npm"], []),
    ],
)
def test_receivers_are_the_first_programs_that_handle_the_signal(
    parents: dict[str, str], receivers: list[str], above: list[str]
) -> None:
    tree = Tree(parents)
    forest = Forest(tree.programs.values())
    choice = choose(forest, forest.roots)
    assert choice.receivers == [tree.programs[name] for name in receivers]
    assert choice.above == [tree.programs[name] for name in above]


def test_a_shell_is_suspended_until_its_program_has_exited() -> None:
    tree = Tree({"sh": "", "app": "sh", "cat": "sh"})
    stop = tree.stop()
    assert tree.step(stop) == ["STOP sh", "TERM app"]
    assert tree.step(stop, LATE - 1) == []
    tree.end("app")
    # The reader of the pipe may read the rest.
    assert tree.step(stop, LATE - 1) == []
    tree.end("cat")
    assert tree.step(stop, LATE - 1) == ["TERM sh", "CONT sh"]


def test_a_reader_that_does_not_exit_receives_the_signal() -> None:
    tree = Tree({"sh": "", "app": "sh", "tail": "sh"})
    stop = tree.stop()
    tree.step(stop)
    tree.end("app")
    assert tree.step(stop, 1.0) == []
    assert stop.next_time(1.0) == 1.0 + SETTLE_SECONDS
    assert tree.step(stop, 1.0 + SETTLE_SECONDS) == ["TERM sh", "CONT sh", "TERM tail"]


def test_an_inner_shell_ends_before_the_reader_of_its_output() -> None:
    """The reader of `{ app; echo; } | cat` sees the end of its input when the inner shell exits."""
    tree = Tree({"sh": "", "inner": "sh", "app": "inner", "cat": "sh"})
    stop = tree.stop()
    assert tree.step(stop) == ["STOP sh", "STOP inner", "TERM app"]
    tree.end("app")
    assert tree.step(stop, 1.0) == ["TERM inner", "CONT inner"]
    tree.end("inner", "cat")
    assert tree.step(stop, 1.0) == ["TERM sh", "CONT sh"]


def test_all_programs_receive_a_signal_that_none_of_them_handles() -> None:
    """The shell receives it first, so that it does not continue with its next command."""
    tree = Tree({"sh": "", "sleep": "sh", "daemon": "gone"})
    assert tree.step(tree.stop()) == ["TERM sh", "TERM daemon", "TERM sleep"]


def test_what_a_starter_leaves_behind_receives_the_signal_at_once() -> None:
    """npm exits at once and does not pass on the signal."""
    tree = Tree({"npm": "", "sh": "npm", "app": "sh", "worker": "app"})
    stop = tree.stop()
    assert tree.step(stop) == ["TERM npm"]
    tree.end("npm")
    assert tree.step(stop, 0.1) == ["STOP sh", "TERM app"]
    tree.end("app")
    assert tree.step(stop, 1.0) == ["TERM worker"]


@pytest.mark.parametrize("passes_on", [True, False])
def test_a_program_whose_shell_was_ended_by_its_starter_may_exit_first(passes_on: bool) -> None:
    """concurrently and nodemon end the shell, but only concurrently passes on the signal."""
    tree = Tree({"npm": "", "sh": "npm", "app": "sh"})
    stop = tree.stop()
    assert tree.step(stop) == ["TERM npm"]
    tree.end("npm", "sh")
    assert tree.step(stop, 0.1) == []
    assert stop.next_time(0.1) == 0.1 + GRACE * DEFER_PART
    if passes_on:
        tree.end("app")
    expected = [] if passes_on else ["TERM app"]
    assert tree.step(stop, 0.1 + GRACE * DEFER_PART) == expected


def test_a_child_for_which_its_starter_waits_receives_the_signal_late() -> None:
    """just handles the signal, does not pass it on, and waits."""
    tree = Tree({"just": "", "sh": "just", "app": "sh", "tail": "sh"})
    stop = tree.stop()
    assert tree.step(stop) == ["TERM just"]
    assert stop.next_time(0.0) == LATE
    assert tree.step(stop, LATE) == ["STOP sh", "TERM app"]
    assert tree.step(stop, LATE + 0.1) == []
    assert stop.next_time(LATE + 0.1) == GRACE
    tree.end("app", "tail")
    assert tree.step(stop, LATE + 1) == ["TERM sh", "CONT sh"]


def test_a_child_that_does_not_handle_the_signal_receives_it_late() -> None:
    tree = Tree({"just": "", "sh": "just", "sleep": "sh"})
    stop = tree.stop()
    tree.step(stop)
    assert tree.step(stop, LATE) == ["TERM sh", "TERM sleep"]


def test_a_program_that_takes_long_receives_no_second_signal_and_keeps_its_reader() -> None:
    tree = Tree({"sh": "", "app": "sh", "tee": "sh"})
    stop = tree.stop()
    tree.step(stop)
    assert tree.step(stop, LATE) == []
    assert tree.step(stop, GRACE) == ["KILL sh", "KILL app", "KILL tee"]


def test_a_program_without_a_parent_receives_the_signal_after_the_others() -> None:
    tree = Tree({"app": "", "daemon": "gone", "app2": "gone"})
    stop = tree.stop()
    assert tree.step(stop) == ["TERM app"]
    tree.end("app")
    assert tree.step(stop, 1.0) == ["TERM app2"]
    tree.end("app2")
    tree.step(stop, 2.0)
    assert tree.step(stop, 2.0 + SETTLE_SECONDS) == ["TERM daemon"]


def test_suspended_programs_are_continued() -> None:
    """A shell that handles the signal waits for its suspended child."""
    tree = Tree({"app": "", "sleep": "app"})
    for name in ("app", "sleep"):
        tree.suspend(name)
    assert tree.step(tree.stop()) == ["TERM app", "CONT app", "CONT sleep"]


@pytest.mark.parametrize(
    ("name", "caught", "blocked", "number", "is_suspended", "catches"),
    [
        ("python3", [15, 2], [], 15, False, True),
        ("python3", [2], [], 15, False, False),
        # A shell that waits for a command.
        ("bash", [2, 17], [], 2, False, False),
        ("bash", [15], [], 15, False, True),
        ("dash", [17], range(1, 32), 15, True, False),
        ("dash", [17], range(1, 32), 15, False, False),
        # A program that waits for signals with sigwait(3).
        ("mariadbd", [], [15], 15, False, True),
        ("tini", [], range(1, 32), 15, True, False),
    ],
)
def test_what_a_program_does_with_a_signal_is_read_from_its_masks(
    name: str,
    caught: list[int],
    blocked: list[int],
    number: int,
    is_suspended: bool,
    catches: bool,
) -> None:
    lines = [f"Name:\t{name}"]
    for key, numbers in {"SigBlk": blocked, "SigIgn": [1], "SigCgt": caught}.items():
        lines.append(f"{key}:\t{sum(1 << (item - 1) for item in numbers):016x}")
    masks = parse_masks("\n".join(lines).encode())
    assert masks.catches(number, is_suspended=is_suspended) is catches
    assert masks.ignores(1)


def test_a_background_job_that_ignores_int_receives_term() -> None:
    tree = Tree({"sh": "", "sleep": "sh"}, ignoring=frozenset({"sleep"}))
    assert tree.step(tree.stop(signal.SIGINT)) == ["INT sh", "TERM sleep"]


def test_a_shell_that_ignores_the_signal_is_killed_before_its_next_command() -> None:
    tree = Tree({"sh": "", "app": "sh"}, ignoring=frozenset({"sh"}))
    stop = tree.stop()
    assert tree.step(stop) == ["STOP sh", "TERM app"]
    tree.end("app")
    assert tree.step(stop, 1.0)[0] == "KILL sh"


def test_a_command_replaces_the_signal() -> None:
    tree = Tree({"sh": "", "app": "sh"})
    stop = tree.stop(sends_signal=False)
    assert tree.step(stop) == ["STOP sh"]
    tree.end("app")
    assert tree.step(stop, 1.0) == ["TERM sh", "CONT sh"]


def test_programs_receive_the_signal_if_the_command_fails() -> None:
    tree = Tree({"sh": "", "app": "sh"})
    stop = tree.stop(sends_signal=False)
    tree.step(stop)
    stop.send_signal()
    assert tree.step(stop, 1.0) == ["TERM app"]


def test_programs_receive_the_signal_if_the_command_takes_too_long() -> None:
    tree = Tree({"master": "", "worker": "master"})
    stop = tree.stop(sends_signal=False)
    assert tree.step(stop) == []
    assert tree.step(stop, LATE) == ["TERM master"]
    assert tree.step(stop, LATE + 1) == []


def test_the_grace_period_can_only_become_shorter() -> None:
    tree = Tree({"app": ""})
    stop = tree.stop()
    tree.step(stop)
    stop.hasten(1.0, 100.0)
    assert stop.kill_time == GRACE
    stop.hasten(1.0, 0.0)
    assert tree.step(stop, 1.0) == ["KILL app"]


def test_a_program_that_a_shell_has_just_started_is_found() -> None:
    """The programs are listed again when the shells above them are suspended."""
    tree = Tree({"sh": "", "app": "sh"})
    stop = tree.stop()
    first = stop.step(tree.programs.values(), 0.0)
    assert first.lists_again
    later = Tree({"sh": "", "app": "sh", "app2": "sh"})
    signals = stop.step(later.programs.values(), 0.0).signals
    assert [later.programs[name].process for name in ("app", "app2")] == [
        item for item, _ in signals
    ]


def test_a_suspended_shell_that_has_set_a_trap_meanwhile_is_continued() -> None:
    tree = Tree({"sh": "", "app": "sh"})
    stop = tree.stop()
    stop.step(tree.programs.values(), 0.0)
    tree.suspend("sh")
    tree.programs["sh"] = tree.programs["sh"]._replace(catches=True)
    assert tree.step(stop) == ["TERM sh", "CONT sh"]
