"""The connection between the supervisor and an agent."""

import socket
import threading

import pytest

from symphony_slurm.channel import Channel, ChannelClosed


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
