"""Searching the lines of logs for regular expressions, in a helper process.

Some regular expressions need exponential time on some lines. During a search, Python's ``re``
blocks all threads of its process, and therefore also the event loop of a supervisor and Ctrl-C in a
launcher. The helper process abandons a line that takes too long.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
import threading

from symphony.line_search import helper
from symphony.support.escapes import remove_controls

# The helper process answers after less than a second of CPU time. If there is no answer after this
# time, the helper process is killed.
ANSWER_TIMEOUT_SECONDS = 20.0
# The bytes that have no meaning in a sequence that controls a terminal. They are removed first,
# because a log that was truncated while it was written can contain many of them.
_MEANINGLESS = bytes(byte for byte in (*range(32), 127) if byte not in b"\a\t\n\x1b")
_CONTROLS = re.compile(rb"[\a\x1b]")


class SearchError(Exception):
    """The helper process cannot be started or has failed."""


class SearchProcess:
    """The helper process of all searches of this process.

    The helper process is stopped when no user is left. Several threads can share an instance, but
    each search waits for the previous ones.
    """

    def __init__(self) -> None:
        # A supervisor changes its environment while it starts processes, so the environment cannot
        # be read later.
        self._environment = dict(os.environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._process_lock = threading.Lock()
        self._users = 0
        self._users_lock = threading.Lock()

    def add_user(self) -> None:
        """Keep the helper process running until `remove_user` is called."""
        with self._users_lock:
            self._users += 1

    def remove_user(self) -> None:
        """Stop the helper process if it has no other user.

        If another thread is still searching, this method does not wait, and that thread stops the
        helper process.
        """
        with self._users_lock:
            self._users -= 1
        self._stop_if_unused()

    def start(self) -> None:
        """Start the helper process if it is not running.

        Raises SearchError if it cannot be started.
        """
        with self._process_lock:
            self._connect()
        self._stop_if_unused()

    def search(self, pattern: bytes, text: bytes) -> tuple[bool, int, bool]:
        """Search the lines of ``text`` for the regular expression ``pattern``.

        Return whether a line matches, the number of bytes that were searched, and whether the
        search of a line was abandoned. The search ends at the first line that matches or when the
        time limit is reached. Raises SearchError if the helper process fails.
        """
        with self._process_lock:
            channel = self._connect()
            header = helper.REQUEST_HEADER.pack(len(pattern), len(text))
            try:
                channel.sendall(header + pattern + text)
                answer = helper.ANSWER.unpack(channel.recv(helper.ANSWER.size))
            except (OSError, struct.error) as exc:
                self._stop()
                raise SearchError("the process that searches the log has failed") from exc
        self._stop_if_unused()
        is_found, searched_bytes, is_abandoned = answer
        return is_found, searched_bytes, is_abandoned

    def _connect(self) -> socket.socket:
        if self._channel is None:
            self._channel = self._start()
        return self._channel

    def _start(self) -> socket.socket:
        channel, helper_end = socket.socketpair()
        with helper_end:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-W", "ignore", helper.__file__],
                    stdin=helper_end.fileno(),
                    stdout=subprocess.DEVNULL,
                    env=self._environment,
                    cwd="/",
                    # Ctrl-C must not interrupt the helper process.
                    start_new_session=True,
                )
            except OSError as exc:
                channel.close()
                raise SearchError(
                    f"cannot start {sys.executable!r} to search the log: {exc.strerror}"
                ) from exc
        channel.settimeout(ANSWER_TIMEOUT_SECONDS)
        return channel

    def _stop_if_unused(self) -> None:
        if self._users == 0 and self._process_lock.acquire(blocking=False):
            try:
                if self._users == 0:
                    self._stop()
            finally:
                self._process_lock.release()

    def _stop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class LineSearch:
    """A search of one log for a line that contains a match for a regular expression.

    A newline, a carriage return or both end a line: a program that shows a progress bar writes a
    carriage return after or before each version of the bar. Colours and other control characters
    do not count as text of a line. Lines longer than `helper.LONGEST_LINE_BYTES` are searched in
    parts. Close a search when it is no longer needed.
    """

    def __init__(self, process: SearchProcess, pattern: str) -> None:
        self._has_abandoned_lines = False
        self._shown_pattern = pattern
        self._pattern = pattern.encode(errors="surrogatepass")
        self._incomplete_line = b""
        self._searched_incomplete_line = b""
        self._unsearched = b""
        self._process = process
        self._process.add_user()
        self._is_open = True

    def close(self) -> None:
        """Stop the helper process if no other search uses it."""
        if self._is_open:
            self._is_open = False
            self._process.remove_user()

    @property
    def problem(self) -> str:
        """A message if the search of a line was abandoned because it took too long, or ``""``."""
        if not self._has_abandoned_lines:
            return ""
        return (
            f"it takes too long to search the log for {self._shown_pattern!r}; "
            "simplify the regular expression"
        )

    @property
    def is_behind(self) -> bool:
        """True if some of the added lines have not been searched."""
        return bool(self._unsearched)

    def prepare(self) -> None:
        """Start the helper process, so that `search_next` does not have to wait for its start.

        Raises SearchError if it cannot be started.
        """
        self._process.start()

    def add(self, data: bytes) -> None:
        """Add the next part of the log."""
        text = self._incomplete_line + data
        # The last carriage return may belong to a newline that begins the next part.
        carriage_return = b"\r" if text.endswith(b"\r") else b""
        text = text.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        complete, newline, incomplete = text.rpartition(b"\n")
        if len(incomplete) >= helper.LONGEST_LINE_BYTES:
            complete, newline, incomplete = text, b"\n", b""
        self._unsearched += _without_controls(complete + newline)
        self._incomplete_line = incomplete + carriage_return

    def complete_last_line(self) -> None:
        """Add the incomplete last line, if any. Call this method at the end of the log."""
        if self._incomplete_line:
            self.add(b"\n")

    def search_incomplete_line(self) -> bool:
        """Search the incomplete last line, which can still grow, and return whether it matches.

        Call this method when the log has not grown for a while. Raises SearchError if the helper
        process fails.
        """
        line = self._incomplete_line
        if line in (b"", self._searched_incomplete_line):
            return False
        self._searched_incomplete_line = line
        text = _without_controls(line.removesuffix(b"\r"))
        return bool(text) and self._search(text)[0]

    def search_next(self) -> bool:
        """Search the next added lines, and return whether one of them matches.

        This method blocks for less than about a second. Call it again while ``is_behind`` is
        true. Raises SearchError if the helper process fails.
        """
        if not self._unsearched:
            return False
        is_found, searched_bytes = self._search(self._unsearched)
        self._unsearched = self._unsearched[searched_bytes:]
        return is_found

    def _search(self, text: bytes) -> tuple[bool, int]:
        """Return whether a line of ``text`` matches, and the number of searched bytes."""
        is_found, searched_bytes, is_abandoned = self._process.search(self._pattern, text)
        self._has_abandoned_lines = self._has_abandoned_lines or is_abandoned
        return is_found, searched_bytes


def _without_controls(lines: bytes) -> bytes:
    """Return lines without the characters that control a terminal, such as colours."""
    lines = lines.translate(None, _MEANINGLESS)
    if not _CONTROLS.search(lines):
        return lines
    text = remove_controls(lines.decode(errors="replace"), keep_colours=False)
    return text.encode()
