"""Raising a KeyboardInterrupt again that Python has ignored.

Python prints an exception in a finalizer or in a callback of a weak reference, and continues. Its
import system has such callbacks, so a Ctrl-C during an import can have no effect.
"""

from __future__ import annotations

# These modules belong to the interpreter, and need no time to be imported.
import _signal  # type: ignore[import-not-found]
import _thread
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# By then, Python has left the callback. If it runs another one, the next attempt follows.
_PAUSE_SECONDS = 0.02


def raise_ignored_interrupts() -> None:
    """Send the main thread its signal again if Python ignores a KeyboardInterrupt.

    An exception with the attribute ``number`` was caused by that signal, and others by SIGINT. Call
    this function in the main thread of a program that exits after a KeyboardInterrupt.
    """
    main_thread = _thread.get_ident()
    report: Callable[[Any], object] = sys.unraisablehook

    def handle(unraisable: Any) -> None:
        exc = unraisable.exc_value
        if isinstance(exc, KeyboardInterrupt):
            number = getattr(exc, "number", _signal.SIGINT)
            _thread.start_new_thread(_send, (main_thread, number))
        else:
            report(unraisable)

    sys.unraisablehook = handle


def _send(thread: int, number: int) -> None:
    time.sleep(_PAUSE_SECONDS)
    _signal.pthread_kill(thread, number)
