"""Waiting for file changes with inotify, an interface of the Linux kernel.

The standard library has no binding for this interface. A watch with IN_ONESHOT reports one change
and is then removed, which limits the cost of a file that changes all the time; see inotify(7).

Importing this module raises OSError on a system without inotify.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
from pathlib import Path

IN_MODIFY = 0x2
IN_ONESHOT = 0x80000000
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_EVENT_HEADER = struct.Struct("iIII")
_READ_BYTES = 65536

_libc = ctypes.CDLL(None, use_errno=True)
if not hasattr(_libc, "inotify_init1"):
    raise OSError("this system has no inotify")


class FileWatcher:
    """A watcher for changes to files. After a file has changed, the caller must add it again."""

    def __init__(self) -> None:
        self._descriptor = _check_result(_libc.inotify_init1(_FLAGS))
        self._keys: dict[int, str] = {}
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def fileno(self) -> int:
        """Return the descriptor, which is readable when a file has changed."""
        return self._descriptor

    def add(self, key: str, path: Path) -> None:
        """Watch ``path`` until its next change. `changed` reports the change as ``key``.

        Raises OSError if the file does not exist or if the user's limit on watches is reached.
        """
        watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(path), IN_MODIFY | IN_ONESHOT)
        self._keys[_check_result(watch)] = key

    def changed(self, timeout: float = 0.0) -> set[str]:
        """Return the keys of the files that have changed. Wait at most ``timeout`` seconds."""
        if not self._poll.poll(timeout * 1000):
            return set()
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return set()
        found: set[str] = set()
        offset = 0
        while offset < len(data):
            watch, mask, _, name_length = _EVENT_HEADER.unpack_from(data, offset)
            offset += _EVENT_HEADER.size + name_length
            if mask & IN_MODIFY:
                found.add(self._keys.pop(watch))
        return found

    def close(self) -> None:
        """Stop watching all files."""
        os.close(self._descriptor)


def _check_result(result: int) -> int:
    """Return the result of a call to the C library.

    Raises OSError if the result indicates an error.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
