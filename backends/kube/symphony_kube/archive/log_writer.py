"""Write a log from the API into the record of a run.

The files have the form that `symphony.archive.archived_logs` reads.
"""

from __future__ import annotations

import contextlib
from array import array
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from symphony.archive.archived_logs import LOG_SUFFIX, TIMES_SUFFIX
from symphony.support.replace_file import replace_file
from symphony_kube.logs.lines import line_content, line_time

# The length of the part of a timestamp that distinguishes tenths of a second. The time is recorded
# when this part changes.
_TENTHS_WIDTH = 21
_COPY_BYTES = 1 << 20


class LogWriter:
    """A writer of one process's log.

    If the log exceeds ``max_bytes``, only its end is kept. The log of an earlier attempt is
    replaced when the writer is closed, unless the new log is empty.
    """

    def __init__(self, directory: Path, process: str, max_bytes: int) -> None:
        self._target = directory / f"{process}{LOG_SUFFIX}"
        self._times_target = directory / f"{process}{TIMES_SUFFIX}"
        self._part = directory / f".{process}.part"
        self._file: BinaryIO = self._part.open("w+b")
        self._max_bytes = max_bytes
        self._size = 0
        self._times, self._lengths = array("d"), array("q")
        self._last_line = b""
        self.is_cut = False

    def write(self, lines: list[bytes], *, complete: bool = True) -> None:
        """Add lines with timestamps. The last one has no newline if ``complete`` is false."""
        for number, line in enumerate(lines, 1):
            if not line_time(line):
                # A kubelet that no longer has the log adds a message without a timestamp.
                continue
            if line[:_TENTHS_WIDTH] != self._last_line[:_TENTHS_WIDTH]:
                self._record_time()
            self._last_line = line
            content = line_content(line)
            if complete or number < len(lines):
                content += b"\n"
            self._file.write(content)
            self._size += len(content)
        if self._size > 2 * self._max_bytes:
            self._drop_beginning()

    def close(self) -> None:
        """Replace the log of an earlier attempt. Raises OSError."""
        self._record_time()
        if self._size > self._max_bytes:
            self._drop_beginning()
        self._file.close()
        if self._size == 0 and self._target.exists():
            self._part.unlink()
            return
        pairs = zip(self._times, self._lengths, strict=True)
        times = "".join(f"{at:.3f} {length}\n" for at, length in pairs if length > 0)
        replace_file(self._times_target, [times.encode()], mode=0o600)
        self._part.chmod(0o600)
        self._part.replace(self._target)

    def discard(self) -> None:
        """Remove what was written. Errors are ignored."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._part.unlink()

    def _record_time(self) -> None:
        """Record the time of the last line, if it has one, with the current length."""
        text = line_time(self._last_line)
        if not text:
            return
        # Python accepts at most six digits of a second.
        moment = datetime.fromisoformat(f"{text[:26].decode()}+00:00")
        self._times.append(moment.timestamp())
        self._lengths.append(self._size)

    def _drop_beginning(self) -> None:
        """Keep only the last complete lines that fit in the limit."""
        self.is_cut = True
        self._file.seek(self._size - self._max_bytes - 1)
        start = self._size - self._max_bytes
        if self._file.read(1) != b"\n":
            start += len(self._file.readline())
        position = 0
        while start + position < self._size:
            self._file.seek(start + position)
            block = self._file.read(_COPY_BYTES)
            self._file.seek(position)
            self._file.write(block)
            position += len(block)
        self._size -= start
        self._file.truncate(self._size)
        self._file.seek(self._size)
        kept = [index for index, length in enumerate(self._lengths) if length > start]
        self._times = array("d", (self._times[index] for index in kept))
        self._lengths = array("q", (self._lengths[index] - start for index in kept))
