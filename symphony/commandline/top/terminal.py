"""The terminal of the application, which can be closed at any time."""

from __future__ import annotations

import contextlib
from typing import Any

from textual.drivers.linux_driver import LinuxDriver


class LastingDriver(LinuxDriver):
    """The driver of a terminal that can be closed while the application uses it.

    Textual writes in a thread. If an error ended this thread, the application would wait forever
    until the thread has written the text that restores the terminal.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._file: Any = LastingFile(self._file)

    def run_input_thread(self) -> None:
        """Read keys until the application ends. End it if the terminal was closed."""
        try:
            super().run_input_thread()
        except OSError:
            self._app.call_later(self._app.exit)


class LastingFile:
    """A file that discards what cannot be written."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Write text."""
        with contextlib.suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with contextlib.suppress(OSError):
            self._file.flush()

    def fileno(self) -> int:
        """Return the file descriptor."""
        number: int = self._file.fileno()
        return number
