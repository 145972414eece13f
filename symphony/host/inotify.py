"""Waiting for files to grow: the kernel's inotify, without a dependency.

inotify(7): a watch with IN_ONESHOT tells once and is gone, which bounds what a busy file can cost.
Importing this raises OSError where there is no inotify.
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
_EVENT = struct.Struct("iIII")

_libc = ctypes.CDLL(None, use_errno=True)
if not hasattr(_libc, "inotify_init1"):
    raise OSError("this system has no inotify")


class Watch:
    """Watches files for writing, once each: a file that was told is watched no more until added again."""

    def __init__(self) -> None:
        self._descriptor = _checked(_libc.inotify_init1(_FLAGS))
        self._keys: dict[int, str] = {}
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def fileno(self) -> int:
        """The descriptor that is readable when there is something to tell."""
        return self._descriptor

    def add(self, key: str, path: Path) -> None:
        """Watch ``path`` under the name ``key``."""
        watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(path), IN_MODIFY | IN_ONESHOT)
        self._keys[_checked(watch)] = key

    def told(self, timeout: float = 0.0) -> set[str]:
        """The keys of the files that were written, after ``timeout`` seconds at most."""
        if not self._poll.poll(timeout * 1000):
            return set()
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return set()
        found: set[str] = set()
        offset = 0
        while offset < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size + length
            if mask & IN_MODIFY:
                found.add(self._keys.pop(watch))
        return found

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
