"""Allocating and returning the disk blocks of a file without changing the size of the file.

The standard library has no binding for these modes of fallocate(2).
"""

from __future__ import annotations

import ctypes
import errno
import os

_FALLOC_FL_KEEP_SIZE = 0x1
_FALLOC_FL_PUNCH_HOLE = 0x2
_UNSUPPORTED_ERRORS = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODEV})

_libc = ctypes.CDLL(None, use_errno=True)
# On 32-bit systems, only fallocate64 accepts 64-bit offsets. A few C libraries have neither.
_fallocate = getattr(_libc, "fallocate64", None) or getattr(_libc, "fallocate", None)
if _fallocate is not None:
    _fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def allocate(descriptor: int, offset: int, length: int) -> None:
    """Allocate the blocks for ``length`` bytes at ``offset``, which can be beyond the end.

    Raises OSError, for example if the file system does not support this operation.
    """
    _call(descriptor, _FALLOC_FL_KEEP_SIZE, offset, length)


def punch_hole(descriptor: int, end: int) -> None:
    """Return the blocks before the offset ``end`` to the file system.

    Raises OSError, for example if the file system does not support this operation.
    """
    _call(descriptor, _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE, 0, end)


def can_punch_holes(descriptor: int) -> bool:
    """Return whether the file system of an empty file supports `punch_hole`."""
    try:
        punch_hole(descriptor, 1)
    except OSError as exc:
        # Other errors, such as an interruption, can disappear.
        return exc.errno not in _UNSUPPORTED_ERRORS
    return True


def _call(descriptor: int, mode: int, offset: int, length: int) -> None:
    if _fallocate is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if _fallocate(descriptor, mode, offset, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
