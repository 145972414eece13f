"""Readiness probes, against real sockets, a real HTTP server, a real log and real commands."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from symphony.line_search import SearchProcess
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.supervisor.execution.probes import READY, Probe, make_probe
from symphony.supervised.supervisor.execution.readiness import ReadinessMonitor

TIMEOUT = 60.0  # seconds


@contextlib.contextmanager
def web_server() -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(int(self.path.removeprefix("/")))
            self.send_header("Location", "/503")
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
) -> Callable[[], str]:
    """Return the test of a process, except for a log, with a fixed timeout."""
    spec = ProcessSpec(
        name="p", argv=("/bin/sh",), cwd=str(tmp_path), ready=ready, preamble=("true",)
    )
    env = {**os.environ, **variables}
    made = make_probe(spec, tmp_path / "log", 0, env, SearchProcess())
    return functools.partial(made.test, timeout)


@contextlib.contextmanager
def log_probe(log: Path, pattern: str, *, log_start: int = 0) -> Iterator[Callable[[], str]]:
    """Yield a test of a log. It lasts until it has searched the whole log."""
    spec = ProcessSpec(name="p", argv=("/bin/sh",), cwd="/", ready={"log": pattern})
    made = make_probe(spec, log, log_start, {}, SearchProcess())
    with contextlib.closing(made):
        yield functools.partial(made.test, TIMEOUT)


def test_tcp(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        test = probe(tmp_path, {"tcp": ["127.0.0.1", port]})
        assert test() == f"connection refused at 127.0.0.1:{port}"
        server.listen()
        assert test() == READY


@pytest.mark.parametrize("kind", ["tcp", "http"])
def test_hint_names_the_address_on_which_a_server_listens_instead(
    tmp_path: Path, kind: str
) -> None:
    with socket.socket(socket.AF_INET6) as server:
        server.bind(("::1", 0))
        server.listen()
        port = server.getsockname()[1]
        for host, hint in (("127.0.0.1", f"something listens on [::1]:{port}"), ("::1", "")):
            ready = {kind: [host, port, "/"][: 3 if kind == "http" else 2]}
            spec = ProcessSpec(name="p", argv=("/bin/sh",), cwd=str(tmp_path), ready=ready)
            assert make_probe(spec, tmp_path / "log", 0, {}, None).hint() == hint


def test_http(tmp_path: Path) -> None:
    with web_server() as port:
        url = f"http://127.0.0.1:{port}"
        for path, result in (
            ("/200", READY),
            ("/302", READY),
            ("/399", READY),
            ("/400", f"HTTP 400 from {url}/400"),
            ("/503", f"HTTP 503 from {url}/503"),
        ):
            assert probe(tmp_path, {"http": ["127.0.0.1", port, path]})() == result
    refused = f"connection refused at 127.0.0.1:{port}"
    assert probe(tmp_path, {"http": ["127.0.0.1", port, "/200"]})() == refused


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
        run = probe(tmp_path, test, timeout=0.2)
        outcomes = list[str]()
        prober = threading.Thread(target=lambda: outcomes.append(run()), daemon=True)
        prober.start()
        prober.join(10)
        is_over.set()
        thread.join()
    url = f"http://127.0.0.1:{test['http'][1]}/up"
    assert outcomes == [f"no response within 0.2 s from {url}"]


def test_log_ignores_earlier_runs_and_waits_for_lines_that_grow(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ready in an earlier run\n")
    with log_probe(log, "^ready$", log_start=log.stat().st_size) as test:
        assert test() == "no output line matches '^ready$'"
        for text, is_ready in (("ready", False), (" not\n", False), ("rea", False), ("dy\n", True)):
            with log.open("a") as file:
                file.write(text)
            assert (test() == READY) is is_ready


@pytest.mark.parametrize("text", ["one\nlogin: ", " 5%\r50%\rlogin: ", "\x1b[1mlogin\x1b[0m: "])
def test_incomplete_line_that_does_not_grow_is_searched(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text)
    with log_probe(tmp_path / "log", "^login: $") as test:
        assert test() != READY
        assert test() == READY


@pytest.mark.one_python
def test_log_that_takes_too_long_to_search_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a" * 40 + "!\n")
    with log_probe(log, "^(a+)+$") as test:
        message = "it takes too long to search the log for '^(a+)+$'; simplify"
        assert test().startswith(message)
        with log.open("a") as file:
            file.write("aaa\n")
        assert test() == READY


def test_large_log_is_read_in_small_parts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(5_000_000)
        file.seek(0, os.SEEK_END)
        file.write(b"\nready\n")
    with log_probe(log, "^ready") as test:
        tracemalloc.start()
        try:
            while test() != READY:
                pass
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 500_000


def test_command_runs_in_the_environment_and_directory_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    test = {"command": ["sh", "-c", 'test -e here && test "$WORD" = "a b"']}
    assert probe(tmp_path, test, WORD="a b")() == READY
    assert probe(tmp_path, test, WORD="x")() == "exit code 1"


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("echo one; echo db is starting up; echo; exit 7", "exit code 7: db is starting up"),
        ("printf '\\033[31mdown\\033[0m\\tnow' >&2; exit 1", "exit code 1: down now"),
        ("head -c 9000000 /dev/zero | tr '\\0' x; exit 1", f"exit code 1: {'x' * 200}..."),
        ("kill -9 $$", "killed by SIGKILL"),
        ("echo one; exit 0", READY),
        # The output stays open after the end of the command.
        ("sleep 100 & echo $! >pid; echo two; exit 1", "exit code 1: two"),
    ],
)
def test_result_of_a_command_contains_its_last_line(
    tmp_path: Path, script: str, result: str
) -> None:
    assert probe(tmp_path, {"command": ["sh", "-c", script]})() == result
    if (tmp_path / "pid").exists():
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_command_that_cannot_run_is_an_error(tmp_path: Path) -> None:
    reason = "it was not found on the PATH of the process"
    result = probe(tmp_path, {"command": ["no-such-program"]})()
    assert result == f"cannot run 'no-such-program': {reason}"


def test_slow_command_is_an_error_and_its_session_is_killed(
    tmp_path: Path,
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    script = "echo waiting; sleep 100 >fifo; true"
    result = probe(tmp_path, {"command": ["sh", "-c", script]}, timeout=0.5)()
    assert result == "the command takes longer than 0.5 s: waiting"
    # If the time was up before the shell opened the FIFO, this makes the end of file visible.
    os.close(os.open(fifo, os.O_WRONLY))
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    assert poll.poll(60_000) == [(reader, select.POLLHUP)], "the writer has exited"
    os.close(reader)


# --- probing until ready ---


class FakeLoop:
    """Runs posted callbacks in the thread of the test.

    The timer of the next probe, which is short, runs as soon as it is set. The timer of the whole
    test is kept in ``timers``. ``pauses`` contains the times between two probes.
    """

    def __init__(self) -> None:
        self.timers: list[Callable[[], None]] = []
        self.pauses: list[float] = []
        self.posted: list[Callable[[], None]] = []
        self.is_posted = threading.Semaphore(0)

    def post(self, callback: Callable[[], None]) -> None:
        self.posted.append(callback)
        self.is_posted.release()

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        if callback.__name__ == "_start_probe":
            self.pauses.append(seconds)
            callback()
        else:
            self.timers.append(callback)

    def run_posted(self) -> None:
        assert self.is_posted.acquire(timeout=20)
        self.posted.pop(0)()


def monitor(
    answers: list[str | Exception], timeout: float | None
) -> tuple[FakeLoop, list[str], list[bool]]:
    """Start a monitor whose probes give ``answers``.

    A probe without an answer does not return until the end of the test.
    """
    loop, results, active = FakeLoop(), list[str](), [True]

    def test(_: float) -> str:
        if not answers:
            threading.Event().wait()
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    ReadinessMonitor(
        loop,  # type: ignore[arg-type]
        Probe(test, lambda: "hint", lambda: results.append("closed")),
        timeout,
        is_active=lambda: active[0],
        on_ready=lambda: results.append("ready"),
        on_timeout=lambda result: results.append(f"timeout:{result}"),
        on_result=results.append,
    ).start()
    return loop, results, active


def test_monitor_repeats_until_ready() -> None:
    loop, results, _ = monitor(["refused", "cannot run", READY], timeout=3600)
    for expected in ([], [], ["closed", "ready"]):
        loop.run_posted()
        assert results == expected


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("why", "timeout:why (hint)"),
        (ValueError("why"), "timeout:the probe failed with ValueError: why"),
    ],
)
def test_monitor_reports_the_last_result_on_timeout_and_continues(
    answer: str | Exception, result: str
) -> None:
    loop, results, _ = monitor([answer, "why", READY], timeout=0)
    for expected in ([result], [result], [result, "closed", "ready"]):
        loop.run_posted()
        assert results == expected


def test_monitor_that_continues_after_the_timeout_does_not_report_it_again() -> None:
    loop, results, _ = monitor(["why", READY], timeout=None)
    for expected in ([], ["closed", "ready"]):
        loop.run_posted()
        assert results == expected
    assert loop.timers == []


def test_monitor_tests_less_often_after_the_timeout() -> None:
    loop, _, _ = monitor(["why"] * 20, timeout=None)
    for _ in range(20):
        loop.run_posted()
    assert loop.pauses == sorted(loop.pauses)
    assert loop.pauses[-1] == 10


def test_monitor_reports_changed_results_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event log of a process that is never ready must not grow quickly."""
    times = [0.0]
    monkeypatch.setattr(
        "symphony.supervised.supervisor.execution.readiness.time.monotonic", lambda: times[0]
    )
    loop, results, _ = monitor([f"result {number // 2}" for number in range(300)], timeout=3600)
    found = []
    for second in range(300):
        times[0] = second
        loop.run_posted()
        if results:
            found.append((second, results.pop()))
    seconds = [second for second, _ in found]
    assert seconds == [2, 4, 7, 12, 21, 38, 71, 136, 265]
    assert found[-1] == (265, "result 132 (hint)")


def test_monitor_continues_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(FakeLoop, "after", lambda *_: None)
    _, results, _ = monitor([], timeout=0)
    assert results == ["timeout:the probe cannot be run: can't start new thread"]


def test_monitor_of_an_exited_process_has_no_result() -> None:
    loop, results, active = monitor([READY], timeout=3600)
    active[0] = False
    loop.run_posted()
    assert results == ["closed"]


def test_monitor_does_not_wait_for_a_probe_that_does_not_return() -> None:
    loop, results, _ = monitor([], timeout=0)
    (on_timeout,) = loop.timers
    on_timeout()
    assert results == ["timeout:the last test has not finished"]


def test_a_supervisor_imports_slow_modules_only_for_probes() -> None:
    """Every launch waits until the supervisor has imported its modules."""
    program = (
        "import sys, symphony.supervised.supervisor.supervisor;"
        "print([name for name in ('ssl', 'http', 'email', 'tempfile') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
