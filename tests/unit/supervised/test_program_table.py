"""The programs of a process, with and without reading those whose places are known."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from symphony.supervised.processes.identity import ProcessId, identify
from symphony.supervised.processes.program_table import ProgramTable


@pytest.fixture
def shell() -> Iterator[subprocess.Popen[str]]:
    """Yield a shell that starts a program in the background, prints its pid, and runs another."""
    line = "sleep 1000 & echo $!; exec cat"
    with subprocess.Popen(
        ["sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        os.killpg(process.pid, signal.SIGKILL)


def identity(pid: int) -> ProcessId:
    found = identify(pid)
    assert found is not None
    return found


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_known_child_has_the_same_place_as_one_that_is_read(
    shell: subprocess.Popen[str],
) -> None:
    program = int(first_line(shell))
    leader = identity(shell.pid)
    members = ProgramTable([leader]).members(leader)
    assert {member.process.pid for member in members} == {leader.pid, program}
    assert members == ProgramTable().members(leader)
    assert not ProgramTable([leader]).is_single_child(leader)

    os.kill(shell.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, shell.pid, os.WSTOPPED | os.WNOWAIT)
    suspended = ProgramTable([leader]).members(leader)
    assert [member.is_suspended for member in suspended] == [True, False]
    assert suspended == ProgramTable().members(leader)

    os.kill(shell.pid, signal.SIGKILL)
    os.waitid(os.P_PID, shell.pid, os.WEXITED | os.WNOWAIT)
    remaining = ProgramTable([leader]).members(leader)
    assert [member.process.pid for member in remaining] == [program]


def test_other_children_are_left_out_unless_they_were_found_before(
    shell: subprocess.Popen[str],
) -> None:
    program = int(first_line(shell))
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        leader, sleeper = identity(other.pid), identity(shell.pid)
        try:
            table = ProgramTable([leader], {leader})
            assert [member.process for member in table.members(leader)] == [leader]
            others = table.members(sleeper)
            assert [member.process.pid for member in others] == [program], "only the shell is known"
            table = ProgramTable([leader], {leader, sleeper})
            members = table.members(leader, {leader, sleeper})
            assert {item.process.pid for item in members} == {leader.pid, sleeper.pid, program}
        finally:
            other.kill()


@pytest.mark.parametrize("has_exited_child", [False, True])
def test_a_child_is_single_if_it_runs_and_no_program_belongs_to_it(has_exited_child: bool) -> None:
    with contextlib.ExitStack() as stack:
        if has_exited_child:
            ended = stack.enter_context(subprocess.Popen(["true"]))
            os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        child = stack.enter_context(subprocess.Popen(["sleep", "1000"], start_new_session=True))
        stack.callback(child.kill)
        leader = identity(child.pid)
        assert ProgramTable([leader]).is_single_child(leader)
        assert not ProgramTable([leader]).is_single_child(ProcessId(leader.pid, leader.birth + 1))

        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert not ProgramTable([leader]).is_single_child(leader)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not ProgramTable([leader]).is_single_child(leader)


def test_a_process_that_is_no_child_is_read() -> None:
    parent = identity(os.getppid())
    assert not ProgramTable([parent]).is_single_child(parent)
    (member, *_) = ProgramTable([parent]).members(parent)
    assert (member.process, member.parent != os.getpid()) == (parent, True)


CHILDREN = """
import os, signal, subprocess
from symphony.supervised.processes.own_children import active_children

assert active_children() == frozenset()
first, second = (subprocess.Popen(["sleep", "1000"]) for _ in range(2))
assert active_children() == {first.pid, second.pid}
os.kill(first.pid, signal.SIGSTOP)
os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
assert active_children() == frozenset(), "one is suspended"
first.kill()
os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
assert active_children() == frozenset(), "one has exited"
first.wait()
assert active_children() == {second.pid}
second.kill()
second.wait()
"""


def test_children_are_active_if_none_has_exited_or_is_suspended() -> None:
    ended = subprocess.run([sys.executable, "-c", CHILDREN], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
