"""Limiting the size of logs by removing the oldest output.

The program that writes a log has the file open, so a log can be neither renamed nor moved. The
blocks at its beginning are instead returned to the file system: they become a hole in the file; see
FALLOC_FL_PUNCH_HOLE in fallocate(2). The end of the file does not change. A program that writes at
the same time is therefore not disturbed, no output other than the oldest is lost, and all offsets
in the file remain valid. The offset at which the remaining output starts is stored in a file next
to the log, because the length of the log file still includes the hole.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from symphony.supervised.read.log_files import first_kept_offset
from symphony.supervised.record.run_paths import LOG_START_SUFFIX
from symphony.supervised.supervisor.capture.file_blocks import punch_hole
from symphony.support.replace_file import replace_file

_BLOCK_BYTES = 1 << 16


def remove_old_output(log: Path, limit: int) -> bool:
    """Remove the oldest lines of a log if the log contains more than ``limit`` bytes.

    Return whether output was removed. If whole lines of more than half of the limit would be
    removed because one of them is long, only the beginning of this line is removed. Raises OSError
    if the file system does not support holes. In that case, the log remains unchanged.
    """
    size = log.stat().st_size
    start = first_kept_offset(log)
    if size - start <= limit:
        return False
    with log.open("r+b", buffering=0) as file:
        start = _next_line_start(file.fileno(), size - limit, size - limit // 2)
        # A reader checks the recorded start after each read, so the start must be recorded before
        # the output is removed.
        try:
            _record_start(log, start)
        except OSError as exc:
            if exc.errno != errno.ENOSPC:
                raise
            # The disk is full. Removing the output first makes room for the record.
            punch_hole(file.fileno(), start)
            _record_start(log, start)
            return True
        try:
            punch_hole(file.fileno(), start)
        except OSError:
            forget_start(log)
            raise
    return True


def forget_start(log: Path) -> None:
    """Remove the record of the offset at which a log starts, because the log starts at 0."""
    with contextlib.suppress(FileNotFoundError):
        log.with_suffix(LOG_START_SUFFIX).unlink()


def _next_line_start(descriptor: int, offset: int, end: int) -> int:
    """Return the offset of the first line that starts at ``offset`` or later.

    Return ``offset`` if no line starts between ``offset`` and ``end``.
    """
    position = offset - 1
    while position < end:
        block = os.pread(descriptor, min(_BLOCK_BYTES, end - position), position)
        if not block:
            break
        newline = block.find(b"\n")
        if newline >= 0 and position + newline + 1 < end:
            return position + newline + 1
        position += len(block)
    return offset


def _record_start(log: Path, start: int) -> None:
    """Store the offset at which a log starts. A reader sees the previous offset or this one."""
    replace_file(log.with_suffix(LOG_START_SUFFIX), [f"{start}\n".encode()])
