"""What quick verbs must not load: they are typed all day."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.conftest import FOREVER, TIMEOUT, Program

HEAVY = {"yaml", "psutil", "asyncio", "multiprocessing", "http.client", "unittest", "kubernetes", "libtmux", "zmq"}
LONGEST = 0.1


@pytest.mark.parametrize("words", [("ls",), ("ps", "rl"), ("logs", "rl"), ("--version",)])
def test_quick_verbs_load_nothing_heavy(program: Program, words: tuple[str, ...]) -> None:
    program.launched("rl", {"a": FOREVER})
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "symphony", *words],
        env=program.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "symphony.commandline" in loaded
    assert loaded & HEAVY == set()


def test_ls_takes_at_most_100_ms_over_bare_python(program: Program) -> None:
    """Time of the processor, the best of several pairs, since others may be busy on this machine."""
    symphony = "import sys; from symphony.commandline import main; sys.exit(main())"

    def took(*words: str) -> float:
        process = subprocess.Popen([sys.executable, "-c", *words], env=program.env, stdout=subprocess.DEVNULL)
        _, process.returncode, used = os.wait4(process.pid, 0)
        assert process.returncode == 0
        return used.ru_utime + used.ru_stime

    took(symphony, "ls")  # compiles what was not compiled yet
    assert any(took(symphony, "ls") - took("pass") <= LONGEST for _ in range(20))
