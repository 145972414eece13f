"""The command debug on this machine, with debugpy, pdb and py-spy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.dap import DebugClient

from .conftest import TIMEOUT, Program

MAIN = """
import signal
def train(rate):
    loss = rate * 21
    print("loss", loss, flush=True)
train(2)
signal.sigwait([signal.SIGTERM])
"""
LINE = 5
PYTHON = sys.executable
SLEEP = {"command": ["sleep", "1000"]}


@pytest.fixture
def running(program: Program) -> Program:
    (program.directory / "main.py").write_text(MAIN)
    learner = {
        "command": [PYTHON, "-u", "main.py"],
        "restart_policy": "OnFailure",
        "ready": {"log": "^loss"},
    }
    (program.directory / "no-site").mkdir()
    bare = program.directory / "no-site" / "python3"
    bare.write_text(f'#!/bin/sh\nexec {PYTHON} -S "$@"\n')
    bare.chmod(0o755)
    (program.directory / "rate.env").write_text("RATE=1")
    agent = {**SLEEP, "replicas": 1, "starts_after": {"learner": "ready"}, "env_file": "rate.env"}
    processes = {
        "learner": learner,
        "agent": agent,
        "bare": {"command": ["no-site/python3", "main.py"]},
    }
    program.launch("rl", processes)
    program.cluster.wait("rl", until="ready", timeout=TIMEOUT)
    return program


def command_of(program: Program) -> list[str]:
    path = program.state / "local" / "rl" / "manifest.json"
    argv: list[str] = json.loads(path.read_text())["processes"][0]["argv"]
    return argv


def started(run: subprocess.Popen[str]) -> dict[str, Any]:
    assert run.stdout is not None
    line = run.stdout.readline()
    result: dict[str, Any] = json.loads(line)
    return result


def test_a_debugger_stops_the_program_and_leaves_it_as_it_was(running: Program) -> None:
    before = running.cluster.describe_process("rl", "agent-0")
    command = command_of(running)
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running.popen("debug", "rl", "learner", "--json", "--write", **pipes) as run:
        shown = started(run)
        written = json.loads((running.directory / ".vscode" / "launch.json").read_text())
        assert written["configurations"] == [shown["configuration"]]
        assert "debugpy" in command_of(running)
        client = DebugClient(shown["configuration"]["connect"], [])
        frame = client.stop_at(str(running.directory / "main.py"), LINE)
        assert client.evaluate("loss", frame) == "42"
        client.disconnect()
        _, notes = run.communicate(timeout=TIMEOUT)
    assert run.returncode == 0
    address = f"{shown['host']}:{shown['port']}"
    assert notes.splitlines() == [
        "learner counts as ready while it is under the debugger, because its readiness test "
        "searches its log",
        f"until your debugger has connected to {address}, other users of this machine can do so, "
        "and run any code as you",
        "learner: the debugger has disconnected",
        "restarted learner of rl with its ordinary command",
    ]
    assert command_of(running) == command
    status = running.cluster.wait("rl", until="ready", timeout=TIMEOUT)
    assert [process.ready for process in status][:2] == [True, True]
    assert running.cluster.describe_process("rl", "agent-0") == before
    assert "no difference" in running.ok("diff", running.directory / "rl.yml")


def test_pdb_has_the_terminal_and_restart_puts_back_what_a_killed_client_left(
    running: Program,
) -> None:
    command = command_of(running)
    terminal = running.terminal("debug", "rl", "learner", "--pdb")
    terminal.expect("(Pdb) ")
    terminal.press(f"b {LINE}\r")
    terminal.expect("Breakpoint 1")
    terminal.press("c\rp loss * 100\r")
    terminal.expect("4200")
    terminal.press("\x10\x11")
    assert terminal.finish() == 0
    assert command_of(running) == command
    with running.popen("debug", "rl", "learner", "--json", stdout=subprocess.PIPE) as run:
        started(run)
        run.kill()
    refused = running("scale", "rl", "agent=2")
    assert "cannot be scaled while learner is under a debugger" in refused.stderr
    assert list(running.cluster.debugged_processes("rl")) == ["learner"]
    assert running.ok("restart", "rl", "learner") == "restarted learner of rl\n"
    assert command_of(running) == command
    assert running.cluster.debugged_processes("rl") == {}


def test_what_cannot_be_debugged_is_refused_and_nothing_changes(running: Program) -> None:
    before = running.cluster.describe_experiment("rl")

    def refusal(*words: str) -> str:
        done = running("debug", "rl", *words)
        assert done.returncode != 0
        assert done.stderr.count("\n") == 1
        return done.stderr

    assert "runs 'sleep 1000', which does not begin with Python" in refusal("agent-0")
    assert "debugpy is not installed in the Python of process 'bare'" in refusal("bare")
    assert "requires a terminal" in refusal("learner", "--pdb")
    assert "--write has no effect with --stack" in refusal("learner", "--stack", "--write")
    assert "1 restarted, 2 unchanged" in running("debug", "rl", "learner", "--dry-run").stdout
    (running.directory / "rate.env").write_text("RATE=2")
    assert "would also change agent-0 (env.RATE" in refusal("learner")
    assert running.cluster.describe_experiment("rl") == before


def test_stack_shows_what_a_process_does(running: Program) -> None:
    if Path("/proc/sys/kernel/yama/ptrace_scope").exists() and os.getuid():
        pytest.skip("only root may read the memory of other processes")
    assert "main.py:7" in running.json("debug", "rl", "learner", "--stack")["stacks"]
    assert "runs no Python program" in running("debug", "rl", "agent-0", "--stack").stderr
