"""Leases on ports and GPUs, which only one process can use at a time.

A lease is a name that is bound in the abstract socket namespace of the kernel. Only one process on
the machine can bind a name at a time, even if the processes belong to different users. A child
process inherits the lease with the descriptor. The lease is released when the last process that
holds the descriptor exits or closes it. On systems without abstract sockets, a lease is a locked
file in the temporary directory.

A leased port is also bound with SO_REUSEADDR, without listening, until the process that serves the
port starts. Other programs that do not use leases then cannot use the port, unless they set
SO_REUSEADDR too. This second socket is called the hold on the port. docs/adr/0002-ports.md contains
the reasons and the measurements.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony.host.resources.ports import ExperimentPorts, FinishingPorts

ANY_ADDRESS = "0.0.0.0"
GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"


def take_lease(kind: str, resource: str) -> int | None:
    """Lease a resource, such as ``"8080"`` of the kind ``"port"``.

    Return the descriptor that holds the lease, or None if another process has the lease.
    """
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lease.bind(f"\0symphony/{kind}/{resource}")
    except OSError as exc:
        lease.close()
        if exc.errno == errno.EADDRINUSE:
            return None
        raise
    return lease.detach()


class PortLeases:
    """The ports of one launch. Use the object as a context manager, which releases the ports at the
    end.

    ``current`` contains the ports of the experiment that the launch replaces. These ports count as
    free, and are neither leased nor held. ``finishing`` contains the ports of experiments that have
    ended but whose supervisors still hold the ports. `reserve` waits for these ports.

    ``leases`` and ``holds`` map each port to a descriptor.
    """

    def __init__(
        self, current: ExperimentPorts | None = None, finishing: FinishingPorts | None = None
    ) -> None:
        self._current = current
        self._finishing = finishing
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
        """Close this process's file descriptors for the holds.

        Call this method after a supervisor has inherited the holds. From then on, only the
        supervisor determines when the holds end.
        """
        for descriptor in self.holds.values():
            os.close(descriptor)
        self.holds.clear()

    def reserve(self, port: int) -> str | None:
        """Lease and hold a port. Return None, or the reason why the port is not available.

        A port of the ``current`` experiment is reported as available without being leased.
        """
        lease = take_lease("port", str(port))
        finishing = self._finishing
        if lease is None and finishing is not None and finishing.wait_until_released(port):
            lease = take_lease("port", str(port))
        if lease is None:
            if self._current is not None and port in self._current.reserved:
                return None
            return "is reserved by another running experiment"
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
            return "is privileged: this user may not bind ports below 1024"
        except OSError:
            hold.close()
            if self._current is not None and port in self._current.listening:
                return None
            process = self._listeners.get(port)
            return f"is in use by {process}" if process else "is in use"
        self.holds[port] = hold.detach()
        return None

    @functools.cached_property
    def _listeners(self) -> dict[int, str]:
        from symphony.host.processes.tree import tcp_listeners

        return tcp_listeners()


class GpuLeases:
    """The GPUs of one launch. Use the object as a context manager, which releases the GPUs at the
    end.

    ``devices`` are identifiers in the form that CUDA_VISIBLE_DEVICES uses. ``leases`` maps each
    leased device to a descriptor.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = tuple(_normalized(devices))
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

    def lease(self, count: int) -> list[str] | None:
        """Lease ``count`` free devices and return them.

        If fewer devices are free, return None and lease nothing.
        """
        leased: list[str] = []
        for device in self.devices:
            if len(leased) == count:
                break
            if device in self.leases:
                continue
            descriptor = take_lease("gpu", device)
            if descriptor is not None:
                self.leases[device] = descriptor
                leased.append(device)
        if len(leased) == count:
            return leased
        for device in leased:
            os.close(self.leases.pop(device))
        return None

    def count_free(self) -> int:
        """Return the number of devices that neither this launch nor another process has leased."""
        candidates = [device for device in self.devices if device not in self.leases]
        return sum(_is_free("gpu", device) for device in candidates)


def _is_free(kind: str, resource: str) -> bool:
    lease = take_lease(kind, resource)
    if lease is None:
        return False
    os.close(lease)
    return True


def _normalized(identifiers: Iterable[str]) -> list[str]:
    """Return each device once, under one spelling: ``00`` becomes ``0``.

    The name of a lease is the identifier of the device, so each device must have exactly one
    identifier.
    """
    devices = []
    for identifier in identifiers:
        device = identifier.strip()
        devices.append(str(int(device)) if device.isdecimal() else device)
    return list(dict.fromkeys(devices))


def visible_gpus(
    environ: dict[str, str] | None = None, devices: Iterable[str] | None = None
) -> list[str]:
    """Return the GPUs that this user may use.

    These are the devices in CUDA_VISIBLE_DEVICES if that variable is set, and all devices of the
    machine otherwise. ``environ`` replaces the environment, and ``devices`` replaces the names of
    the files in ``/dev``.
    """
    environ = dict(os.environ) if environ is None else environ
    configured = environ.get(GPU_VARIABLE)
    if configured is not None:
        identifiers = _normalized(configured.split(","))
        return [device for device in identifiers if device not in ("", "-1")]
    if devices is None:
        with contextlib.suppress(OSError):
            devices = os.listdir("/dev")
    # The NVIDIA driver creates one file for each GPU (/dev/nvidia0, /dev/nvidia1) and files with
    # other suffixes, such as /dev/nvidiactl.
    names = [name for name in devices or () if name.startswith("nvidia")]
    suffixes = [name.removeprefix("nvidia") for name in names]
    return sorted((suffix for suffix in suffixes if suffix.isdigit()), key=int)
