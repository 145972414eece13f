"""Interrupts that Python ignores, in programs of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Python ignores an exception in a finalizer, as in the callbacks of its import system.
INTERRUPTED = """
import signal, sys, time
from symphony.commandline.exit_codes import Terminated
class Interrupted:
    def __del__(self):
        signal.raise_signal(int(sys.argv[1]))
def terminate(number, frame):
    raise Terminated(number)
signal.signal(signal.SIGTERM, terminate)
try:
    Interrupted()
    time.sleep(60)
except KeyboardInterrupt as exc:
    print(type(exc).__name__)
"""
INSTALLED = "from symphony.support.ignored_interrupts import *\nraise_ignored_interrupts()\n"
OF_THE_COMMAND = """
import sys
from symphony import __main__
argv, sys.argv = sys.argv, ["symphony", "--version"]
__main__.main()
sys.argv = argv
"""
FAILING = """
class Failing:
    def __del__(self):
        raise OSError("a finalizer has failed")
Failing()
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", program, *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=50, check=True)


@pytest.mark.parametrize(("number", "name"), [("2", "KeyboardInterrupt"), ("15", "Terminated")])
def test_ignored_interrupt_is_raised_again(number: str, name: str) -> None:
    done = run(INSTALLED + INTERRUPTED, number)
    assert (done.stdout, done.stderr) == (f"{name}\n", "")


def test_ctrl_c_that_python_ignores_interrupts_a_command() -> None:
    done = run(OF_THE_COMMAND + INTERRUPTED, "2")
    assert done.stdout.endswith("\nKeyboardInterrupt\n")


def test_other_exceptions_in_finalizers_are_reported() -> None:
    done = run(INSTALLED + FAILING)
    assert "OSError: a finalizer has failed" in done.stderr
