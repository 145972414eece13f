"""The progress of copying, packing and sending data."""

from __future__ import annotations

from symphony.commandline.output.terminal import ProgressLine

_BYTES_PER_MIB = 2**20


class ByteProgress:
    """Shows on a progress line how many MiB have been processed."""

    def __init__(self, shown: ProgressLine) -> None:
        self._shown = shown
        self._last = ""

    def report(self, done: str, done_bytes: int, total_bytes: int | None) -> None:
        """Show what was ``done``, such as ``copied``, if the number of MiB has changed."""
        amount = f"{done_bytes // _BYTES_PER_MIB}"
        if total_bytes is not None:
            amount = f"{amount} of {total_bytes // _BYTES_PER_MIB}"
        text = f"{done} {amount} MiB"
        if text != self._last:
            self._last = text
            self._shown.update(text)
