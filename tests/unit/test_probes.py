"""Readiness probes, against real sockets, a real HTTP server, a real log and real commands."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import select
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from symphony.host.processes.spec import ProcessSpec
from symphony.host.supervisor.probes import Probe, ProbeError, make_probe
from symphony.host.supervisor.readiness import ReadinessMonitor
from symphony.line_search import SearchProcess

TIMEOUT = 60.0  # seconds


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


def probe(
    tmp_path: Path, ready: dict[str, Any], *, timeout: float = TIMEOUT, **variables: str
) -> Callable[[], bool]:
    """Return the probe of a process, except for a log, with a fixed timeout."""
    spec = ProcessSpec(
        name="p", argv=("/bin/sh",), cwd=str(tmp_path), ready=ready, preamble=("true",)
    )
    env = {**os.environ, **variables}
    made = make_probe(spec, tmp_path / "log", 0, env, SearchProcess())
    return functools.partial(made.is_ready, timeout)


@contextlib.contextmanager
def log_probe(log: Path, pattern: str, *, log_start: int = 0) -> Iterator[Callable[[], bool]]:
    """Yield a probe of a log. It lasts until it has searched the whole log."""
    spec = ProcessSpec(name="p", argv=("/bin/sh",), cwd="/", ready={"log": pattern})
    made = make_probe(spec, log, log_start, {}, SearchProcess())
    with contextlib.closing(made):
        yield functools.partial(made.is_ready, TIMEOUT)


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


@pytest.mark.parametrize("endless", [b"HTTP/1.1 100 Continue\r\n\r\n", b"H"])
def test_http_response_that_never_ends_is_not_awaited(tmp_path: Path, endless: bytes) -> None:
    def respond() -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            while not is_over.wait(0.01):
                connection.sendall(endless)

    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=respond, daemon=True)
        thread.start()
        test = {"http": ["127.0.0.1", server.getsockname()[1], "/up"]}
        is_ready = probe(tmp_path, test, timeout=0.2)
        outcomes = list[bool]()
        prober = threading.Thread(target=lambda: outcomes.append(is_ready()), daemon=True)
        prober.start()
        prober.join(10)
        is_over.set()
        thread.join()
    assert outcomes == [False]


def test_log_ignores_earlier_runs_and_waits_for_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ready in an earlier run\n")
    with log_probe(log, "^ready", log_start=log.stat().st_size) as is_ready:
        assert not is_ready()
        for text, expected in (("not ready\n", False), ("rea", False), ("dy now\n", True)):
            with log.open("a") as file:
                file.write(text)
            assert is_ready() is expected


def test_log_that_takes_too_long_to_search_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a" * 40 + "!\n")
    with log_probe(log, "^(a+)+$") as is_ready:
        message = r"^it takes too long to search the log for '\^\(a\+\)\+\$'; simplify"
        with pytest.raises(ProbeError, match=message):
            is_ready()
        with log.open("a") as file:
            file.write("aaa\n")
        assert is_ready()


def test_large_log_is_read_in_small_parts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(5_000_000)
        file.seek(0, os.SEEK_END)
        file.write(b"\nready\n")
    with log_probe(log, "^ready") as is_ready:
        tracemalloc.start()
        try:
            while not is_ready():
                pass
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 500_000


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
    tmp_path: Path,
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(ProbeError, match=r"^'sh' takes longer than 0.3 s$"):
        probe(tmp_path, {"command": ["sh", "-c", "sleep 100 >fifo; true"]}, timeout=0.3)()
    # If the time was up before the shell opened the FIFO, this makes the end of file visible.
    os.close(os.open(fifo, os.O_WRONLY))
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    assert poll.poll(60_000) == [(reader, select.POLLHUP)], "the writer has exited"
    os.close(reader)


# --- probing until ready or until the timeout ---


class FakeLoop:
    """Runs posted callbacks in the thread of the test.

    The timer of the next probe, which is short, runs as soon as it is set. The timer of the whole
    test is kept in ``timers``.
    """

    def __init__(self) -> None:
        self.timers: list[Callable[[], None]] = []
        self.posted: list[Callable[[], None]] = []
        self.is_posted = threading.Semaphore(0)

    def post(self, callback: Callable[[], None]) -> None:
        self.posted.append(callback)
        self.is_posted.release()

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        if seconds < 1:
            callback()
        else:
            self.timers.append(callback)

    def run_posted(self) -> None:
        assert self.is_posted.acquire(timeout=20)
        self.posted.pop(0)()


def monitor(
    answers: list[bool | str | Exception], timeout: float
) -> tuple[FakeLoop, list[str], list[bool]]:
    """Start a monitor whose probes give ``answers``. A string is an error of the probe.

    A probe without an answer does not return until the end of the test.
    """
    loop, results, active = FakeLoop(), list[str](), [True]

    def is_ready(_: float) -> bool:
        if not answers:
            threading.Event().wait()
        answer = answers.pop(0)
        if isinstance(answer, str):
            raise ProbeError(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    ReadinessMonitor(
        loop,  # type: ignore[arg-type]
        Probe(is_ready, lambda: results.append("closed")),
        timeout,
        is_active=lambda: active[0],
        on_ready=lambda: results.append("ready"),
        on_timeout=lambda error: results.append(f"timeout:{error}"),
    ).start()
    return loop, results, active


def test_monitor_repeats_until_ready() -> None:
    loop, results, _ = monitor([False, "cannot run", True], timeout=3600)
    for expected in ([], [], ["closed", "ready"]):
        loop.run_posted()
        assert results == expected


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (False, "timeout:"),
        ("why", "timeout:why"),
        (ValueError("why"), "timeout:the probe failed with ValueError: why"),
    ],
)
def test_monitor_reports_the_last_error_on_timeout(
    answer: bool | str | Exception, result: str
) -> None:
    loop, results, _ = monitor([answer], timeout=0)
    loop.run_posted()
    assert results == ["closed", result]


def test_monitor_continues_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    _, results, _ = monitor([], timeout=0)
    assert results == ["closed", "timeout:the probe cannot be run: can't start new thread"]


def test_monitor_of_an_exited_process_has_no_result() -> None:
    loop, results, active = monitor([True], timeout=3600)
    active[0] = False
    loop.run_posted()
    assert results == ["closed"]


def test_monitor_does_not_wait_for_a_probe_that_does_not_return() -> None:
    loop, results, _ = monitor([], timeout=0)
    (on_timeout,) = loop.timers
    on_timeout()
    assert results == ["closed", "timeout:the last test has not finished"]


def test_a_supervisor_imports_slow_modules_only_for_probes() -> None:
    """Every launch waits until the supervisor has imported its modules."""
    program = (
        "import sys, symphony.host.supervisor.supervisor;"
        "print([name for name in ('ssl', 'http', 'email', 'tempfile') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
