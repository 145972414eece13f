"""The state of the code at the time of a launch, or of the latest change of the code by ``up``: the
commit, and the changes since the commit.

Only Git repositories are supported. The files ``code.json`` and ``code.diff`` of a record contain
the result. There are none if the code is not in a repository or git is not installed. Untracked
files are not recorded.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from symphony.archive.run_record import read_json, write_json
from symphony.code.git import GIT, is_in_repository

CODE_FILE, DIFF_FILE = "code.json", "code.diff"
# A launch waits at most this long for git after everything else has been done.
TIMEOUT_SECONDS = 0.5
MAX_DIFF_BYTES = 10 * 2**20
SHORT_COMMIT_LENGTH = 12


class CodeCapture:
    """Records the state of the repository that contains ``source``, while the caller continues.

    The files are written to ``record``. When the ``with`` block ends, wait until git has finished,
    but at most `TIMEOUT_SECONDS`.
    """

    def __init__(self, source: Path, record: Path) -> None:
        self._record = record
        # An earlier state is replaced when the new one is complete.
        self._new_diff = record / f".{DIFF_FILE}.{os.getpid()}"
        self._commit: subprocess.Popen[bytes] | None = None
        self._diff: subprocess.Popen[bytes] | None = None
        self._source = source

    def start(self) -> None:
        """Start git, if the code is in a repository. Errors are ignored."""
        if not is_in_repository(self._source):
            return
        # Without git, or without space on the disk, nothing is recorded.
        with contextlib.suppress(OSError):
            self._commit = self._run("rev-parse", "HEAD", "--abbrev-ref", "HEAD")
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            descriptor = os.open(self._new_diff, flags, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                self._diff = self._run("diff", "--no-ext-diff", "--no-textconv", "HEAD", out=file)

    def _run(self, *arguments: str, out: Any = subprocess.PIPE) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*GIT, *arguments],
            cwd=self._source,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> CodeCapture:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        deadline = time.monotonic()
        if exc is None:
            deadline += TIMEOUT_SECONDS
        commit = _output(self._commit, deadline)
        is_diff_complete = _exit_code(self._diff, deadline) == 0
        lines = commit.split()
        with contextlib.suppress(OSError):
            if exc is None and len(lines) == 2:
                self._write(lines[0], lines[1], is_diff_complete=is_diff_complete)
            self._new_diff.unlink()

    def _write(self, commit: str, branch: str, *, is_diff_complete: bool) -> None:
        size = self._new_diff.stat().st_size
        if size > MAX_DIFF_BYTES:
            os.truncate(self._new_diff, MAX_DIFF_BYTES)
            is_diff_complete = False
        data = {
            "commit": commit,
            "branch": None if branch == "HEAD" else branch,
            "changed": size > 0 or not is_diff_complete,
            "diff_complete": is_diff_complete,
        }
        self._new_diff.replace(self._record / DIFF_FILE)
        write_json(self._record / CODE_FILE, data)


def read_code(record: Path) -> dict[str, Any] | None:
    """Return the contents of ``code.json``, or None if the code was not recorded.

    ``commit`` is the full name of the commit. ``branch`` is None if no branch was checked out.
    ``changed`` is true if there were changes to tracked files. ``diff_complete`` is false if git
    did not finish in time or the difference was too large.
    """
    return read_json(record / CODE_FILE)


def code_words(record: Path) -> str:
    """Return the recorded code as text, such as ``3fa4be1c2d04+ (main)``, or ``""``.

    ``+`` means that there were uncommitted changes.
    """
    code = read_code(record)
    if code is None:
        return ""
    words = str(code.get("commit"))[:SHORT_COMMIT_LENGTH]
    if code.get("changed"):
        words = f"{words}+"
    if code.get("branch"):
        words = f"{words} ({code['branch']})"
    return words


def diff_digest(record: Path) -> str | None:
    """Return a digest of the uncommitted changes, or None if there were none."""
    import hashlib

    try:
        content = (record / DIFF_FILE).read_bytes()
    except OSError:
        return None
    return f"sha256:{hashlib.sha256(content).hexdigest()[:16]}" if content else None


def _output(process: subprocess.Popen[bytes] | None, deadline: float) -> str:
    """Return a process's output, or ``""`` if it fails or does not exit before ``deadline``."""
    if process is None:
        return ""
    try:
        output, _ = process.communicate(timeout=max(deadline - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return ""
    return output.decode(errors="replace") if process.returncode == 0 else ""


def _exit_code(process: subprocess.Popen[bytes] | None, deadline: float) -> int | None:
    """Return a process's exit code, or None if it does not exit before ``deadline``."""
    if process is None:
        return None
    try:
        return process.wait(timeout=max(deadline - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None
