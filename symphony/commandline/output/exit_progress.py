"""Progress messages of commands that wait until processes have exited."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from symphony.commandline.output.terminal import ProgressLine, is_terminal, print_note
from symphony.errors import SymphonyError
from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.cluster import Cluster

# A command that takes longer than this shows which processes it waits for.
FIRST_REPORT_SECONDS = 2.0
_REPORT_INTERVAL_SECONDS = 1.0
# The status of thousands of processes takes seconds to read, and loads the server that stops them.
# The pause after it is this many times as long.
_PAUSE_TIMES = 5.0
_MAX_NAMES = 4


@contextlib.contextmanager
def reporting_exits(
    cluster: Cluster,
    experiment: str,
    action: str,
    shown: ProgressLine,
    *,
    processes: Collection[str] | None = None,
    writing: threading.Lock | None = None,
    hint: str = "",
) -> Iterator[None]:
    """Show which processes have not exited yet while the block runs, if it takes long.

    ``action`` describes what the block does, such as ``deleting rl``. ``processes`` contains the
    names of the processes that must exit, or is None for all. Every other thread that writes to the
    terminal holds ``writing``. ``hint`` is the end of the message on a terminal.
    """
    lock = writing or threading.Lock()
    ended = threading.Event()

    def report() -> None:
        start = time.monotonic()
        pause = FIRST_REPORT_SECONDS
        while not ended.wait(pause):
            asked = time.monotonic()
            try:
                status = cluster.describe_experiment(experiment)
                running = _running_processes(status, processes)
            except SymphonyError:
                continue
            finally:
                pause = pause_after(time.monotonic() - asked)
            if not running:
                continue
            text = _waiting_text(running, status.now())
            with lock:
                if ended.is_set():
                    return
                if not is_terminal(sys.stderr):
                    print_note(f"{action}: waiting for {text}")
                    return
                seconds = int(time.monotonic() - start)
                shown.update(f"{action}: waiting {seconds} s for {text}{hint}")

    threading.Thread(target=report, daemon=True, name="progress").start()
    try:
        yield
    finally:
        with lock:
            ended.set()


def pause_after(seconds: float) -> float:
    """Return how many seconds to wait after a status that took ``seconds`` to read."""
    return max(_REPORT_INTERVAL_SECONDS, _PAUSE_TIMES * seconds)


def _running_processes(
    status: ExperimentStatus, names: Collection[str] | None
) -> list[ProcessStatus]:
    return [
        process
        for process in status
        if process.state is State.RUNNING and (names is None or process.name in names)
    ]


def _waiting_text(running: list[ProcessStatus], now: float) -> str:
    """Return which processes have not exited, and when the next of them is killed."""
    names = join_names((process.path for process in running), limit=_MAX_NAMES)
    kill_times = [process.kill_at for process in running if process.kill_at is not None]
    if not kill_times:
        return f"{names} to exit"
    seconds = math.ceil(min(kill_times) - now)
    kill = f"kill in {seconds} s" if seconds > 0 else "killed"
    return f"{names} to exit ({kill})"
