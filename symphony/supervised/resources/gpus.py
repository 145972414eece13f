"""Assigning leased GPUs to the processes of a launch."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from symphony.errors import LaunchFailed
from symphony.supervised.processes.spec import ProcessSpec, with_devices
from symphony.supervised.resources.leases import GpuLeases
from symphony.support.names import join_names


def assign_gpus(
    processes: Iterable[ProcessSpec], leases: GpuLeases
) -> tuple[tuple[ProcessSpec, ...], dict[str, list[int]]]:
    """Lease the GPUs that processes request, and set the variables with the GPUs of a process.

    Return all processes, and a mapping from process names to the file descriptors of their leases.
    Raises LaunchFailed if the machine has too few GPUs, or if too few GPUs are free.
    """
    assigned: list[ProcessSpec] = []
    lease_descriptors: dict[str, list[int]] = {}
    for process in processes:
        if process.gpus:
            devices = leases.lease(process.gpus)
            if devices is None:
                raise too_few_gpus(process, leases)
            lease_descriptors[process.name] = [leases.leases[device] for device in devices]
            process = with_devices(process, devices)
        assigned.append(process)
    return tuple(assigned), lease_descriptors


def check_number_of_gpus(
    processes: Iterable[ProcessSpec], leases: GpuLeases, released: Collection[str]
) -> None:
    """Check that enough GPUs are free for processes, without leasing any.

    The devices in ``released`` count as free. Raises LaunchFailed if there are too few.
    """
    others = [device for device in leases.devices if device not in released]
    free = len(leases.devices) - len(others) + leases.count_free(others)
    for process in processes:
        free -= process.gpus
        if free < 0 and process.gpus:
            raise too_few_gpus(process, leases)


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
