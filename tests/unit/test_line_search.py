"""The search of logs for regular expressions, with a real helper process."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony.line_search import LineSearch, SearchError, SearchProcess
from symphony.line_search.helper import LONGEST_LINE_BYTES


@pytest.fixture
def process() -> SearchProcess:
    return SearchProcess()


@contextlib.contextmanager
def search_for(pattern: str, process: SearchProcess) -> Iterator[LineSearch]:
    with contextlib.closing(LineSearch(process, pattern)) as search:
        yield search


def is_found(search: LineSearch, data: bytes) -> bool:
    """Add data, and search it completely or until a line matches."""
    search.add(data)
    while search.is_behind:
        if search.search_next():
            return True
    return False


def child_pids() -> set[int]:
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


@pytest.mark.parametrize(
    ("pattern", "parts", "expected"),
    [
        ("^b$", [b"a\nb\nc\n"], True),
        ("^b", [b"a b\n"], False),
        ("^ready$", [b"re", b"ad", b"y", b"\n"], True),
        ("^ready$", [b"ready"], False),
        # A terminal inserts a carriage return before each newline.
        ("^ready$", [b"ready\r\n"], True),
        ("^$", [b"ready\r", b"\n"], False),
        ("^ready$", [b" 50%\r100%\rready\n"], True),
        ("50.*100", [b" 50%\r100%\n"], False),
        ("^Listening on port$", [b"\x1b[32mListen", b"ing\x1b[0m on port\x1b[K\r\n"], True),
        ("^$", [b"\x1b]0;title\x07\n"], True),
        ("\x1b", [b"\x1b[32ma\x1b[0m\n"], False),
        ("^\ufffd.\u00e9$", [b"\xff \xc3", b"\xa9\n"], True),
        (f"^x{{{LONGEST_LINE_BYTES}}}$", [b"x" * LONGEST_LINE_BYTES + b"\n"], True),
        ("^ready", [b"x" * LONGEST_LINE_BYTES + b"ready"], True),
    ],
)
def test_each_line_is_searched(
    process: SearchProcess, pattern: str, parts: list[bytes], expected: bool
) -> None:
    with search_for(pattern, process) as search:
        assert any(is_found(search, part) for part in parts) is expected


def test_incomplete_last_line_is_searched_at_the_end(process: SearchProcess) -> None:
    with search_for("ready|^$", process) as search:
        search.complete_last_line()
        assert not search.is_behind
        assert not is_found(search, b"ready")
        search.complete_last_line()
        assert search.search_next()


@pytest.mark.one_python
def test_line_that_takes_too_long_does_not_prevent_other_searches(process: SearchProcess) -> None:
    slow = b"a" * 40 + b"!\n"
    with search_for("^(a+)+$", process) as search, search_for("^b", process) as other:
        assert is_found(search, b"!\n" + slow + b"aaa\n")
        assert search.problem.startswith("it takes too long to search the log for '^(a+)+$'; ")
        assert is_found(other, slow + b"b\n")
        assert other.problem == ""


def test_long_progress_bar_is_searched_in_time(process: SearchProcess) -> None:
    with search_for(".*Uvicorn running on.*", process) as search:
        assert is_found(search, b"\r".join([b"#" * 100] * 5000) + b"\nUvicorn running on 80\n")
        assert search.problem == ""


def test_helper_process_runs_while_a_search_is_open(process: SearchProcess) -> None:
    before = child_pids()
    with search_for("a", process) as one:
        with search_for("b", process) as other:
            assert child_pids() == before
            one.prepare()
            (pid,) = child_pids() - before
            assert is_found(other, b"b\n")
        assert child_pids() == {*before, pid}
    assert child_pids() == before


def test_killed_helper_process_is_replaced(process: SearchProcess) -> None:
    before = child_pids()
    with search_for("ready", process) as search:
        search.prepare()
        (pid,) = child_pids() - before
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SearchError, match="the process that searches the log has failed"):
            is_found(search, b"ready\n")
        assert search.search_next()
