"""Which processes belong to a run, for each kind of evidence."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from symphony.supervised.processes import membership
from symphony.supervised.processes.environment import read_environment
from symphony.supervised.processes.identity import RUN_ID_VARIABLE, ProcessId, identify
from symphony.supervised.processes.mark import (
    MarkedChildren,
    mark_of,
    mark_process,
    read_mark,
    remove_own_mark,
)
from symphony.supervised.processes.membership import RunProcesses, find_session_leaders, owner_names
from tests.overwriting import OVERWRITING

RUN = os.urandom(16).hex()
IN_RUN = {RUN_ID_VARIABLE: RUN}
# Starts itself again as a child, in another process group, without the run's mark.
WITH_CHILD = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {OVERWRITING!r}], "
    "**eval(sys.argv[1]))\n" + OVERWRITING
)


@contextlib.contextmanager
def started(
    program: str = OVERWRITING,
    *args: str,
    env: Mapping[str, str] | None = None,
    up: int = 1,
    **options: Any,
) -> Iterator[list[ProcessId]]:
    """Run a program in a new session until the end of the block.

    Yield the identities that the program and its children print.
    """
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program, *args],
        env=dict(env or IN_RUN),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    ) as process:
        assert process.stdout is not None
        pids = [int(process.stdout.readline().split()[1]) for _ in range(up)]
        found = [identify(pid) for pid in sorted(pids, key=lambda pid: pid != process.pid)]
        try:
            yield [item for item in found if item is not None]
        finally:
            process.kill()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)


def find(run_id: str = RUN, *leaders: ProcessId) -> list[ProcessId]:
    return RunProcesses(run_id, leaders).find()


def test_overwritten_environment_is_not_intact() -> None:
    with started() as (process,):
        found = read_environment(process.pid)
    assert found is not None
    assert (found.get(RUN_ID_VARIABLE), found.is_intact) == (None, False)


def test_mark_is_found_after_the_environment_was_overwritten() -> None:
    with started() as (process,):
        assert find() == []
        mark_process(process.pid, RUN)
        assert find() == [process]
        assert find(os.urandom(16).hex()) == []
        assert owner_names([process], {}) == {None}
        assert owner_names([process], {"p": process}) == {"p"}


def test_mark_contains_the_process_after_the_environment_was_overwritten() -> None:
    marked_children = MarkedChildren(RUN)
    with marked_children.of("q"), started() as (process,):
        assert find() == [process]
        assert owner_names([process], {}, ["p", "q"]) == {"q"}
        assert owner_names([process], {"q": ProcessId(process.pid, 0.0)}) == {"q"}
        assert owner_names([process], {}, ["p"]) == {None}


def test_environment_without_the_identifier_overrides_the_mark() -> None:
    """The supervisor of an experiment that a process of the run launches is not in the run."""
    for env in ({"A": "1"}, {RUN_ID_VARIABLE: os.urandom(16).hex()}):
        with subprocess.Popen(["sleep", "1000"], env=env) as process:
            mark_process(process.pid, RUN)
            assert find() == []
            process.kill()


def test_leader_counts_only_with_its_creation_time() -> None:
    with started() as (leader,):
        assert find(RUN, leader) == [leader]
        assert find(RUN, ProcessId(leader.pid, leader.birth + 1)) == []


def test_leading_child_and_its_session_are_found_without_reading_it() -> None:
    with started(WITH_CHILD, "{'env': {'A': '1'}}", up=2, env={"A": "1"}) as (leader, child):
        processes = RunProcesses(RUN)
        assert set(processes.find([leader])) == {leader, child}
        os.kill(leader.pid, 9)
        os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
        assert processes.find([leader]) == [child]


def test_exited_child_whose_exit_is_not_collected_is_not_examined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    examined: list[int] = []

    def read_stat(pid: int) -> None:
        examined.append(pid)

    with started() as (leader,):
        processes = RunProcesses(RUN)
        assert leader in processes.find([leader])
        os.kill(leader.pid, signal.SIGKILL)
        os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
        monkeypatch.setattr(membership, "read_stat", read_stat)
        assert processes.find([leader]) == []
    assert leader.pid not in examined
    assert examined


def test_processes_that_are_older_than_the_run_are_not_examined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["sleep", "1000"], env=IN_RUN) as program:
        process = identify(program.pid)
        assert process is not None
        assert RunProcesses(RUN, since=process.birth).find() == [process]
        read: list[int] = []
        monkeypatch.setattr(membership, "read_environment", read.append)
        assert RunProcesses(RUN, since=process.birth + 1).find() == []
        assert process.pid not in read
        program.kill()


def test_process_of_another_user_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    with started() as (leader,):
        with monkeypatch.context() as context:
            context.setattr(os, "kill", refuse)
            assert find(RUN, leader) == []
        assert find(RUN, leader) == [leader]


@pytest.mark.parametrize("options", [{"process_group": 0}, {"start_new_session": True}])
def test_session_and_children_of_a_leader_are_found(options: dict[str, Any]) -> None:
    """A child in the same session is found even if it is started without the identifier."""
    text = repr(options)
    if "process_group" in options:
        text = repr({**options, "env": {"A": "1"}})
        if sys.version_info < (3, 11):
            text = "{'preexec_fn': __import__('os').setpgrp, 'env': {'A': '1'}}"
    with started(WITH_CHILD, text, up=2) as (leader, child):
        processes = RunProcesses(RUN, [leader])
        assert set(processes.find()) == {leader, child}
        os.kill(leader.pid, 9)
        os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
        assert processes.find() == [child]


def test_session_leader_is_found_by_its_name() -> None:
    with subprocess.Popen(
        ["sleep", "1000"], env={**IN_RUN, "SYMPHONY_ROLE": "p"}, start_new_session=True
    ) as process:
        assert find_session_leaders(RUN) == {"p": identify(process.pid)}
        process.kill()


def test_children_inherit_the_mark_and_their_parent_does_not_keep_it() -> None:
    with MarkedChildren(RUN):
        process = subprocess.Popen(["sleep", "1000"])
    assert read_mark(os.getpid()) != mark_of(RUN)
    with process:
        assert read_mark(process.pid) == mark_of(RUN)
        process.kill()
    mark_process(os.getpid(), RUN)
    remove_own_mark()
    assert read_mark(os.getpid()) != mark_of(RUN)
    assert mark_of("no-identifier") is None
    with MarkedChildren("no-identifier"):
        assert read_mark(os.getpid()) != mark_of(RUN)
