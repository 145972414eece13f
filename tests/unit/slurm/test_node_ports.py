"""The record of the leased ports, which an agent leaves to the one that replaces it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from symphony_slurm.job import node_ports
from symphony_slurm.job.node_files import NodeFiles
from symphony_slurm.job.node_ports import NodePorts, recorded_ports

READS = 100


@pytest.fixture
def record() -> Iterator[str]:
    files = NodeFiles.create()
    yield files.ports
    for path in files:
        os.close(int(path.rpartition("/")[2]))


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for server in sockets:
            server.bind(("127.0.0.1", 0))
        return [server.getsockname()[1] for server in sockets]


def test_the_next_agent_leases_the_ports_that_are_not_released(record: str) -> None:
    first, second, third = free_ports(3)
    agent = NodePorts(record)
    for port in (first, second, third):
        assert agent.reserve(port) is None
    agent.release(first)
    assert recorded_ports(record) == sorted([second, third])
    agent.keep([])
    assert recorded_ports(record) == []


def test_the_record_contains_a_port_that_replaces_another(
    record: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = free_ports(2)
    agent = NodePorts(record)
    assert agent.reserve(old) is None
    agent.end_holds([old])

    def better_port(ports: node_ports.PortLeases, port: int, port_range: object) -> int:
        assert ports.reserve(new) is None
        return new

    monkeypatch.setattr(node_ports, "better_port", better_port)
    assert agent.replace(old, [new, new]) == new
    assert recorded_ports(record) == [new]
    agent.keep([])


@pytest.mark.one_python
def test_an_agent_that_is_killed_leaves_a_complete_record(record: str) -> None:
    """The record is read at many moments, because each can be the last one of the agent."""
    kept, changing = free_ports(2)
    agent = os.fork()
    if not agent:
        try:
            ports = NodePorts(record)
            ports.reserve(kept)
            while True:
                ports.reserve(changing)
                ports.release(changing)
        finally:
            os._exit(1)
    try:
        while kept not in recorded_ports(record):
            exited = os.waitid(os.P_PID, agent, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            assert exited is None, "the agent has failed"
        for _ in range(READS):
            assert kept in recorded_ports(record)
    finally:
        os.kill(agent, signal.SIGKILL)
        os.waitpid(agent, 0)
    assert kept in recorded_ports(record)
