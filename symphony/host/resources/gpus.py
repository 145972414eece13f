"""Giving leased GPUs to the processes of a manifest."""

from __future__ import annotations

from dataclasses import replace

from symphony.errors import LaunchFailed
from symphony.host.processes.spec import Command
from symphony.host.render import GPU_VARIABLE, HostManifest
from symphony.host.resources.leases import GpuLeases


def assign(manifest: HostManifest, leases: GpuLeases) -> tuple[HostManifest, dict[str, list[int]]]:
    """The manifest with CUDA_VISIBLE_DEVICES for who asked for GPUs, and by process the leases to keep.

    Raises `LaunchFailed` where the machine has too few, or others have leased them.
    """
    commands: list[Command] = []
    kept: dict[str, list[int]] = {}
    for command in manifest.commands:
        if command.gpus:
            devices = leases.take(command.gpus)
            if devices is None:
                raise LaunchFailed(_too_few(command, leases))
            kept[command.name] = [leases.leases[device] for device in devices]
            command = replace(command, env={**command.env, GPU_VARIABLE: ",".join(devices)})
        commands.append(command)
    return replace(manifest, commands=tuple(commands)), kept


def _too_few(command: Command, leases: GpuLeases) -> str:
    asked = f"process {command.path!r} asks for {command.gpus} GPU{'s' if command.gpus > 1 else ''}"
    if not leases.devices:
        return f"{asked}, and this machine has none that are visible; lower resource_limit(gpu=)"
    free = leases.count_free()
    return f"{asked}, and {free} of {len(leases.devices)} are free; the others are leased by live experiments"
