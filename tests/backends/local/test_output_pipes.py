"""The program that copies output from pipes to logs, and its failures."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from symphony import Cluster
from symphony.plan.restart_policy import Backoff
from symphony.status import State
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.capture import copy_output
from symphony.testing import until
from symphony.testing.programs import FOREVER

from .conftest import eventually, kill, kill_supervision, python

# More than a pipe can contain.
LINES = 20_000

# Writes many lines, each time it is told to, and exits after the second time.
WRITER = f"""
import pathlib, sys, time
for number in (1, 2):
    while not pathlib.Path(f"go-{{number}}").exists():
        time.sleep(0.01)
    for line in range({LINES}):
        print(number, line)
    sys.stdout.flush()
"""

# A supervisor of a run, of which only the pipes exist.
SUPERVISOR = """
import os, pathlib, signal, sys
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.capture import output_pipes
from symphony.supervised.supervisor.event_loop import EventLoop

run = RunDirectory(pathlib.Path(sys.argv[1]))
pipes = output_pipes.OutputPipes(EventLoop(print), run)
"""

# The program that copies output is another one, and the supervisor is killed.
KILLED_SUPERVISOR = f"""
{SUPERVISOR}
sys.executable = sys.argv[2]
pipes.prepare()
print(pipes._program.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

# Takes over the pipes, and exits.
NEXT_SUPERVISOR = f"""
{SUPERVISOR}
output_pipes._LEAVE_SECONDS = 0.1
pipes.prepare()
print(pipes._program.pid, run.pipes_lock.read_text())
"""

# Writes to a log although a program holds the lock, and starts a program when that one has exited.
PATIENT_SUPERVISOR = f"""
{SUPERVISOR}
output_pipes._GIVE_UP_SECONDS = 0.1
pipes.prepare()
os.write(pipes.open("p"), b"output")
print("has started a process", flush=True)
input()
pipes.prepare()
print(pipes._program.pid, run.pipes_lock.read_text())
"""


def expected(number: int) -> str:
    return "".join(f"{number} {line}\n" for line in range(LINES))


def copier_of(cluster):
    """Wait for the program that copies the output of the experiment, and return its pid."""
    lock = RunDirectory(cluster._root / "exp").pipes_lock
    pids = []

    def is_found():
        # The file is empty while one program replaces another.
        pids[:] = lock.read_text().split() if lock.exists() else []
        return pids

    eventually(is_found)
    return int(pids[0])


def wait_for_pipe(copier, name):
    """Wait until the program, which may still be starting, has received the pipe of a process."""
    files = Path(f"/proc/{copier}/fd")
    eventually(
        lambda: any(str(path.resolve()).endswith(f"/pipes/{name}") for path in files.iterdir())
    )


@pytest.fixture
def writer(cluster, experiment, tmp_path):
    """Launch a process that writes when `go` creates a file."""
    python(experiment, "p", WRITER, start_dir=str(tmp_path))
    cluster.launch(experiment)
    wait_for_pipe(copier_of(cluster), "p")
    return tmp_path


def go(directory: Path, number: int) -> None:
    (directory / f"go-{number}").touch()


def log_of(cluster) -> str:
    return RunDirectory(cluster._root / "exp").log("p").read_text()


def test_output_continues_without_a_supervisor(cluster, writer):
    kill_supervision(cluster)
    go(writer, 1)
    eventually(lambda: log_of(cluster) == expected(1))
    first = copier_of(cluster)
    # The next command starts a supervisor, whose program takes over the pipe.
    assert cluster.describe_process("exp", "p").state is State.RUNNING
    eventually(lambda: copier_of(cluster) != first)
    go(writer, 2)
    cluster.wait("exp", timeout=30)
    assert cluster.get_log("exp", "p") == expected(1) + expected(2)


@pytest.mark.parametrize("is_supervisor_killed", [False, True])
def test_process_outlives_the_program_that_copies_its_output(cluster, writer, is_supervisor_killed):
    if is_supervisor_killed:
        kill_supervision(cluster)
    os.kill(copier_of(cluster), signal.SIGKILL)
    go(writer, 1)
    cluster.describe_experiment("exp")
    go(writer, 2)
    status = cluster.wait("exp", timeout=30)
    assert cluster.get_log("exp", "p") == expected(1) + expected(2)
    if not is_supervisor_killed:
        assert status.processes[0].state is State.SUCCEEDED


def test_program_exits_although_a_process_has_exited_without_a_supervisor(cluster, experiment):
    """The next supervisor opens a pipe that no process has open."""
    for name in "pq":
        python(experiment, name, FOREVER)
    cluster.launch(experiment)
    first, pid = copier_of(cluster), cluster.describe_process("exp", "p").pid
    kill_supervision(cluster)
    kill(pid)
    cluster.describe_experiment("exp")
    eventually(lambda: copier_of(cluster) != first)
    program = psutil.Process(copier_of(cluster))
    # It has received both pipes in one message.
    wait_for_pipe(program.pid, "q")
    cluster.delete("exp")
    program.wait(20)


@pytest.mark.parametrize("is_killed", [True, False])
def test_the_program_outlives_a_supervisor(tmp_path, is_killed):
    """The supervisor has not read that the program is ready, and it has not sent the pipe of q.

    The process of another pipe has exited.
    """
    pipes, logs = tmp_path / "pipes", tmp_path / "logs"
    pipes.mkdir()
    logs.mkdir()
    os.mkfifo(pipes / "exited")
    writers = {}
    for name in "pq":
        os.mkfifo(pipes / name)
        writers[name] = os.open(pipes / name, os.O_RDWR)
    reader = os.open(pipes / "p", os.O_RDONLY | os.O_NONBLOCK)
    channel, program_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    directories = [os.open(path, os.O_RDONLY) for path in (pipes, logs)]
    with (tmp_path / "lock").open("w") as lock, (logs / "p.log").open("ab") as log, program_end:
        descriptors = [lock.fileno(), *directories]
        program = subprocess.Popen(
            [sys.executable, "-I", "-S", copy_output.__file__, *map(str, descriptors)],
            stdin=program_end,
            pass_fds=descriptors,
        )
        select.select([channel], [], [])
        socket.send_fds(channel, [copy_output.ADD + b"p"], [reader, log.fileno()])
        if not is_killed:
            channel.send(copy_output.END)
        channel.close()
    for descriptor in (reader, *directories):
        os.close(descriptor)
    late = b"late output" * 10_000
    os.write(writers["p"], b"late")
    if is_killed:
        # More than a pipe can contain, so the program reads it at the same time.
        os.write(writers["q"], late)
    os.close(writers["p"])
    if is_killed:
        os.close(writers.pop("q"))
    assert program.wait(30) == 0
    assert (logs / "p.log").read_bytes() == b"late"
    if is_killed:
        assert (logs / "q.log").read_bytes() == late
    else:
        assert not (logs / "q.log").exists()
        os.close(writers["q"])


def test_one_answer_concerns_the_output_of_all_processes(tmp_path):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pipes = {name: os.pipe() for name in "pq"}
    with ours, theirs, (tmp_path / "log").open("ab") as log:
        copier = copy_output.Copier(theirs, [])
        signal.set_wakeup_fd(-1)
        for name, (reader, writer) in pipes.items():
            os.set_blocking(reader, False)
            copier._add(name, reader, os.dup(log.fileno()))
            os.write(writer, f"{name}\n".encode())
            os.close(writer)
        ours.send(copy_output.DRAIN + b"7")
        copier._receive(theirs)
        assert ours.recv(100) == copy_output.DRAIN + b"7"
        assert sorted((tmp_path / "log").read_text().split()) == ["p", "q"]
        # Nothing waits for the end of the pipes.
        for name in pipes:
            copier._copy(name)


def test_exit_is_reported_although_the_program_does_not_respond(cluster, experiment, tmp_path):
    may_exit = tmp_path / "may-exit"
    wait = f"until [ -e {may_exit} ]; do sleep 0.02; done"
    experiment.new_process("first", cmd=f"{wait}; echo first")
    experiment.new_process("second", cmd="echo second").starts_after("first", "succeeded")
    cluster.launch(experiment)
    copier = copier_of(cluster)
    wait_for_pipe(copier, "first")
    os.kill(copier, signal.SIGSTOP)
    may_exit.touch()
    until(cluster, "exp", lambda now: now.processes[0].state is State.SUCCEEDED)
    os.kill(copier, signal.SIGCONT)
    cluster.wait("exp", timeout=30)
    # The exits may have been reported without the output.
    for name in ("first", "second"):
        eventually(lambda name=name: cluster.get_log("exp", name) == f"{name}\n")


def test_log_is_complete_when_an_exit_is_reported(state):
    cluster = Cluster.new("local", state_dir=state, backoff=Backoff(first=0.01))
    experiment = cluster.new_experiment("exp")
    for number in range(8):
        process = python(experiment, f"p-{number}", "print('x' * 100_000); raise SystemExit(1)")
        process.restart_policy("OnFailure", max_restarts=2)
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60)
    for number in range(8):
        assert cluster.get_log("exp", f"p-{number}") == f"{'x' * 100_000}\n" * 3
    eventually(lambda: not Path(f"/proc/{copier_of(cluster)}").exists())


def test_program_ends_if_the_supervisor_exits_without_reading_its_message(tmp_path):
    """The kernel then reports an error instead of the end of the channel."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with (tmp_path / "lock").open("w") as lock, ours, theirs:
        command = [sys.executable, copy_output.__file__, str(lock.fileno())]
        program = subprocess.Popen(
            command, stdin=theirs, pass_fds=[lock.fileno()], stderr=subprocess.PIPE, text=True
        )
        select.select([ours], [], [])
        ours.close()
        assert program.communicate(timeout=30)[1] == ""
        assert program.returncode == 0


def test_a_program_that_was_suspended_at_its_start_is_replaced(tmp_path):
    """It has not written its pid, and its supervisor was killed."""
    suspended = tmp_path / "suspended"
    suspended.write_text("#!/bin/sh\nkill -STOP $$\nexec sleep 60\n")
    suspended.chmod(0o700)
    run = tmp_path / "run"
    run.mkdir()
    first = subprocess.run(
        [sys.executable, "-c", KILLED_SUPERVISOR, str(run), str(suspended)],
        stdout=subprocess.PIPE,
        timeout=30,
    )
    program = psutil.Process(int(first.stdout))
    try:
        eventually(lambda: program.status() == psutil.STATUS_STOPPED)
        following = subprocess.run(
            [sys.executable, "-c", NEXT_SUPERVISOR, str(run)],
            stdout=subprocess.PIPE,
            timeout=30,
            check=True,
        )
        pid, recorded = following.stdout.split()
        assert pid == recorded
        eventually(lambda: not program.is_running() or program.status() == psutil.STATUS_ZOMBIE)
    finally:
        if program.is_running():
            program.kill()


def test_supervision_continues_if_the_program_cannot_be_found(tmp_path):
    """Its supervisor was killed before one of them could write the pid."""
    run = RunDirectory(tmp_path)
    run.logs.mkdir()
    with run.pipes_lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        following = subprocess.Popen(
            [sys.executable, "-c", PATIENT_SUPERVISOR, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert select.select([following.stdout], [], [], 30)[0]
            assert following.stdout.readline() == b"has started a process\n"
        except BaseException:
            following.kill()
            raise
        assert run.log("p").read_text() == "output"
    pid, recorded = following.communicate(b"\n", timeout=30)[0].split()
    assert pid == recorded
