"""A program in a pseudo-terminal of its own: what it shows, and what is typed."""

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

TIMEOUT = 60
INTERRUPT = "\x03"
# A session without a terminal takes the first that it opens for its own.
_ADOPT = 'tty=$1; shift; exec "$@" <>"$tty" >&0 2>&0'
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Terminal:
    """A running program; ``shown`` is all that it has shown, escape sequences included."""

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
        # Kept open: reading fails as soon as nobody has the other end, and the program may not have it yet.
        self._slave: int | None = slave
        # What is read may end in the middle of a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.shown = ""

    @property
    def text(self) -> str:
        """What was shown, without escape sequences."""
        return _ESCAPE.sub("", self.shown).replace("\r\n", "\n")

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def expect(self, text: str, *, escapes: bool = False) -> None:
        """Return when ``text`` has been shown; with ``escapes`` it has escape sequences."""
        deadline = time.monotonic() + TIMEOUT
        while text not in (self.shown if escapes else self.text):
            over = self.process.poll() is not None or time.monotonic() > deadline
            more = self._read(0.0 if over else 0.1)
            assert more or not over, f"{text!r} was not shown, but:\n{self.text}"

    def finish(self) -> int:
        """Read on to the end; the exit code as a shell tells it, 128 + n for what signal n ended."""
        deadline = time.monotonic() + TIMEOUT
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
            self._read(0.05)
        while self._read(0.0):
            pass
        code = self.process.returncode
        return 128 - code if code < 0 else code

    def _read(self, timeout: float) -> bool:
        if not select.select([self._master], [], [], max(0.0, timeout))[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.shown += self._decoder.decode(data)
        return bool(data)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for descriptor in (self._master, self._slave):
            if descriptor is not None:
                os.close(descriptor)
