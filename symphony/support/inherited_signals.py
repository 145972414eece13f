"""The signal settings that this process has inherited, and their effect on child processes.

A program inherits the blocked and the ignored signals of the program that started it. If SIGCHLD is
ignored, the kernel discards the exit codes of child processes, and `subprocess` reports every exit
as a success.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from symphony.errors import BackendError

# Python itself ignores these signals and reports the corresponding errors as exceptions. When
# `subprocess` starts a program, it restores the default action.
_IGNORED_BY_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})


def reset_signals() -> None:
    """Unblock all signals, and restore the default action of all ignored signals.

    Call this function at the start of a program, and from its main thread.
    """
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@contextlib.contextmanager
def default_actions_in_children() -> Iterator[None]:
    """Let programs that are started inside the block begin with the default actions of signals,
    even if this program ignores them.

    In another thread than the main thread, which cannot change this, do nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ignored = [
        number
        for number in signal.valid_signals() - _IGNORED_BY_PYTHON
        if signal.getsignal(number) == signal.SIG_IGN
    ]
    for number in ignored:
        # A program inherits that a signal is ignored, but no handler.
        signal.signal(number, _do_nothing)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _do_nothing(*_: object) -> None:
    """Handle a signal without effect."""


@contextlib.contextmanager
def observable_exits() -> Iterator[None]:
    """Make the exit codes of child processes available inside the block, even if SIGCHLD is
    ignored.

    Raises BackendError if SIGCHLD is ignored and the caller is not the main thread, because only
    the main thread can change this.
    """
    if signal.getsignal(signal.SIGCHLD) != signal.SIG_IGN:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise BackendError(
            "this program ignores SIGCHLD, so no exit code is available; call "
            "signal.signal(signal.SIGCHLD, signal.SIG_DFL) at the start of the program"
        )
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
