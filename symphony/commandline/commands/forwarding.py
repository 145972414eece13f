"""Keep forwarded ports open until the command is interrupted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from symphony.commandline.exit_codes import INTERRUPTED, OK
from symphony.commandline.output.terminal import print_note, print_text


def report_error(error: str) -> None:
    """Report that a connection could not be forwarded."""
    print_note(f"symphony: {error}")


def keep_open(addresses: str) -> int:
    """Print the addresses of tunnels, wait until Ctrl-C, and return the exit code."""
    import threading

    print_text(addresses, flush=True)
    print_note("forwarding; press Ctrl-C to stop")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return INTERRUPTED
    return OK


@contextlib.contextmanager
def end_as_interrupt() -> Iterator[None]:
    """Convert SIGTERM, and the SIGHUP of a closed terminal, to KeyboardInterrupt, so that forwarded
    ports are closed properly. Ignored signals stay ignored, as with nohup.
    """
    import signal

    previous = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            previous[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
