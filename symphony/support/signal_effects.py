"""The effects of signals on programs that do not handle them."""

from __future__ import annotations

import signal

# All programs of a process receive these signals: no program can handle KILL and STOP, and CONT
# continues what STOP has suspended.
SIGNALS_FOR_ALL = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT})
# The signals that do not end a program by default; see signal(7).
HARMLESS_SIGNALS = frozenset(
    {
        signal.SIGCHLD,
        signal.SIGCONT,
        signal.SIGSTOP,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
        signal.SIGURG,
        signal.SIGWINCH,
    }
)
