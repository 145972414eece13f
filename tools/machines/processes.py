"""Start, stop and observe processes.

A process is identified by its pid and start time, because the kernel reuses pids.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from machines.console import Console, ToolError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that this tool started. `start` is field 22 of /proc/PID/stat; see proc(5)."""

    name: str
    pid: int
    start: int


def start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, or None if it has exited."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The process name, which precedes these fields, can contain any character, including ")".
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def identify(name: str, pid: int) -> Process:
    """Return the identity of a process that has just been started."""
    start = start_time(pid)
    if start is None:
        raise ToolError(f"{name} exited as soon as it was started")
    return Process(name=name, pid=pid, start=start)


def alive(process: Process) -> bool:
    """Return whether `process` is running. A later process with the same pid does not count."""
    return start_time(process.pid) == process.start


def stop(process: Process, *, grace: float = 0) -> None:
    """Stop a process and wait until it has exited: send SIGTERM, wait for up to `grace` seconds,
    and then send SIGKILL.

    If `grace` is 0, send SIGKILL at once.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # The handle was opened before this check, so it refers to this process if the check
        # succeeds.
        if not alive(process):
            return
        exited = False
        if grace:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            exited = _wait_for_exit(handle, grace)
        if not exited:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            if not _wait_for_exit(handle, 30):
                raise ToolError(f"{process.name} (pid {process.pid}) did not exit after SIGKILL")
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def _wait_for_exit(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def spawn(name: str, argv: Sequence[str], *, log: Path) -> Process:
    """Start a process in its own session, and append its output to `log`."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return identify(name, child.pid)


def run(
    argv: Sequence[str],
    *,
    log: Path,
    console: Console | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    label: str = "",
    cancelled: threading.Event | None = None,
) -> None:
    """Run a command until it exits, and append its output to `log`. If `console` is given, report
    the last line of the log every 20 seconds, after `label` if there is one.

    Raises ToolError with the last lines of the log if the command fails, and ToolError after the
    command has been killed because the event `cancelled` was set.
    """
    with log.open("ab") as output:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=cwd, env=env
        )
    begun = reported = time.monotonic()
    prefix = f"  {label}" if label else ""
    try:
        while (code := _wait(child, 1)) is None:
            if cancelled is not None and cancelled.is_set():
                raise ToolError(f"'{argv[0]}' was cancelled")
            now = time.monotonic()
            if console is not None and now - reported >= 20:
                line = tail(log, 1).strip()[:100]
                console.report(f"{prefix}  {now - begun:4.0f} s: {line}")
                reported = now
    except BaseException:
        child.kill()
        child.wait()
        raise
    if code:
        command = " ".join(argv)[:120]
        raise ToolError(f"'{command}' failed with {code}; the end of {log}:\n{tail(log, 8)}")


def _wait(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def tail(log: Path, lines: int) -> str:
    """Return the last `lines` lines of a log, or an empty string if the log cannot be read."""
    try:
        size = log.stat().st_size
        with log.open("rb") as file:
            file.seek(max(0, size - 2000 * lines))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def wait_for(
    probe: Callable[[], T],
    what: str,
    *,
    seconds: float,
    needs: Sequence[Process] = (),
    log: Path | None = None,
) -> T:
    """Call `probe` until its result is true, and return the result.

    Raises ToolError if this takes longer than `seconds` seconds, or if a process in
    `needs` exits.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = probe()
        if answer:
            return answer
        dead = next((process for process in needs if not alive(process)), None)
        if dead is not None or time.monotonic() > deadline:
            cause = f"{dead.name} has exited" if dead else f"not within {seconds:.0f} s"
            log_end = f"; the end of {log}:\n{tail(log, 8)}" if log else ""
            raise ToolError(f"waiting for {what}: {cause}{log_end}")
        time.sleep(0.05)


def all_pids() -> Iterator[int]:
    """Yield the pid of every process on the machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def memory_kib(pid: int) -> int:
    """Return the proportional set size (PSS) of a process in KiB, or 0 if it has exited."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    shares = (line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(next(shares, "0"))
