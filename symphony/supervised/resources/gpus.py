"""Assigning leased GPUs to the processes of a launch."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from symphony.errors import LaunchFailed
from symphony.supervised.processes.spec import ProcessSpec, with_devices
from symphony.supervised.resources.leases import GpuLeases
from symphony.support.names import join_names


class GpusBusy(LaunchFailed):
    """Too few GPUs are free at the moment, but the machine has enough."""


def assign_gpus(
    processes: Sequence[ProcessSpec], leases: GpuLeases
) -> tuple[tuple[ProcessSpec, ...], dict[str, list[int]]]:
    """Lease the GPUs that processes request, and set the variables with the GPUs of a process.

    Return all processes, and a mapping from process names to the file descriptors of their leases.
    Raises LaunchFailed if the machine has too few GPUs, and GpusBusy if too few GPUs are free.
    """
    assigned: list[ProcessSpec] = []
    lease_descriptors: dict[str, list[int]] = {}
    for process in processes:
        if process.gpus:
            devices = leases.lease(process.gpus)
            if devices is None:
                raise _launch_error(process, processes, leases)
            lease_descriptors[process.name] = [leases.leases[device] for device in devices]
            process = with_devices(process, devices)
        assigned.append(process)
    return tuple(assigned), lease_descriptors


def check_number_of_gpus(
    processes: Sequence[ProcessSpec], leases: GpuLeases, released: Collection[str]
) -> None:
    """Check that enough GPUs are free for processes, without leasing any.

    The devices in ``released`` count as free. Raises the same errors as `assign_gpus`.
    """
    others = [device for device in leases.devices if device not in released]
    free = len(leases.devices) - len(others) + leases.count_free(others)
    for process in processes:
        free -= process.gpus
        if free < 0 and process.gpus:
            raise _launch_error(process, processes, leases)


def check_total_of_gpus(processes: Sequence[ProcessSpec], leases: GpuLeases) -> None:
    """Check that the machine has enough GPUs for processes if all GPUs are free.

    Raises LaunchFailed if it has too few.
    """
    requested = 0
    for process in processes:
        requested += process.gpus
        if requested > len(leases.devices):
            raise _launch_error(process, processes, leases)


def _launch_error(
    process: ProcessSpec, processes: Sequence[ProcessSpec], leases: GpuLeases
) -> LaunchFailed:
    """Return the error for the launch of ``processes``, of which ``process`` gets too few GPUs."""
    error = too_few_gpus(process, leases)
    requested, number = sum(each.gpus for each in processes), len(leases.devices)
    if requested <= number:
        return GpusBusy(f"{error}; to wait for them, launch with queue", path=error.path)
    if process.gpus > number or not number:
        return error
    text = f"the processes request {requested} GPUs together, but this machine has only {number}"
    return LaunchFailed(f"{text}; lower resource_limit(gpu=)", path=error.path)


def too_few_gpus(process: ProcessSpec, leases: GpuLeases) -> LaunchFailed:
    """Return the error for a process that requests more GPUs than are free."""
    path = (*process.document_path, "resource_limit")
    return LaunchFailed(_too_few_gpus_message(process, leases), path=path)


def _too_few_gpus_message(process: ProcessSpec, leases: GpuLeases) -> str:
    """Return the error message for a process that requests more GPUs than are free."""
    unit = "GPU" if process.gpus == 1 else "GPUs"
    request = f"process {process.path!r} requests {process.gpus} {unit}"
    if not leases.devices:
        return f"{request}, but no GPU is visible on this machine; lower resource_limit(gpu=)"
    if process.gpus > len(leases.devices):
        number = len(leases.devices)
        return f"{request}, but this machine has only {number}; lower resource_limit(gpu=)"
    free = leases.count_free()
    message = (
        f"{request}, but only {free} of {len(leases.devices)} are free; "
        "running experiments have leased the others"
    )
    users = [repr(name) for name in leases.unsupervised_users()]
    if users:
        message += (
            f"; processes of {join_names(users)} are running although their supervisor was killed: "
            f"delete {join_names(users)} to free their GPUs"
        )
    return message
