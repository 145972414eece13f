"""Delete one experiment, show what the deletion waits for, and handle Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

from symphony.cluster.plugins import backend_supports
from symphony.commandline.output.terminal import (
    ProgressLine,
    is_terminal,
    print_note,
    show_progress,
)
from symphony.errors import SymphonyError
from symphony.names import join_names
from symphony.status import State

if TYPE_CHECKING:
    from symphony.cluster import Cluster

# A deletion that takes longer than this shows which processes it waits for.
FIRST_REPORT_SECONDS = 2.0
_REPORT_INTERVAL_SECONDS = 1.0
_MAX_NAMES = 4


def delete_with_progress(cluster: Cluster, name: str, size: str, *, purge: bool = False) -> None:
    """Delete an experiment. ``size`` is the number of its processes as text.

    With ``purge``, also remove the record of its run.

    If the backend can stop experiments, the first Ctrl-C kills the processes, and the deletion
    continues. Otherwise, or after a second Ctrl-C, KeyboardInterrupt is raised, and a note says
    that the experiment may still exist.
    """
    can_kill = backend_supports(cluster.backend, "stop")
    # Several threads write to the terminal.
    writing = threading.Lock()
    with show_progress(f"deleting {name} ({size})") as shown:

        def announce_kill() -> None:
            with writing:
                shown.clear()
                print_note(f"symphony: killing {name!r}")

        try:
            with (
                _reporting(cluster, name, shown, writing, can_kill),
                _killing(cluster, name, announce_kill, can_kill),
            ):
                # A third-party backend can lack the parameter ``purge``.
                options = {"purge": True} if purge else {}
                cluster.delete(name, **options)
        except KeyboardInterrupt:
            shown.clear()
            print_note(
                f"symphony: {name!r} is not completely deleted; its processes may still be "
                f"stopping; 'symphony delete -f {name}' continues"
            )
            raise


@contextlib.contextmanager
def _killing(
    cluster: Cluster, name: str, announce: Callable[[], None], can_kill: bool
) -> Iterator[None]:
    """Kill the experiment's processes on the first Ctrl-C inside the block."""
    if not can_kill or threading.current_thread() is not threading.main_thread():
        yield
        return
    count = 0

    def kill() -> None:
        announce()
        # The deletion reports the same error. The experiment may also have been deleted already.
        with contextlib.suppress(SymphonyError):
            cluster.stop(name, at_once=True)

    def on_interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt
        # The signal may have interrupted the deletion at any point, so another thread acts.
        threading.Thread(target=kill, daemon=True, name="kill").start()

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def _reporting(
    cluster: Cluster, name: str, shown: ProgressLine, writing: threading.Lock, can_kill: bool
) -> Iterator[None]:
    """Show which processes have not exited yet while the block runs, if it takes long."""
    ended = threading.Event()

    def report() -> None:
        start = time.monotonic()
        pause = FIRST_REPORT_SECONDS
        while not ended.wait(pause):
            pause = _REPORT_INTERVAL_SECONDS
            try:
                running = _running_processes(cluster, name)
            except SymphonyError:
                continue
            if not running:
                continue
            names = join_names(running, limit=_MAX_NAMES)
            with writing:
                if ended.is_set():
                    return
                if not is_terminal(sys.stderr):
                    print_note(f"deleting {name}: waiting for {names} to exit")
                    return
                seconds = int(time.monotonic() - start)
                hint = "; Ctrl-C kills them" if can_kill else ""
                shown.update(f"deleting {name}: waiting {seconds} s for {names} to exit{hint}")

    threading.Thread(target=report, daemon=True, name="deletion").start()
    try:
        yield
    finally:
        with writing:
            ended.set()


def _running_processes(cluster: Cluster, name: str) -> list[str]:
    status = cluster.describe_experiment(name)
    return [process.path for process in status if process.state is State.RUNNING]
