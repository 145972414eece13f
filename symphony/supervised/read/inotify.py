"""Waiting for file changes with inotify, an interface of the Linux kernel; see inotify(7).

The standard library has no binding for this interface. Watches are permanent, because a watch with
IN_ONESHOT can lose changes: if the file is watched again after the kernel has reported the change
but before it has removed the watch, the kernel removes the new watch.

Importing this module raises OSError on a system without inotify.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct

IN_MODIFY = 0x2
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_EVENT_HEADER = struct.Struct("iIII")
_READ_BYTES = 65536

_libc = ctypes.CDLL(None, use_errno=True)
if not hasattr(_libc, "inotify_init1"):
    raise OSError("this system has no inotify")


class FileWatcher:
    """A watcher for changes to files."""

    def __init__(self) -> None:
        self._descriptor = _check_result(_libc.inotify_init1(_FLAGS))
        self._keys: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def fileno(self) -> int:
        """Return the descriptor, which is readable when a file has changed."""
        return self._descriptor

    def add(self, key: str, path: str | os.PathLike[str]) -> None:
        """Watch ``path``. `changed` reports its changes as ``key``.

        Raises OSError if the file does not exist or if the user's limit on watches is reached.
        """
        watch = _check_result(
            _libc.inotify_add_watch(self._descriptor, os.fsencode(path), IN_MODIFY)
        )
        self._keys[watch] = key
        self._watches[key] = watch

    def remove(self, key: str) -> None:
        """Stop watching the file of ``key``, if it is watched."""
        watch = self._watches.pop(key, None)
        if watch is not None:
            del self._keys[watch]
            # This fails if the kernel has removed the watch because the file was deleted.
            _libc.inotify_rm_watch(self._descriptor, watch)

    def is_watching(self, key: str) -> bool:
        """Return whether the file of ``key`` is watched. A deleted file is no longer watched."""
        return key in self._watches

    def changed(self, timeout: float = 0.0) -> set[str]:
        """Return the keys of the files that have changed or have been deleted. Wait at most
        ``timeout`` seconds.
        """
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
            if mask & IN_Q_OVERFLOW:
                # The kernel has discarded changes, so each file may have changed.
                found.update(self._watches)
            elif watch in self._keys:
                found.add(self._keys[watch])
                if mask & IN_IGNORED:
                    del self._watches[self._keys.pop(watch)]
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
