"""Leases on what one machine has only once: ports and GPUs.

A lease is a name bound in the kernel's abstract socket namespace: it is taken by one process of the machine at
a time, whoever's it is, passes to a child with its descriptor, and ends with its last holder, however that
ended. Where there are no abstract sockets, a locked file in the temporary folder stands in.

A leased port is also bound, not listening, with SO_REUSEADDR, until the process that serves it starts: that
keeps off it programs that neither know of leases nor set SO_REUSEADDR. docs/adr/0002-ports.md has the reasons and
the measurements.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import socket
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony.host.resources.ports import EndingPorts, OwnPorts

ANY_ADDRESS = "0.0.0.0"


def take(kind: str, what: str) -> int | None:
    """Lease ``what``; the descriptor that holds the lease, or None where somebody else has it."""
    name = f"symphony/{kind}/{what}"
    return _take_abstract(name) if sys.platform.startswith("linux") else _take_file(name)


def _take_abstract(name: str) -> int | None:
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lease.bind("\0" + name)
    except OSError as exc:
        lease.close()
        if exc.errno == errno.EADDRINUSE:
            return None
        raise
    return lease.detach()


def _take_file(name: str) -> int | None:
    path = Path(tempfile.gettempdir()) / f"{name.replace('/', '-')}.{os.getuid()}.lock"
    lease = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lease)
        return None
    return lease


class PortLeases:
    """The ports of one launch. Use it as a context: what it holds at the end is let go.

    ``own`` are the ports of an experiment that would be gone by then: they count as free, and are left alone. Those
    that are ``ending`` are waited for.
    """

    def __init__(self, own: OwnPorts | None = None, ending: EndingPorts | None = None) -> None:
        self._own, self._ending = own, ending
        self.leases: dict[int, int] = {}
        self.holds: dict[int, int] = {}

    def __enter__(self) -> PortLeases:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for descriptor in (*self.leases.values(), *self.holds.values()):
            os.close(descriptor)
        self.leases.clear()
        self.holds.clear()

    def release_holds(self) -> None:
        """Let go here of what a supervisor has inherited: it alone decides when a hold ends."""
        for descriptor in self.holds.values():
            os.close(descriptor)
        self.holds.clear()

    def refuse(self, port: int) -> str | None:
        """Lease and hold ``port`` and return None, or say why it cannot be had."""
        lease = take("port", str(port))
        if lease is None and self._ending is not None and self._ending.wait_for(port):
            lease = take("port", str(port))
        if lease is None:
            return (
                None
                if self._own and port in self._own.promised
                else "is promised to another live experiment"
            )
        reason = self._hold(port)
        if reason:
            os.close(lease)
        else:
            self.leases[port] = lease
        return reason

    def _hold(self, port: int) -> str | None:
        hold = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        hold.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            hold.bind((ANY_ADDRESS, port))
        except PermissionError:
            hold.close()
            return "needs rights that this user lacks (ports below 1024 do)"
        except OSError:
            hold.close()
            if self._own and port in self._own.listened:
                return None
            user = self._listeners.get(port, "")
            return f"is in use{' by ' + user if user else ''}"
        self.holds[port] = hold.detach()
        return None

    @functools.cached_property
    def _listeners(self) -> dict[int, str]:
        from symphony.host.processes.tree import listeners

        return listeners()


class GpuLeases:
    """The GPUs of one launch, by process. ``devices`` are the identifiers that CUDA_VISIBLE_DEVICES takes."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = tuple(_devices(devices))
        self.leases: dict[str, int] = {}

    def __enter__(self) -> GpuLeases:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for descriptor in self.leases.values():
            os.close(descriptor)
        self.leases.clear()

    def take(self, count: int) -> list[str] | None:
        """``count`` devices that nobody leases, or None where there are fewer (and nothing is leased)."""
        taken: list[str] = []
        for device in self.devices:
            if len(taken) == count:
                break
            lease = None if device in self.leases else take("gpu", device)
            if lease is not None:
                self.leases[device] = lease
                taken.append(device)
        if len(taken) == count:
            return taken
        for device in taken:
            os.close(self.leases.pop(device))
        return None

    def count_free(self) -> int:
        """How many devices nobody leases, this launch included."""
        return sum(
            1 for device in self.devices if device not in self.leases and _is_free("gpu", device)
        )


def _is_free(kind: str, what: str) -> bool:
    lease = take(kind, what)
    if lease is not None:
        os.close(lease)
    return lease is not None


def _devices(identifiers: Iterable[str]) -> list[str]:
    """Each device once, and by one name, which its lease goes by: ``00`` is ``0``."""
    plain = (identifier.strip() for identifier in identifiers)
    return [*dict.fromkeys(str(int(device)) if device.isdecimal() else device for device in plain)]


def visible_gpus(
    environ: dict[str, str] | None = None, devices: Iterable[str] | None = None
) -> list[str]:
    """The GPUs of this machine that this user was given: CUDA_VISIBLE_DEVICES where set, else all."""
    environ = dict(os.environ) if environ is None else environ
    given = environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [device for device in _devices(given.split(",")) if device not in ("", "-1")]
    if devices is None:
        with contextlib.suppress(OSError):
            devices = os.listdir("/dev")
    # NVIDIA's driver makes /dev/nvidia0, /dev/nvidia1, ... one a device, beside nvidiactl and others.
    found = [name[len("nvidia") :] for name in devices or () if name.startswith("nvidia")]
    return sorted((number for number in found if number.isdigit()), key=int)
