"""The programs that serve ports, found with real sockets and processes."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from symphony.supervised.processes.identity import RUN_ID_VARIABLE, ProcessId, identify
from symphony.supervised.processes.port_owner import other_server

# Listen on a port of 127.0.0.1, or let a child process listen, and print the port.
SERVER = """
import os, socket, sys
server = socket.create_server(("127.0.0.1", 0))
if sys.argv[1] == "child":
    os.fork() and (server.close(), os.wait())
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def process(*argv: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-c", *argv],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with started:
        try:
            yield started
        finally:
            assert started.stdin is not None
            started.stdin.close()


def port_of(server: subprocess.Popen[str]) -> int:
    assert server.stdout is not None
    return int(server.stdout.readline())


def identity(started: subprocess.Popen[str]) -> ProcessId:
    found = identify(started.pid)
    assert found is not None
    return found


@pytest.mark.parametrize("how", ["itself", "child"])
def test_a_process_serves_a_port_itself_or_with_its_children(how: str) -> None:
    with process(SERVER, how) as server:
        port = port_of(server)
        assert other_server("127.0.0.1", port, identity(server), "a1", "web") == ""


@pytest.mark.parametrize(
    ("variables", "is_other"),
    [
        # A foreign program.
        ({}, True),
        ({RUN_ID_VARIABLE: "b2", "SYMPHONY_ROLE": "web"}, True),
        # A program that the previous execution of the process has left behind.
        ({RUN_ID_VARIABLE: "a1", "SYMPHONY_ROLE": "web"}, True),
        # The processes of a group share their services.
        ({RUN_ID_VARIABLE: "a1", "SYMPHONY_ROLE": "api"}, False),
    ],
)
def test_a_server_that_was_there_before_is_another_one(
    variables: dict[str, str], is_other: bool
) -> None:
    with process(SERVER, "itself", **variables) as server:
        port = port_of(server)
        with process("input()") as later:
            found = other_server("127.0.0.1", port, identity(later), "a1", "web")
    assert found.startswith(f"pid {server.pid} (") is is_other


def test_a_server_that_was_started_later_can_belong_to_the_process() -> None:
    """For example, the proxy of a container engine is not its child."""
    with process("input()") as started:
        before = identity(started)
        with process(SERVER, "itself") as server:
            assert other_server("127.0.0.1", port_of(server), before, "a1", "web") == ""


def test_a_server_that_cannot_be_found_is_not_another_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as own, process("input()") as later:
        port, process_id = own.getsockname()[1], identity(later)
        # The name is not one of this machine.
        assert other_server("192.0.2.1", port, process_id, "a1", "web") == ""
    assert other_server("127.0.0.1", port, process_id, "a1", "web") == ""
