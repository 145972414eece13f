"""The modules that frequent commands import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import FOREVER, TIMEOUT, Program

HEAVY = {
    "yaml",
    "psutil",
    "asyncio",
    "multiprocessing",
    "http.client",
    "unittest",
    "kubernetes",
    "libtmux",
    "zmq",
}


@pytest.mark.without_coverage
@pytest.mark.parametrize("words", [("ls",), ("ps", "rl"), ("logs", "rl"), ("--version",)])
def test_frequent_commands_import_no_heavy_module(program: Program, words: tuple[str, ...]) -> None:
    program.launch("rl", {"a": FOREVER})
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "symphony", *words],
        env=program.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "symphony.commandline" in imported
    assert imported & HEAVY == set()
