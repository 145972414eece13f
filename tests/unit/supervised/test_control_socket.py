"""The control socket: its address and mode, and the handling of bad requests and bad clients."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from symphony.plan import requests
from symphony.plan.state import apply, fold
from symphony.plan.wish import ProcessWish, Wish
from symphony.supervised.record import control_socket
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.serving import request_server
from symphony.supervised.supervisor.serving.request_server import RequestServer

BAD_REQUESTS = [
    ("{", "not valid JSON"),
    ("[" * 100_000, "not valid JSON"),
    ("[]", "not a JSON object"),
    ('{"request": 5}', "does not know the request 5"),
    ('{"request": "restrat"}', "did you mean 'restart'"),
    ('{"request": "stop", "names": "a"}', "'names' must be a list"),
    ('{"request": "stop", "names": ["b"]}', "there is no process 'b'"),
    ('{"request": "stop", "names": ["a"], "grace": -1}', "'grace' must be a number"),
    ('{"request": "stop", "names": ["a"], "grace": NaN}', "'grace' must be a number"),
    ('{"request": "stop", "names": ["a"], "grace": true}', "'grace' must be a number"),
    ('{"request": "stop", "names": ["a"], "signal": 1}', "has no value 'signal'"),
    ('{"request": "signal", "names": ["a"], "signal": 0}', "'signal' must be the number"),
    ('{"request": "signal", "names": ["a"], "signal": "HUP"}', "'signal' must be the number"),
    ('{"request": "signal", "names": ["a"], "signal": 1}', "not running: a"),
    ('{"request": "finish"}', "are running"),
]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return a run directory whose path is longer than the address of a socket can be."""
    path = tmp_path / ("long" * 30) / "exp"
    path.mkdir(parents=True)
    return RunDirectory(path)


@pytest.fixture
def loop(run: RunDirectory) -> Iterator[EventLoop]:
    """Run a loop that accepts requests about the process ``a``, which has not started."""
    previous = signal.set_wakeup_fd(-1)
    errors: list[Exception] = []
    loop = EventLoop(errors.append)
    state = fold(["a"], [])
    apply(state, {"event": "launched", "at": 1.0})
    wish = Wish([ProcessWish(name="a", grace=1.0)])
    steps: Any = SimpleNamespace(
        accept=lambda *values: requests.accept(wish, state, *values, 2.0),
        finish=lambda: requests.finish(state, 2.0),
        send_signal=lambda names, *_, **__: requests.check_signal(wish, state, names),
    )
    with control_socket.listen(run) as listener:
        server = RequestServer(steps, loop, lambda: server.answer(1, ""))
        loop.watch(listener.fileno(), lambda: server.accept(listener))
        yield loop
    signal.set_wakeup_fd(previous)
    for resource in (loop._epoll, loop._wake_read, loop._wake_write):
        resource.close()
    for connection in server._connections:
        connection.socket.close()
    assert errors == []


def _in_thread(loop: EventLoop, client: Any) -> None:
    """Run the loop until ``client``, which runs in another thread, has returned."""
    errors: list[BaseException] = []

    def target() -> None:
        try:
            client()
        except BaseException as exc:
            errors.append(exc)
        loop.post(loop.stop)

    thread = threading.Thread(target=target)
    thread.start()
    loop.run()
    thread.join()
    if errors:
        raise errors[0]


def _read_answer(channel: socket.socket) -> dict[str, Any]:
    channel.settimeout(20)
    with channel.makefile() as lines:
        answer: dict[str, Any] = json.loads(lines.readline())
    return answer


def test_only_this_user_can_use_the_socket(
    run: RunDirectory, loop: EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stat.S_IMODE(os.lstat(run.path / "control").st_mode) == 0o600
    monkeypatch.setattr(request_server, "_peer_uid", lambda _: os.geteuid() + 1)

    def client() -> None:
        with control_socket.connect(run) as channel:
            answer = _read_answer(channel)
            assert answer["answer"] == "error"
            assert "the experiment belongs to user " in answer["message"]
            assert channel.recv(1) == b""

    _in_thread(loop, client)


def test_bad_requests_get_an_error_each_and_the_connection_can_be_used_again(
    run: RunDirectory, loop: EventLoop
) -> None:
    def client() -> None:
        with control_socket.connect(run) as channel, channel.makefile() as answers:
            channel.settimeout(20)
            channel.sendall("".join(f"{text}\n" for text, _ in BAD_REQUESTS).encode())
            for text, message in BAD_REQUESTS:
                answer = json.loads(answers.readline())
                assert answer["answer"] == "error", text
                assert message in answer["message"], text

    _in_thread(loop, client)


def test_too_long_request_is_refused(
    run: RunDirectory, loop: EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_server, "MAX_LINE_BYTES", 1000)

    def client() -> None:
        with control_socket.connect(run) as channel:
            channel.sendall(b"x" * 1001)
            assert _read_answer(channel)["message"] == "the request is too long"

    _in_thread(loop, client)


def test_idle_clients_make_room_for_others(
    run: RunDirectory, loop: EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_server, "MAX_CONNECTIONS", 2)

    def client() -> None:
        idle = [control_socket.connect(run) for _ in range(5)]
        with control_socket.connect(run) as channel:
            channel.sendall(b'{"request": "stop", "names": []}\n')
            assert _read_answer(channel) == {"answer": "done"}
        for connection in idle:
            connection.close()

    _in_thread(loop, client)


def test_client_that_disconnects_early_is_harmless(run: RunDirectory, loop: EventLoop) -> None:
    def client() -> None:
        for data in (b"", b'{"request"', b'{"request": "stop", "names": []}\n'):
            with control_socket.connect(run) as channel:
                channel.sendall(data)
        with control_socket.connect(run) as channel:
            channel.sendall(b'{"request": "stop", "names": []}\n')
            channel.shutdown(socket.SHUT_WR)
            assert _read_answer(channel) == {"answer": "done"}

    _in_thread(loop, client)
