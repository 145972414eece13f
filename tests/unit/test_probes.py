"""Readiness probes, against real sockets, a real HTTP server, a real log and real commands."""

from __future__ import annotations

import contextlib
import http.server
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from symphony.host.processes.spec import ProcessSpec
from symphony.host.supervisor.readiness import Probe, ProbeError, ReadinessMonitor, make_probe


@contextlib.contextmanager
def web_server() -> Iterator[int]:
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


def probe(tmp_path: Path, ready: dict[str, Any], *, log_start: int = 0, **variables: str) -> Probe:
    spec = ProcessSpec(
        name="p", argv=("/bin/sh",), cwd=str(tmp_path), ready=ready, preamble=("true",)
    )
    return make_probe(spec, tmp_path / "log", log_start, {**os.environ, **variables})


def test_tcp(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        is_ready = probe(tmp_path, {"tcp": ["127.0.0.1", server.getsockname()[1]]})
        assert not is_ready()
        server.listen()
        assert is_ready()


def test_http(tmp_path: Path) -> None:
    with web_server() as port:
        is_ready = probe(tmp_path, {"http": ["127.0.0.1", port, "/up"]})
        assert is_ready()
        assert not probe(tmp_path, {"http": ["127.0.0.1", port, "/down"]})()
    assert not is_ready()


def test_log_ignores_earlier_runs_and_waits_for_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ready in an earlier run\n")
    is_ready = probe(tmp_path, {"log": "^ready"}, log_start=log.stat().st_size)
    assert not is_ready()
    for text, expected in (("not ready\n", False), ("rea", False), ("dy now\n", True)):
        with log.open("a") as file:
            file.write(text)
        assert is_ready() is expected


def test_command_runs_in_the_environment_and_directory_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    test = {"command": ["sh", "-c", 'test -e here && test "$WORD" = "a b"']}
    assert probe(tmp_path, test, WORD="a b")() is True
    assert probe(tmp_path, test, WORD="x")() is False


def test_command_that_cannot_run_is_an_error(tmp_path: Path) -> None:
    reason = "it was not found on the PATH of the process"
    with pytest.raises(ProbeError, match=f"^cannot run 'no-such-program': {reason}$"):
        probe(tmp_path, {"command": ["no-such-program"]})()


def test_slow_command_is_an_error_and_its_session_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("symphony.host.supervisor.readiness.COMMAND_TIMEOUT_SECONDS", 0.3)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(ProbeError, match=r"^'sh' takes longer than 0.3 s$"):
        probe(tmp_path, {"command": ["sh", "-c", "sleep 100 >fifo; true"]})()
    # If the time was up before the shell opened the FIFO, this makes the end of file visible.
    os.close(os.open(fifo, os.O_WRONLY))
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    assert poll.poll(60_000) == [(reader, select.POLLHUP)], "the writer has exited"
    os.close(reader)


# --- probing until ready or until the timeout ---


class FakeLoop:
    """Runs posted callbacks in the thread of the test, and timers as soon as they are set."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []
        self.is_posted = threading.Semaphore(0)

    def post(self, callback: Callable[[], None]) -> None:
        self.posted.append(callback)
        self.is_posted.release()

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        callback()

    def run_posted(self) -> None:
        assert self.is_posted.acquire(timeout=20)
        self.posted.pop(0)()


def monitor(answers: list[bool | str], timeout: float) -> tuple[FakeLoop, list[str], list[bool]]:
    """Start a monitor whose probes give ``answers``. A string is an error."""
    loop, results, active = FakeLoop(), list[str](), [True]

    def probe() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, str):
            raise ProbeError(answer)
        return answer

    ReadinessMonitor(
        loop,  # type: ignore[arg-type]
        probe,
        timeout,
        is_active=lambda: active[0],
        on_ready=lambda: results.append("ready"),
        on_timeout=lambda error: results.append(f"timeout:{error}"),
    ).start()
    return loop, results, active


def test_monitor_repeats_until_ready() -> None:
    loop, results, _ = monitor([False, "cannot run", True], timeout=3600)
    for expected in ([], [], ["ready"]):
        loop.run_posted()
        assert results == expected


@pytest.mark.parametrize(("answer", "result"), [(False, "timeout:"), ("why", "timeout:why")])
def test_monitor_reports_the_last_error_on_timeout(answer: bool | str, result: str) -> None:
    loop, results, _ = monitor([answer], timeout=0)
    loop.run_posted()
    assert results == [result]


def test_monitor_of_an_exited_process_has_no_result() -> None:
    loop, results, active = monitor([True], timeout=3600)
    active[0] = False
    loop.run_posted()
    assert results == []


def test_a_supervisor_imports_slow_modules_only_for_probes() -> None:
    """Every launch waits until the supervisor has imported its modules."""
    program = (
        "import sys, symphony.host.supervisor.supervisor;"
        "print([name for name in ('ssl', 'http', 'email', 'tempfile') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
