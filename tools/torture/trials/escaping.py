"""Trials with processes that try to escape from their run."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from torture.trial import trial
from torture.workspace import NAME, Workspace, is_success

# The program becomes a daemon several times, overwrites the environment that /proc shows, and
# records the identity of each process in a directory.
DAEMON = """
import ctypes, os, pathlib, signal, sys, time
directory, forks, ignores_sigterm = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "yes"
if ignores_sigterm:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
for _ in range(forks):
    if os.fork():
        break
    os.setsid()
    if os.fork():
        os._exit(0)
fields = open("/proc/self/stat").read().rpartition(") ")[2].split()
start, end = int(fields[47]), int(fields[48])
ctypes.memset(start, 0, end - start)
pathlib.Path(directory, f"{os.getpid()}-{fields[19]}").touch()
while True:
    time.sleep(1000)
"""
GRACE_SECONDS = 1


@trial("daemons")
def run_daemons(workspace: Workspace) -> None:
    """Processes become daemons and overwrite their environment, and `delete` stops all of them."""
    experiment = workspace.cluster().new_experiment(NAME)
    processes, forks = workspace.count(2, 6), workspace.count(1, 3)
    for number in range(processes):
        ignores_sigterm = workspace.random.choice(("yes", "no", "no"))
        command = [sys.executable, "-I", "-c", DAEMON, str(workspace.recorded), str(forks)]
        process = experiment.new_process(f"p-{number}", command=command, args=[ignores_sigterm])
        process.termination_grace_period(GRACE_SECONDS)
    launcher = workspace.start_launch(experiment)
    workspace.expect(launcher, "launch", is_permitted=is_success)
    expected = processes * (forks + 1)
    workspace.wait_for(
        lambda: len(os.listdir(workspace.recorded)) == expected,
        lambda: [f"the {expected} processes did not all start"],
    )
    workspace.note_runs()
    victims = []
    if workspace.random.random() < 0.5:
        victims += workspace.supervisors()
    if workspace.random.random() < 0.3:
        victims += workspace.random.sample(workspace.processes(), 1)
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
