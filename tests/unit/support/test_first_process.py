"""The program as PID 1 of a container, in a namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import contextlib, os, signal, subprocess, sys, time
from symphony.support.first_process import run_below_first_process

def states():
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        # The exit can be collected at any time.
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            yield file.read().rpartition(") ")[2].split()[0]

def run():
    signal.signal(signal.SIGTERM, lambda *_: (print("terminated", flush=True), sys.exit(5)))
    # The reader sees the end of the output when the orphans have exited.
    subprocess.run(["sh", "-c", "for i in 1 2 3; do sleep 0.1 & done"], capture_output=True)
    while "Z" in states():
        time.sleep(0.01)
    print(os.getppid(), flush=True)
    os.kill(1, signal.SIGTERM)
    signal.pause()

sys.exit(run_below_first_process(run))
"""


def test_orphans_are_collected_and_signals_are_passed_on() -> None:
    unshare = shutil.which("unshare")
    options = ["--pid", "--fork", "--mount-proc"]
    if os.geteuid() != 0:
        options.append("--map-root-user")
    if unshare is None or subprocess.run([unshare, *options, "true"], check=False).returncode:
        pytest.skip("this system does not permit PID namespaces")
    done = subprocess.run(
        [unshare, *options, sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (5, "1\nterminated\n", "")


def test_another_process_runs_the_program_itself() -> None:
    from symphony.support.first_process import run_below_first_process

    assert run_below_first_process(os.getpid) == os.getpid()
