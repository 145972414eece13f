"""The processes that a supervisor supervises: what it knows about them beyond their record.

The recorded state of a process is its `Track`. It survives the supervisor. What is in this module
belongs to one supervisor: the child that is running, and the steps that are in progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from symphony.host.processes.identity import ProcessId
from symphony.host.processes.spec import ProcessSpec
from symphony.host.supervisor.children import Child
from symphony.plan.stop_order import stop_waves


@dataclass(frozen=True, slots=True)
class RequestedStop:
    """The stop of a process on request. ``kill_time`` is on the monotonic clock."""

    kill_time: float
    restarts: bool


@dataclass(slots=True, eq=False)
class SupervisedProcess:
    """A process of an experiment.

    ``spec`` is the description with which it is started next. ``child`` is the running child, and
    ``is_adopted`` is true if another supervisor has started it. ``leftovers`` identifies a child
    that has exited, while programs that belong to it are still running.

    ``requested_stop`` is the stop that a request has begun and that is not complete yet.
    ``stopping_rank`` is the child that is being stopped because another rank of its unit has
    exited. ``stop_begin`` is the time in seconds since the epoch at which a supervisor that was
    killed has begun to stop the process.

    ``is_delayed`` is true while a change has not started the process yet, because others must exit
    first. ``is_leaving`` is true if a change has removed the process.

    ``deadline`` is the time of the process's own deadline on the clock of the launch, and
    ``is_overdue`` is true if it has passed. ``has_lost_gpus`` is true if another experiment has
    leased its GPUs.
    """

    spec: ProcessSpec
    child: Child | None = None
    is_adopted: bool = False
    leftovers: ProcessId | None = None
    requested_stop: RequestedStop | None = None
    stopping_rank: Child | None = None
    stop_begin: float | None = None
    is_delayed: bool = False
    is_leaving: bool = False
    deadline: float | None = None
    is_overdue: bool = False
    has_lost_gpus: bool = False

    @property
    def name(self) -> str:
        """The name of the process within its experiment."""
        return self.spec.name

    @property
    def is_gone(self) -> bool:
        """True if neither the process nor a remaining member of its group is running."""
        return self.child is None and self.leftovers is None

    def identity(self) -> ProcessId | None:
        """Return the identity of the running child, or None if there is none."""
        return None if self.child is None else ProcessId(self.child.pid, self.child.birth)


class ProcessTable:
    """The processes of an experiment in declaration order, and those that a change has removed.

    ``old_specs`` describes the processes that the latest change has removed or restarted, as they
    were before.
    """

    def __init__(
        self, specs: Mapping[str, ProcessSpec], old_specs: Mapping[str, ProcessSpec]
    ) -> None:
        self.present = {name: SupervisedProcess(spec) for name, spec in specs.items()}
        self.leaving: dict[str, SupervisedProcess] = {}
        self.old_specs = old_specs
        self.units: dict[str, list[str]] = {}
        self._followers: dict[str, list[str]] = {}
        self._group()

    def _group(self) -> None:
        """Determine the processes that start after each process, and the ranks of each unit."""
        self.units.clear()
        self._followers.clear()
        for name, process in self.present.items():
            for other in process.spec.starts_after:
                self._followers.setdefault(other, []).append(name)
            if process.spec.unit is not None:
                self.units.setdefault(process.spec.unit, []).append(name)

    def __contains__(self, name: object) -> bool:
        return name in self.present

    def __getitem__(self, name: str) -> SupervisedProcess:
        return self.present.get(name) or self.leaving[name]

    def get(self, name: str) -> SupervisedProcess | None:
        """Return a process, which can be one that a change has removed, or None."""
        return self.present.get(name) or self.leaving.get(name)

    def __iter__(self) -> Iterator[SupervisedProcess]:
        """Iterate over all processes, including those that a change has removed."""
        yield from self.present.values()
        yield from self.leaving.values()

    @property
    def specs(self) -> dict[str, ProcessSpec]:
        """The descriptions of the processes of the experiment."""
        return {name: process.spec for name, process in self.present.items()}

    def running_spec(self, process: SupervisedProcess) -> ProcessSpec:
        """Return the description with which the running child of a process was started."""
        if process.is_delayed:
            # A change restarts the process, which was started with the previous description.
            return self.old_specs.get(process.name, process.spec)
        return process.spec

    def child(self, name: str) -> Child | None:
        """Return the running child of a process, or None."""
        process = self.get(name)
        return None if process is None else process.child

    def is_gone(self, name: str) -> bool:
        """Return whether neither a process nor a remaining member of its group is running."""
        process = self.get(name)
        return process is None or process.is_gone

    def running(self) -> list[SupervisedProcess]:
        """Return the processes that are running."""
        return [process for process in self if process.child is not None]

    def leaders(self) -> dict[str, ProcessId]:
        """Return the identities of the running processes."""
        return {
            process.name: ProcessId(process.child.pid, process.child.birth)
            for process in self
            if process.child is not None
        }

    def has_leftovers(self) -> bool:
        """Return whether programs of a process that has exited are still running."""
        return any(process.leftovers is not None for process in self)

    def ranks_with(self, name: str) -> list[str]:
        """Return all ranks of the unit of a process, or an empty list if it is not a rank."""
        process = self.present.get(name)
        if process is None or process.spec.unit is None:
            return []
        return self.units[process.spec.unit]

    def followers_of(self, name: str) -> list[str]:
        """Return the names of the processes that start after a process."""
        return self._followers.get(name, [])

    def stop_waves(self, names: Iterable[str]) -> list[list[str]]:
        """Return processes in the waves in which they are stopped; see `plan.stop_order`."""
        return stop_waves(names, {process.name: process.spec.starts_after for process in self})

    def restore_leaving(self, names: Iterable[str]) -> None:
        """Add processes that a change has removed before the supervisor was killed."""
        for name in names:
            self.leaving[name] = SupervisedProcess(self.old_specs[name], is_leaving=True)

    def change(
        self,
        specs: Mapping[str, ProcessSpec],
        old_specs: Mapping[str, ProcessSpec],
        removed: Iterable[str],
    ) -> None:
        """Replace the descriptions of the processes, and add and remove processes."""
        for name in removed:
            process = self.leaving[name] = self.present[name]
            process.is_leaving = True
        previous, self.present = self.present, {}
        for name, spec in specs.items():
            process = previous.get(name) or SupervisedProcess(spec)
            process.spec = spec
            self.present[name] = process
        self.old_specs = old_specs
        self._group()
