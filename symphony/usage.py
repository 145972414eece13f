"""The resource use of processes, in the same form for every backend."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

# The key of `ExperimentUsage.unavailable` that applies to all values.
EVERYTHING = "usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUsage:
    """The resources that a process and its child processes used at one point in time.

    A value is None if it is unknown. ``cpu`` is the number of cores used, on average since the
    previous sample. ``memory`` (the resident set size), ``pss`` (the proportional set size) and
    ``gpu_memory`` are in bytes. ``gpu_utilization`` is between 0 and 1 for one GPU, and the sum for
    several GPUs. ``devices`` contains the GPUs that the process holds.
    """

    process: str
    cpu: float | None = None
    memory: int | None = None
    pss: int | None = None
    open_files: int | None = None
    gpu_memory: int | None = None
    gpu_utilization: float | None = None
    devices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the usage as a dictionary that can be written as JSON."""
        return {**asdict(self), "devices": list(self.devices)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProcessUsage:
        """Return the usage that `to_dict` has converted.

        Raises KeyError or TypeError if ``data`` is damaged.
        """
        return cls(**{**data, "devices": tuple(data["devices"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentUsage:
    """One sample of the resources that the running processes of an experiment use.

    ``at`` is the time of the sample, in seconds since the epoch. ``unavailable`` maps the names of
    fields of `ProcessUsage` to the reasons why the backend cannot report them. The key `EVERYTHING`
    stands for all fields.
    """

    at: float
    processes: tuple[ProcessUsage, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def to_dict(self) -> dict[str, Any]:
        """Return the sample as a dictionary that can be written as JSON."""
        return {
            "at": self.at,
            "processes": [usage.to_dict() for usage in self.processes],
            "unavailable": dict(self.unavailable),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ExperimentUsage:
        """Return the sample that `to_dict` has converted.

        Raises KeyError or TypeError if ``data`` is damaged.
        """
        return cls(
            at=data["at"],
            processes=tuple(map(ProcessUsage.from_dict, data["processes"])),
            unavailable=dict(data["unavailable"]),
        )


def select_usage(usage: ExperimentUsage, names: Collection[str] | None) -> ExperimentUsage:
    """Return a sample with only the processes in ``names``. None means all processes."""
    if names is None:
        return usage
    selected = tuple(process for process in usage.processes if process.process in names)
    return replace(usage, processes=selected)
