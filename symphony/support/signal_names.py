"""Signals by name or number."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from symphony.errors import SpecError, shown
from symphony.support.names import did_you_mean

if TYPE_CHECKING:
    import signal

# The signals by which programs are stopped. A program can handle each of them.
STOP_SIGNALS = ("TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "ALRM", "ABRT", "WINCH", "PWR")


def find_signal(value: object) -> signal.Signals:
    """Return the signal with a name, such as ``HUP`` or ``SIGHUP``, or with a number.

    Raises `SpecError` if there is no such signal.
    """
    import signal

    known = {member.name.removeprefix("SIG"): member for member in signal.Signals}
    if isinstance(value, str):
        name = value.strip().upper().removeprefix("SIG")
        if name in known:
            return known[name]
        if not name.isascii() or not name.isdecimal():
            hint = did_you_mean(name, known) or "; examples are HUP, USR1 and TERM"
            raise SpecError(f"no signal is called {shown(value)}{hint}")
        value = int(name)
    if isinstance(value, int) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):
            return signal.Signals(value)
    raise SpecError(f"no signal has the number {shown(value)}; use a name, such as HUP")
