"""Noticing that nobody reads standard output any more, while nothing is written to it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from symphony.commandline.output.terminal import OutputClosed


@contextlib.contextmanager
def noticing_closed_output() -> Iterator[None]:
    """Raise `OutputClosed` here as soon as the reader of standard output goes, though nothing is written.

    Otherwise ``symphony logs -f ... | head`` would hang until the next line comes.
    """
    descriptor = _pipe(sys.stdout)
    if descriptor is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPIPE, _raise_closed)
    wake_read, wake_write = os.pipe()
    watcher = threading.Thread(
        target=_watch, args=(descriptor, wake_read, threading.get_ident()), daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        os.close(wake_write)
        watcher.join()
        os.close(wake_read)
        signal.signal(signal.SIGPIPE, before)


def _pipe(stream: Any) -> int | None:
    """The descriptor of a stream that is a pipe or a socket."""
    try:
        descriptor: int = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (AttributeError, OSError, ValueError):
        return None
    return descriptor if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


def _watch(descriptor: int, wake: int, thread: int) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # errors and hang-ups are told unasked
    poll.register(wake, select.POLLIN)
    told = [found for found, _ in poll.poll()]
    if descriptor in told and wake not in told:
        signal.pthread_kill(thread, signal.SIGPIPE)


def _raise_closed(_signal: int, _frame: FrameType | None) -> None:
    raise OutputClosed
