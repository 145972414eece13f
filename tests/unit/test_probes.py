"""One look at whether a process is ready: against real sockets, a real HTTP server, a real log, a real command."""

from __future__ import annotations

import contextlib
import http.server
import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony.host.processes.spec import CannotLook, Command
from symphony.host.supervisor.readiness import probe


@contextlib.contextmanager
def web() -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/up" else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def look(tmp_path: Path, test: dict[str, object]) -> bool:
    found = probe(test, tmp_path / "log", 0)
    assert found is not None
    return found()


def test_tcp(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = ["127.0.0.1", server.getsockname()[1]]
        assert not look(tmp_path, {"tcp": address})
        server.listen()
        assert look(tmp_path, {"tcp": address})


def test_http(tmp_path: Path) -> None:
    with web() as port:
        assert look(tmp_path, {"http": ["127.0.0.1", port, "/up"]})
        assert not look(tmp_path, {"http": ["127.0.0.1", port, "/down"]})
    assert not look(tmp_path, {"http": ["127.0.0.1", port, "/up"]})


def test_a_line_of_the_log_that_this_run_wrote(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ready, said the run before\n")
    found = probe({"log": "^ready"}, log, log.stat().st_size)
    assert found is not None
    assert not found()
    for text, ready in (("not ready\n", False), ("rea", False), ("dy now\n", True)):
        with log.open("a") as file:
            file.write(text)
        assert found() is ready


def test_a_command_runs_in_the_process_s_environment_and_folder(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    env = {**os.environ, "WORD": "a b"}
    test = ["sh", "-c", 'test -e here && test "$WORD" = "a b"']
    command = Command(name="p", argv=("c",), cwd=str(tmp_path), ready={"command": test})
    assert command.probe(tmp_path / "log", 0, env)() is True
    assert command.probe(tmp_path / "log", 0, {**env, "WORD": "x"})() is False


def test_a_command_that_fails_is_not_ready(tmp_path: Path) -> None:
    command = Command(name="p", argv=("c",), cwd=str(tmp_path), ready={"command": ["false"]})
    assert command.probe(tmp_path / "log", 0, dict(os.environ))() is False


def test_a_command_that_cannot_run_says_why(tmp_path: Path) -> None:
    command = Command(
        name="p", argv=("c",), cwd=str(tmp_path), ready={"command": ["no-such-program"]}
    )
    with pytest.raises(
        CannotLook, match="^cannot run 'no-such-program': it was not found on its PATH$"
    ):
        command.probe(tmp_path / "log", 0, dict(os.environ))()


def test_a_command_that_takes_too_long_says_so_and_is_ended_with_all_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("symphony.host.supervisor.readiness.COMMAND_TIMEOUT", 0.3)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    test = ["sh", "-c", "sleep 100 >fifo; true"]
    command = Command(
        name="p", argv=("/bin/sh",), cwd=str(tmp_path), ready={"command": test}, preamble=("true",)
    )
    with pytest.raises(CannotLook, match="^'sh' takes longer than 0.3 s$"):
        command.probe(tmp_path / "log", 0, dict(os.environ))()
    os.close(os.open(fifo, os.O_WRONLY))  # where the time was up before the shell came to write
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    assert poll.poll(60_000) == [(reader, select.POLLHUP)], "whoever wrote has ended"
    os.close(reader)
