"""The event loop: exceptions in callbacks do not stop it."""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Iterator

import pytest

from symphony.supervised.supervisor import event_loop
from symphony.supervised.supervisor.event_loop import EventLoop, receive


@pytest.fixture
def errors() -> list[str]:
    return []


@pytest.fixture
def loop(errors: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[EventLoop]:
    monkeypatch.setattr(event_loop, "ERROR_PAUSE_SECONDS", 0.05)
    previous = signal.set_wakeup_fd(-1)
    loop = EventLoop(lambda exc: errors.append(str(exc)))
    yield loop
    signal.set_wakeup_fd(previous)
    for resource in (loop._epoll, loop._wake_read, loop._wake_write):
        resource.close()


def test_exception_in_a_callback_is_reported_and_the_loop_continues(
    loop: EventLoop, errors: list[str]
) -> None:
    def fail() -> None:
        raise ValueError("broken")

    loop.post(fail)
    loop.after(0.0, fail)
    loop.after(0.001, loop.stop)
    loop.run()
    assert errors == ["broken", "broken"]


def test_descriptor_with_a_failing_callback_is_watched_again_after_a_pause(
    loop: EventLoop, errors: list[str]
) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"x")
    calls: list[int] = []

    def handle() -> None:
        calls.append(len(errors))
        if len(calls) < 3:
            raise ValueError(f"broken {len(calls)}")
        loop.unwatch(read_end)
        loop.stop()

    loop.watch(read_end, handle)
    loop.run()
    assert errors == ["broken 1", "broken 2"]
    assert calls == [0, 1, 2]
    os.close(read_end)
    os.close(write_end)


def test_paused_descriptor_that_is_unwatched_is_not_watched_again(
    loop: EventLoop, errors: list[str]
) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"x")

    def fail() -> None:
        raise ValueError("broken")

    loop.watch(read_end, fail)
    loop.after(0.01, lambda: loop.unwatch(read_end))
    loop.after(0.1, loop.stop)
    loop.run()
    assert errors == ["broken"]
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize("callbacks", [1, 2])
def test_suspended_signal_has_no_effect_if_it_has_one_callback(
    loop: EventLoop, callbacks: int
) -> None:
    calls: list[int] = []
    for number in range(callbacks):
        loop.on_signal(signal.SIGCHLD, lambda number=number: calls.append(number))  # type: ignore[misc]
    try:
        loop.suspend_signal(signal.SIGCHLD)
        os.kill(os.getpid(), signal.SIGCHLD)
        # One callback would miss signals that others need.
        suspended = [] if callbacks == 1 else [0, 1]
        assert list(loop._posted) == [loop._signal_callbacks[signal.SIGCHLD][i] for i in suspended]
        loop.resume_signal(signal.SIGCHLD)
        os.kill(os.getpid(), signal.SIGCHLD)
        loop.post(loop.stop)
        loop.run()
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    assert calls == [*suspended, *range(callbacks)]


def test_what_has_arrived_at_a_socket_is_received() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        assert receive(ours, 10) is None
        theirs.sendall(b"some text")
        assert receive(ours, 4) == b"some"
        assert receive(ours, 10) == b" text"
        theirs.close()
        assert receive(ours, 10) == b""


def test_a_failed_connection_counts_as_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    with ours:
        # Without lingering, the other side gets a reset.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        assert receive(ours, 10) == b""
