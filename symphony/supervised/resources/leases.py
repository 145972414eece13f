"""Leases, each of which reserves a port or a GPU for one experiment.

A lease is a name that is bound in the kernel's abstract socket namespace. Within a network
namespace, only one process can bind a given name at a time, even if the processes belong to
different users. A child process that inherits the socket's file descriptor also holds the lease.
The lease is released when the last process that holds the descriptor exits or closes it.

The hold on a leased port is a second socket, which is bound to the port with SO_REUSEADDR but does
not listen. While the port is held, a program that does not use leases cannot bind the port unless
it sets SO_REUSEADDR too. The hold is released immediately before the process that serves the port
starts. With ``hold_ports="bound"``, the hold is released when the supervisor exits.
docs/adr/0002-ports.md contains the reasons for this design and the measurements.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from symphony.errors import SpecError
from symphony.supervised.processes.spec import AMD_GPU_VARIABLE, GPU_VARIABLE

if TYPE_CHECKING:
    from symphony.supervised.resources.ports import ExperimentPorts, FinishingPorts
    from symphony.supervised.resources.unsupervised import UnsupervisedUsage

ANY_ADDRESS = "0.0.0.0"
# The reason why a port is avoided; see `PortLeases.avoid`.
CLOSED_CONNECTIONS = "has closed connections"
AMD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")


def take_lease(kind: str, resource: str) -> int | None:
    """Lease a resource, such as the resource ``"8080"`` of kind ``"port"``.

    Return the file descriptor that holds the lease, or None if the resource is already leased.
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


def hold_port(port: int) -> int:
    """Return a descriptor that holds a port. Raises OSError if a program uses the port."""
    hold = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        hold.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hold.bind((ANY_ADDRESS, port))
    except OSError:
        hold.close()
        raise
    return hold.detach()


def has_closed_connections(port: int) -> bool:
    """Return whether a server can bind a free port only if it sets SO_REUSEADDR.

    The kernel keeps the state of closed connections for about a minute.
    """
    return not _can_bind(port, reuse=False) and _can_bind(port, reuse=True)


def better_port(ports: PortLeases, port: int, port_range: tuple[int, int]) -> int | None:
    """Reserve a port that is preferable to ``port``, which this program has leased, and return it.

    Return None if each server could bind ``port``, if this program holds it, or if no better port
    is available.
    """
    from symphony.plan.resolution.addresses import ServiceRequest, choose_ports

    if _is_held(port) or _can_bind(port, reuse=False):
        return None

    def refuse(candidate: int) -> str | None:
        return CLOSED_CONNECTIONS if ports.avoid(candidate) else ports.reserve(candidate)

    request = ServiceRequest(name="", owner="")
    try:
        return choose_ports([request], port_range, refuse)[request.name]
    except SpecError:
        return None


def _is_held(port: int) -> bool:
    return any(
        held_resource(int(name)) == ("hold", str(port)) for name in os.listdir("/proc/self/fd")
    )


def _can_bind(port: int, *, reuse: bool) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        try:
            server.bind((ANY_ADDRESS, port))
        except OSError:
            return False
    return True


def held_resource(descriptor: int) -> tuple[str, str] | None:
    """Return the kind and the name of the resource that a file descriptor holds.

    The kind is that of the lease, such as ``port``, or ``hold`` for the hold on a port. Return None
    if the descriptor holds no resource.
    """
    try:
        own = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        address = own.getsockname()
        is_hold = own.family == socket.AF_INET and own.type == socket.SOCK_STREAM
    except OSError:
        return None
    finally:
        own.detach()
    if is_hold:
        return ("hold", str(address[1])) if address[0] == ANY_ADDRESS else None
    parts = address.decode(errors="replace").split("/", 2) if isinstance(address, bytes) else []
    return (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "\0symphony" else None


def close_port_sockets(port: int) -> None:
    """Release the lease and the hold of a port that this process holds."""
    for name in os.listdir("/proc/self/fd"):
        if held_resource(int(name)) in (("port", str(port)), ("hold", str(port))):
            os.close(int(name))


class PortLeases:
    """A context manager that holds the ports of one launch and releases them on exit.

    ``current`` contains the ports of the experiment that the launch replaces. These ports count as
    available, although that experiment still uses them. ``finishing`` contains the ports of
    experiments that have finished but whose supervisors have not exited yet. `reserve` waits up to
    a time limit for these ports to be released. The ports in ``unsupervised`` are not available.

    ``leases`` and ``holds`` map ports to file descriptors.
    """

    def __init__(
        self,
        current: ExperimentPorts | None = None,
        finishing: FinishingPorts | None = None,
        unsupervised: UnsupervisedUsage | None = None,
    ) -> None:
        self._unsupervised = unsupervised
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
        self.release()

    def release(self) -> None:
        """Close this process's file descriptors for the leases and the holds.

        Call this method after a supervisor has inherited them. From then on, only the supervisor
        determines when they are released.
        """
        for descriptor in (*self.leases.values(), *self.holds.values()):
            os.close(descriptor)
        self.leases.clear()
        self.holds.clear()

    def reserve(self, port: int) -> str | None:
        """Lease and hold a port. Return None on success, or the reason why the port is unavailable.

        Also return None for a port that the ``current`` experiment has reserved. Such a port is not
        leased again.
        """
        lease = take_lease("port", str(port))
        finishing = self._finishing
        if lease is None and finishing is not None:
            finishing.wait_until_released(port)
            # The supervisor can have exited after the first attempt, and before it was looked for.
            lease = take_lease("port", str(port))
        if lease is None:
            if self._current is not None and port in self._current.reserved:
                return None
            return "is reserved by another running experiment"
        user = None
        if self._unsupervised is not None:
            user = self._unsupervised.experiment_using_port(port)
        reason = _unsupervised_message(user) if user else self._hold(port)
        if reason:
            os.close(lease)
        else:
            self.leases[port] = lease
        return reason

    def avoid(self, port: int) -> bool:
        """Return whether another port is preferable, because some servers could not bind this one.

        Ports that experiments have reserved are not avoided.
        """
        # The check binds the port, so it must not disturb a server that is about to do so.
        lease = take_lease("port", str(port))
        if lease is None:
            return False
        try:
            return has_closed_connections(port)
        finally:
            os.close(lease)

    def _hold(self, port: int) -> str | None:
        try:
            self.holds[port] = hold_port(port)
        except PermissionError:
            return "is privileged: this user may not bind ports below 1024"
        except OSError:
            if self._current is not None and port in self._current.listening:
                return None
            process = self._listeners.get(port)
            return f"is in use by {process}" if process else "is in use"
        return None

    @functools.cached_property
    def _listeners(self) -> dict[int, str]:
        from symphony.supervised.processes.tree import tcp_listeners

        return tcp_listeners()


def _unsupervised_message(experiment: str) -> str:
    return (
        f"is reserved by experiment {experiment!r}, whose processes are running although its "
        f"supervisor was killed; delete {experiment!r}"
    )


class GpuLeases:
    """A context manager that holds the GPUs of one launch and releases them on exit.

    ``devices`` contains GPU identifiers in the format of CUDA_VISIBLE_DEVICES. ``leases`` maps each
    leased device to a file descriptor. The devices in ``unsupervised`` are not available.
    """

    def __init__(
        self, devices: Sequence[str], unsupervised: UnsupervisedUsage | None = None
    ) -> None:
        self.devices = tuple(_normalized(devices))
        self._unsupervised = unsupervised
        self.leases: dict[str, int] = {}

    def __enter__(self) -> GpuLeases:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Close this process's file descriptors for the leases; see `PortLeases.release`."""
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
            descriptor = self._take_lease(device)
            if descriptor is not None:
                self.leases[device] = descriptor
                leased.append(device)
        if len(leased) == count:
            return leased
        for device in leased:
            os.close(self.leases.pop(device))
        return None

    def count_free(self, devices: Sequence[str] | None = None) -> int:
        """Return the number of devices that neither this launch nor another process has leased.

        ``devices`` contains the devices that are considered; None means all.
        """
        considered = self.devices if devices is None else devices
        candidates = [device for device in considered if device not in self.leases]
        return sum(self._is_free(device) for device in candidates)

    def unsupervised_users(self) -> list[str]:
        """Return the names of the experiments that use devices although their supervisors were
        killed.
        """
        users = {self._unsupervised_user(device) for device in self.devices}
        return sorted(user for user in users if user is not None)

    def _unsupervised_user(self, device: str) -> str | None:
        if self._unsupervised is None:
            return None
        return self._unsupervised.experiment_using_gpu(device)

    def _is_free(self, device: str) -> bool:
        lease = self._take_lease(device)
        if lease is None:
            return False
        os.close(lease)
        return True

    def _take_lease(self, device: str) -> int | None:
        """Lease a device. Return the file descriptor, or None if the device is not available."""
        lease = take_lease("gpu", device)
        if lease is not None and self._unsupervised_user(device):
            os.close(lease)
            return None
        return lease


def _normalized(identifiers: Iterable[str]) -> list[str]:
    """Return the identifiers in canonical form and without duplicates. For example, ``00`` becomes
    ``0``.

    The name of a lease contains the device identifier, so each device must have exactly one
    identifier.
    """
    devices = []
    for identifier in identifiers:
        device = identifier.strip()
        devices.append(str(int(device)) if device.isdecimal() else device)
    return list(dict.fromkeys(devices))


def visible_gpus(
    environ: dict[str, str] | None = None,
    devices: Iterable[str] | None = None,
    amd_nodes: Path = AMD_NODES,
) -> list[str]:
    """Return the identifiers of the GPUs that are visible to this process.

    These are the devices in CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES if one of these variables
    is set, and all of the machine's NVIDIA GPUs otherwise. If there are none, these are its AMD
    GPUs. ``environ`` replaces the process's environment, and ``devices`` replaces the list of file
    names in ``/dev``. ``amd_nodes`` is the directory in which the driver for AMD GPUs describes
    them.
    """
    environ = dict(os.environ) if environ is None else environ
    for variable in (GPU_VARIABLE, AMD_GPU_VARIABLE):
        if variable in environ:
            identifiers = _normalized(environ[variable].split(","))
            return [device for device in identifiers if device not in ("", "-1")]
    return nvidia_gpus(devices) or amd_gpus(amd_nodes)


def nvidia_gpus(devices: Iterable[str] | None = None) -> list[str]:
    """Return the identifiers of the machine's NVIDIA GPUs.

    ``devices`` replaces the list of file names in ``/dev``.
    """
    if devices is None:
        with contextlib.suppress(OSError):
            devices = os.listdir("/dev")
    # The NVIDIA driver creates one file for each GPU, such as /dev/nvidia0, and files with other
    # suffixes, such as /dev/nvidiactl.
    names = [name for name in devices or () if name.startswith("nvidia")]
    suffixes = [name.removeprefix("nvidia") for name in names]
    return sorted((suffix for suffix in suffixes if suffix.isdigit()), key=int)


def amd_gpus(nodes: Path = AMD_NODES) -> list[str]:
    """Return the identifiers of the machine's AMD GPUs. Programs count them from 0."""
    identifiers = []
    for file in nodes.glob("*/gpu_id"):
        with contextlib.suppress(OSError):
            identifiers.append(file.read_text(encoding="ascii").strip())
    # The CPUs are nodes, too. Their identifier is 0.
    count = sum(identifier not in ("", "0") for identifier in identifiers)
    return [str(number) for number in range(count)]
