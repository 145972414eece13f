"""Delete one experiment, show what the deletion waits for, and handle Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

from symphony.cluster.plugins import backend_supports
from symphony.commandline.output.exit_progress import reporting_exits
from symphony.commandline.output.terminal import print_note, show_progress
from symphony.errors import SymphonyError

if TYPE_CHECKING:
    from symphony.cluster import Cluster


def delete_with_progress(cluster: Cluster, name: str, size: str, *, purge: bool = False) -> None:
    """Delete an experiment. ``size`` is the number of its processes as text.

    With ``purge``, also remove the record of its run.

    If the backend can stop experiments, the first Ctrl-C kills the processes, and the deletion
    continues. Otherwise, or after a second Ctrl-C, KeyboardInterrupt is raised, and a note says
    that the experiment may still exist.
    """
    can_kill = backend_supports(cluster.backend, "stop")
    hint = "; Ctrl-C kills them" if can_kill else ""
    # Several threads write to the terminal.
    writing = threading.Lock()
    with show_progress(f"deleting {name} ({size})") as shown:

        def announce_kill() -> None:
            with writing:
                shown.clear()
                print_note(f"symphony: killing {name!r}")

        try:
            with (
                reporting_exits(
                    cluster, name, f"deleting {name}", shown, writing=writing, hint=hint
                ),
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
