"""The connection of a supervisor to its guardian; see `symphony.supervised.supervisor.guardian`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.supervised.processes.identity import identify
from symphony.supervised.supervisor.guardian import ENDED, LEAVES, LOCK_FILE, SUPERVISES

if TYPE_CHECKING:
    from symphony.supervised.supervisor.event_loop import EventLoop

# The key of the identity of the supervisor that has started the guardian in what the guardian gives
# to the next supervisor.
GUARDED = "guarded"

# A guardian that dies sooner is not replaced at once.
_STABLE_SECONDS = 1.0


def encode_preparation(run: Path, preparation: Mapping[str, Any]) -> bytes:
    """Return the first line of the supervisor program's standard input.

    A guardian decodes the path of the run directory without further modules.
    """
    return b"%s %s\n" % (os.fsencode(run).hex().encode(), json.dumps(preparation).encode())


class Guard:
    """The guardian of this supervisor.

    ``preparation`` is what the launcher has sent before its orders. ``alive``, ``messages`` and
    ``path`` are those of `symphony.supervised.supervisor.guardian.Link`.
    """

    def __init__(
        self, preparation: Mapping[str, Any], alive: int, messages: int, path: str
    ) -> None:
        self._preparation = preparation
        self._alive = alive
        self._messages = messages
        self._path = path
        # Starting processes changes the environment of this process.
        self._env = dict(os.environ)
        self._started = time.monotonic()

    @property
    def path(self) -> Path:
        """The run directory of a killed supervisor that this one replaces."""
        return Path(self._path)

    def announce(self, run: Path) -> None:
        """From now on, let the guardian replace this supervisor if it is killed.

        ``run`` is the run directory.
        """
        # The guardian has forked a supervisor with a path, so it knows the path.
        known = b"" if self._path else os.fsencode(run) + b"\n"
        self._send(SUPERVISES + known)
        self._path = str(run)

    def end(self) -> None:
        """Let the guardian exit, because the experiment has finished."""
        with contextlib.suppress(OSError):
            self.path.joinpath(LOCK_FILE).unlink()
        self._send(ENDED)

    def leave(self) -> None:
        """Let the guardian start no new supervisor, because none can continue, or there is one."""
        self._send(LEAVES)

    def _send(self, message: bytes) -> None:
        # The guardian may have been killed.
        with contextlib.suppress(OSError):
            os.write(self._messages, message)

    def watch(self, loop: EventLoop, is_needed: Callable[[], bool]) -> None:
        """Replace the guardian if it is killed while ``is_needed`` returns true."""

        def handle_end() -> None:
            loop.unwatch(self._alive)
            os.close(self._alive)
            age = time.monotonic() - self._started
            if age >= _STABLE_SECONDS:
                replace()
            else:
                loop.after(_STABLE_SECONDS - age, replace)

        def replace() -> None:
            if is_needed():
                try:
                    self._start_guardian()
                except OSError:
                    # For example, the user has too many processes.
                    loop.after(_STABLE_SECONDS, replace)
                else:
                    loop.watch(self._alive, handle_end)

        loop.watch(self._alive, handle_end)

    def _start_guardian(self) -> None:
        self._started = time.monotonic()
        alive_read, alive_write = os.pipe()
        messages_read, messages_write = os.pipe()
        program = Path(__file__).with_name("__main__.py")
        arguments = [Path(self._path).name, str(alive_write), str(messages_read)]
        try:
            # The program finds its line even if this one is killed as soon as it has started it.
            with open(os.memfd_create("preparation"), "w+b") as line:  # noqa: PTH123
                preparation = {**self._preparation, GUARDED: identify(os.getpid())}
                line.write(encode_preparation(self.path, preparation))
                line.seek(0)
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(program), *arguments],
                    stdin=line,
                    pass_fds=[alive_write, messages_read],
                    start_new_session=True,
                    cwd="/",
                    env=self._env,
                )
        except OSError:
            os.close(alive_read)
            os.close(messages_write)
            raise
        finally:
            os.close(alive_write)
            os.close(messages_read)
        os.close(self._messages)
        self._alive, self._messages = alive_read, messages_write
        # The program exits when it has forked the guardian. The supervisor collects its exit with
        # those of orphans, and `Popen` must not wait for it.
        process.returncode = 0
