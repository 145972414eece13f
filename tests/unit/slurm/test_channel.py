"""The connection between the supervisor and an agent."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from symphony_slurm.job.agent_protocol import Channel, ChannelClosed


@pytest.fixture
def sides():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    channels = Channel(accepted), Channel(client)
    yield channels
    for channel in channels:
        channel.close()


def prove_both(sides, first, second):
    """Return whether each side accepts the other."""
    results = {}
    thread = threading.Thread(
        target=lambda: results.update(second=sides[1].prove(second, "agent", "supervisor"))
    )
    thread.start()
    results["first"] = sides[0].prove(first, "supervisor", "agent")
    thread.join()
    return results["first"], results["second"]


def test_both_sides_accept_the_same_token_and_refuse_another_one(sides):
    assert prove_both(sides, b"token", b"token") == (True, True)


def test_another_token_is_refused(sides):
    assert prove_both(sides, b"token", b"other") == (False, False)


def test_messages_of_any_length_arrive_in_order(sides):
    first, second = sides
    messages = [{"text": "x" * size} for size in (0, 10, 500_000, 3)]
    thread = threading.Thread(target=lambda: [first.send(message) for message in messages])
    thread.start()
    received = []
    while len(received) < len(messages):
        received += second.receive()
    thread.join()
    assert received == messages


def test_end_of_a_connection_is_reported_and_later_messages_are_dropped(sides):
    first, second = sides
    first.close()
    with pytest.raises(ChannelClosed):
        second.receive()
    assert not second.is_open
    second.send({"text": "lost"})


# Connect two channels, lose the network, and print what each of the first sides reports.
LOST_NETWORK = """
import socket, subprocess
from symphony_slurm.job import agent_protocol

agent_protocol.LOST_NODE_SECONDS = agent_protocol.KEEPALIVE_SECONDS = 1
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
server = socket.create_server(("127.0.0.1", 0))
pairs = []
for _ in range(2):
    client = socket.create_connection(server.getsockname())
    pairs.append((agent_protocol.Channel(server.accept()[0]), client))
subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
pairs[0][0].send({"order": "lost"})
for first, _ in pairs:
    try:
        print(first.receive())
    except agent_protocol.ChannelClosed:
        print("closed")
"""


def test_lost_network_closes_idle_connections_and_those_with_a_message_under_way():
    command = ["unshare", "--map-root-user", "--net", sys.executable, "-c", LOST_NETWORK]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    if "unshare failed" in done.stderr:
        pytest.skip(f"no network can be made: {done.stderr.strip()}")
    assert done.stdout == "closed\nclosed\n", done.stderr
