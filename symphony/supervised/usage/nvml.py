"""Reading the GPU memory and the GPU utilization of processes.

The values come from the driver for NVIDIA GPUs through NVML. Only this module imports ``pynvml``,
which the extra ``gpu`` installs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from symphony.supervised.resources.leases import amd_gpus, nvidia_gpus
from symphony.support.install_hints import install_command

_FIELDS = ("gpu_memory", "gpu_utilization")


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """The GPU use of all processes of the machine at one point in time.

    ``memory`` maps pids to bytes, and ``utilization`` to the sum of the utilizations of all GPUs,
    each of which is between 0 and 1. Each is None if it is unknown. ``unavailable`` contains the
    reasons; see `symphony.usage.ExperimentUsage`.
    """

    memory: Mapping[int, int] | None = None
    utilization: Mapping[int, float] | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)

    def is_used_by(self, pids: Iterable[int]) -> bool:
        """Return whether one of the processes is known to use a GPU."""
        memory, utilization = self.memory or {}, self.utilization or {}
        return any(pid in memory or pid in utilization for pid in pids)

    def memory_of(self, pids: Collection[int]) -> int | None:
        """Return the GPU memory of several processes in bytes, or None if it is unknown."""
        if self.memory is None:
            return None
        return sum(self.memory.get(pid, 0) for pid in pids)

    def utilization_of(self, pids: Collection[int]) -> float | None:
        """Return the GPU utilization of several processes, or None if it is unknown."""
        if self.utilization is None:
            return None
        return sum(self.utilization.get(pid, 0.0) for pid in pids)


class GpuReader(Protocol):
    """A reader of the GPU use of processes."""

    def read(self) -> GpuUsage:
        """Return the GPU use since the previous call."""


def open_gpus() -> GpuReader:
    """Return a reader for the GPUs of this machine."""
    if nvidia_gpus():
        return _open_nvml()
    if amd_gpus():
        return _Unavailable("symphony reads the use of NVIDIA GPUs only, and these are AMD GPUs")
    return _Unavailable("")


class _Unavailable:
    """The reader for a machine whose GPUs cannot be read, or that has none."""

    def __init__(self, reason: str) -> None:
        self._usage = GpuUsage(unavailable=dict.fromkeys(_FIELDS, reason) if reason else {})

    def read(self) -> GpuUsage:
        """Return the reason; see `GpuReader`."""
        return self._usage


def _open_nvml() -> GpuReader:
    try:
        import pynvml
    except ImportError:
        command = install_command("gpu")
        return _Unavailable(f"the package nvidia-ml-py is not installed; use: {command}")
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    except pynvml.NVMLError as exc:
        return _Unavailable(f"the NVIDIA driver cannot be read: {exc}")
    return _Nvml(pynvml, handles)


class _Nvml:
    """The reader for NVIDIA GPUs. ``nvml`` is the module ``pynvml``."""

    def __init__(self, nvml: Any, handles: list[Any]) -> None:
        self._nvml = nvml
        self._handles = handles
        # The time of the latest sample of the utilization of each GPU, in microseconds.
        self._latest = [int(time.time() * 1e6)] * len(handles)

    def read(self) -> GpuUsage:
        """Return the GPU use; see `GpuReader`."""
        memory: dict[int, int] = {}
        utilization: dict[int, float] = {}
        unavailable: dict[str, str] = {}
        for index, handle in enumerate(self._handles):
            try:
                _add_to(memory, self._memory(handle))
            except self._nvml.NVMLError as exc:
                unavailable["gpu_memory"] = f"GPU {index} does not report it: {exc}"
            try:
                _add_to(utilization, self._utilization(index, handle))
            except self._nvml.NVMLError as exc:
                unavailable["gpu_utilization"] = f"GPU {index} does not report it: {exc}"
        return GpuUsage(
            memory=None if "gpu_memory" in unavailable else memory,
            utilization=None if "gpu_utilization" in unavailable else utilization,
            unavailable=unavailable,
        )

    def _memory(self, handle: Any) -> dict[int, int]:
        """Return the memory of each process on one GPU."""
        found: dict[int, int] = {}
        # A process that draws and computes is in both lists, with the same value.
        for process in (
            *self._nvml.nvmlDeviceGetComputeRunningProcesses(handle),
            *self._nvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
        ):
            found[process.pid] = max(found.get(process.pid, 0), process.usedGpuMemory or 0)
        return found

    def _utilization(self, index: int, handle: Any) -> dict[int, float]:
        """Return the utilization of one GPU by each process since the previous call."""
        samples: list[Any] = []
        with contextlib.suppress(self._nvml.NVMLError_NotFound):
            # The driver reports this error if no process has used the GPU since then.
            samples = self._nvml.nvmlDeviceGetProcessUtilization(handle, self._latest[index])
        by_pid: dict[int, list[float]] = {}
        for sample in samples:
            self._latest[index] = max(self._latest[index], sample.timeStamp)
            by_pid.setdefault(sample.pid, []).append(sample.smUtil / 100)
        return {pid: sum(values) / len(values) for pid, values in by_pid.items()}


def _add_to(totals: dict[int, Any], values: Mapping[int, Any]) -> None:
    for pid, value in values.items():
        totals[pid] = totals.get(pid, 0) + value
