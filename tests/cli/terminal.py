"""A program in a pseudo-terminal: its output, and keys that are pressed."""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT = 60  # seconds
INTERRUPT = "\x03"
# A session without a controlling terminal adopts the first terminal that it opens.
_ADOPT = 'tty=$1; shift; exec "$@" <>"$tty" >&0 2>&0'
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Terminal:
    """A running program. ``shown`` is its whole output, including escape sequences."""

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, width: int
    ) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", _ADOPT, "sh", os.ttyname(slave), *argv],
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # Reading fails if no process has the other side open, and the program may not have opened
        # it yet. So it stays open here.
        self._open = [self._master, slave]
        # A read may end in the middle of a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.shown = ""

    @property
    def text(self) -> str:
        """The output without escape sequences."""
        return _ESCAPE.sub("", self.shown).replace("\r\n", "\n")

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def expect(self, text: str, *, escapes: bool = False) -> None:
        """Wait until ``text`` has been shown.

        With ``escapes``, the text contains escape sequences.
        """
        deadline = time.monotonic() + TIMEOUT
        while text not in (self.shown if escapes else self.text):
            is_over = self.process.poll() is not None or time.monotonic() > deadline
            has_more = self._read(0.0 if is_over else 0.1)
            assert has_more or not is_over, f"{text!r} was not shown, but:\n{self.text}"

    def finish(self) -> int:
        """Wait until the program has exited, and return its exit code.

        As in a shell, the exit code is 128 + n if signal n has killed the program.
        """
        deadline = time.monotonic() + TIMEOUT
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"the program does not exit:\n{self.text}"
            self._read(0.05)
        while self._read(0.0):
            pass
        code = self.process.returncode
        return 128 - code if code < 0 else code

    def _read(self, timeout: float) -> bool:
        """Read what is available within ``timeout`` seconds. Return whether there was anything."""
        if not select.select([self._master], [], [], max(0.0, timeout))[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.shown += self._decoder.decode(data)
        return bool(data)

    def hang_up(self) -> None:
        """Close the terminal, for example because its window was closed."""
        while self._open:
            os.close(self._open.pop())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.hang_up()
