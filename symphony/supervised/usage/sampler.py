"""Sampling the resource use of the processes of an experiment that run on this machine."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.spec import devices_of
from symphony.supervised.usage.cpu_time import Readings, used_cores
from symphony.supervised.usage.nvml import GpuUsage, open_gpus
from symphony.supervised.usage.process_trees import ProcessTrees
from symphony.supervised.usage.proportional_memory import ProportionalMemory
from symphony.usage import ExperimentUsage, ProcessUsage

# The CPU use of the first sample is measured over this time. The kernel counts CPU time in ticks of
# usually 10 ms.
FIRST_INTERVAL_SECONDS = 0.3
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Devices = Mapping[str, Sequence[str]]


class UsageSampler:
    """The resource use of the processes of one run on this machine.

    Between two samples, nothing happens. The CPU use is unknown in the first sample.
    """

    def __init__(self, run_id: str) -> None:
        self._trees = ProcessTrees(run_id)
        self._memory = ProportionalMemory()
        self._gpus = open_gpus()
        self._previous: Mapping[str, Readings] = {}

    def sample(
        self, leaders: Mapping[str, ProcessId], devices: Devices | None = None
    ) -> ExperimentUsage:
        """Return the resource use of running processes.

        ``leaders`` maps their names to their identities, and ``devices`` to the GPUs that they
        hold.
        """
        trees = {}
        for name, readings in self._trees.scan(leaders).items():
            if readings:
                trees[name] = {reading.pid: reading for reading in readings}
        births = {pid: item.birth for tree in trees.values() for pid, item in tree.items()}
        self._memory.update(births)
        gpus = self._gpus.read()
        usages = [
            self._usage(name, tree, gpus, tuple((devices or {}).get(name, ())))
            for name, tree in trees.items()
        ]
        self._previous = trees
        return ExperimentUsage(
            at=time.time(), processes=tuple(usages), unavailable=gpus.unavailable
        )

    def _usage(
        self,
        name: str,
        tree: Readings,
        gpus: GpuUsage,
        devices: tuple[str, ...],
    ) -> ProcessUsage:
        pids = list(tree)
        before = self._previous.get(name)
        is_using_gpu = bool(devices) or gpus.is_used_by(pids)
        return ProcessUsage(
            process=name,
            cpu=None if before is None else used_cores(before, tree),
            memory=sum(reading.resident_pages for reading in tree.values()) * _PAGE_BYTES,
            pss=_sum(map(self._memory.get, pids)),
            open_files=_sum(map(_count_open_files, pids)),
            gpu_memory=gpus.memory_of(pids) if is_using_gpu else None,
            gpu_utilization=gpus.utilization_of(pids) if is_using_gpu else None,
            devices=devices,
        )


def devices_of_processes(processes: Iterable[Mapping[str, Any]]) -> Devices:
    """Return the GPUs that processes hold, by their names.

    ``processes`` are the processes of a manifest; see `ProcessSpec.to_dict`.
    """
    found = {item["name"]: devices_of(item["gpus"], item["env"]) for item in processes}
    return {name: devices for name, devices in found.items() if devices}


def _sum(values: Iterable[int | None]) -> int | None:
    """Return the sum, or None if one of the values is unknown."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _count_open_files(pid: int) -> int | None:
    """Return the number of open files, or None if it cannot be read."""
    try:
        if _shows_number_of_files():
            return os.stat(f"/proc/{pid}/fd").st_size  # noqa: PTH116
        return len(os.listdir(f"/proc/{pid}/fd"))
    except FileNotFoundError:
        # The process has exited.
        return 0
    except OSError:
        return None


@functools.cache
def _shows_number_of_files() -> bool:
    """Return whether the size of the directory with the open files is their number.

    This is the case since Linux 6.2. Listing the directory takes three times as long, even if it
    contains few files.
    """
    return os.stat("/proc/self/fd").st_size > 0  # noqa: PTH116
