"""The terminal of this program in raw mode, in which a program relays it to another terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

_CHUNK_BYTES = 1 << 16
# Ctrl-P Ctrl-Q, as in docker and kubectl.
_DETACH_KEYS = b"\x10\x11"


class DetachKeys:
    """The keys with which the user leaves the terminal of a process: Ctrl-P Ctrl-Q.

    ``pressed`` becomes true when the user has typed them.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._held = b""

    def filter(self, typed: bytes) -> bytes:
        """Return the keys for the process.

        A key that can be the first detach key is held back until the next one is typed.
        """
        typed = self._held + typed
        before, keys, _ = typed.partition(_DETACH_KEYS)
        if keys:
            self.pressed = True
            return before
        self._held = _DETACH_KEYS[:1] if typed.endswith(_DETACH_KEYS[:1]) else b""
        return typed.removesuffix(self._held)


def joined_message(process: str) -> bytes:
    """Return the line for a user who joins the terminal of a process."""
    text = f"attached to {process}; leave with Ctrl-P Ctrl-Q, and the process keeps running\n"
    return text.encode()


def left_message(process: str) -> bytes:
    """Return the line for a user who has left the terminal of a process."""
    return f"\ndetached from {process}\n".encode()


def has_terminal() -> bool:
    """Return whether standard input and standard output are terminals."""
    return os.isatty(0) and os.isatty(1)


@contextlib.contextmanager
def raw_mode(terminal: int) -> Iterator[None]:
    """Put the terminal into raw mode, and restore its previous mode at the end.

    In raw mode, the terminal driver passes on each keystroke immediately, without interpreting it.
    """
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    try:
        # TCSADRAIN preserves input that was typed earlier and is meant for the command.
        tty.setraw(terminal, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextlib.contextmanager
def watched_size() -> Iterator[int]:
    """Yield a file descriptor that becomes readable when the terminal size changes."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)

    def notify(*_: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(writable, b".")

    # Python allows only the main thread to install signal handlers.
    is_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGWINCH, notify) if is_main_thread else None
    try:
        yield readable
    finally:
        if is_main_thread:
            signal.signal(signal.SIGWINCH, before)
        os.close(readable)
        os.close(writable)


def read_available(descriptor: int) -> bytes:
    """Return the bytes that can be read now, or ``b""`` if the terminal was closed."""
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except OSError:
        return b""


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``."""
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        view = view[written:]
