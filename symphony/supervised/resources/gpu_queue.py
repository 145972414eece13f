"""The queue of the launches that wait until enough GPUs of this machine are free.

Each launch that waits holds a ticket, which is a lease whose name contains the time at which it
began to wait; see `symphony.supervised.resources.leases`. All users of the machine see the tickets,
and the kernel removes that of a program that has ended. The launches of the same GPUs take turns in
the order of their tickets. A launch that does not wait takes free GPUs at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from symphony.errors import BackendError
from symphony.supervised.resources.gpus import GpusBusy
from symphony.supervised.resources.leases import GpuLeases, take_lease

Result = TypeVar("Result")

# Abstract sockets have no event for the end of a lease. A check takes less than a millisecond.
CHECK_INTERVAL_SECONDS = 0.5
_SOCKETS = Path("/proc/net/unix")


def launch_in_turn(
    leases: GpuLeases, needed: int, launch: Callable[[], Result], on_wait: Callable[[str], None]
) -> Result:
    """Call ``launch`` when it is its turn and ``needed`` GPUs are free, and return its result.

    ``leases`` looks for free GPUs, and leases none. ``launch`` raises `GpusBusy` if another program
    has leased them in the meantime, and is then called again. ``on_wait`` is called with the reason
    why the launch waits, whenever it has changed.
    """
    reported = ""
    with _Ticket(leases.devices) as ticket:
        while True:
            before, free = ticket.count_before(), leases.count_free()
            if not before and free >= needed:
                with contextlib.suppress(GpusBusy):
                    return launch()
            reason = _reason(needed, free, len(leases.devices), before)
            if reason != reported:
                reported = reason
                on_wait(reason)
            time.sleep(CHECK_INTERVAL_SECONDS)


def _reason(needed: int, free: int, total: int, before: int) -> str:
    wanted = "1 GPU" if needed == 1 else f"{needed} GPUs"
    if not before:
        return f"waiting for {wanted}: {free} of {total} are free"
    launches = "1 launch is" if before == 1 else f"{before} launches are"
    return f"waiting for {wanted}: {launches} before this one"


class _Ticket:
    """A context manager that holds the place of this launch in the queue for ``devices``."""

    def __init__(self, devices: Sequence[str]) -> None:
        # The name of a lease is short, and a list of devices can be long.
        digest = hashlib.sha256(",".join(sorted(devices)).encode()).hexdigest()
        self._kind = f"queue-{digest[:16]}"
        # The clock is the same for all programs of this machine.
        self._place = f"{time.monotonic_ns():020}-{os.getpid()}"

    def __enter__(self) -> _Ticket:
        lease = take_lease(self._kind, self._place)
        if lease is None:
            raise BackendError(f"the ticket {self._place} in the queue for GPUs exists already")
        self._lease = lease
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._lease)

    def count_before(self) -> int:
        """Return how many launches have begun to wait before this one."""
        prefix = f"@symphony/{self._kind}/"
        places = set()
        for line in _SOCKETS.read_text(encoding="utf-8", errors="replace").splitlines():
            name = line.rpartition(" ")[2]
            if name.startswith(prefix):
                places.add(name.removeprefix(prefix))
        return sum(place < self._place for place in places)
