"""The processes that a supervisor supervises: what it knows about them beyond their record.

The recorded state of a process is its `Track`. It survives the supervisor. The objects of this
module belong to one supervisor: the child that is running, and the steps that are in progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.supervisor.children import Child
from symphony.support.data_classes import dataclass


@dataclass(slots=True, eq=False)
class SupervisedProcess:
    """A process of an experiment.

    ``spec`` is the description with which it is started next, and ``running_spec`` the one of its
    latest execution, or None. ``child`` is the running child, and ``is_adopted`` is true if another
    supervisor has started it. ``leftovers`` identifies a child that has exited, while programs that
    belong to it are still running, and ``is_polled`` is true while the executor waits for their
    exits. ``is_leaving`` is true if a change has removed the process. ``is_freed`` is true if it
    does not need its GPUs any more, and ``has_lost_gpus`` if another experiment has leased them.
    """

    spec: ProcessSpec
    running_spec: ProcessSpec | None = None
    child: Child | None = None
    is_adopted: bool = False
    leftovers: ProcessId | None = None
    is_polled: bool = False
    is_leaving: bool = False
    is_freed: bool = False
    has_lost_gpus: bool = False

    @property
    def name(self) -> str:
        """The name of the process within its experiment."""
        return self.spec.name

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
        self.on_change: Callable[[], None] = lambda: None
        """A function that is called when a port of processes has been replaced."""
        self._group()

    def _group(self) -> None:
        """Determine the ranks of each unit."""
        self.units.clear()
        for name, process in self.present.items():
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

    def ranks_with(self, name: str) -> list[str]:
        """Return all ranks of the unit of a process, or an empty list if it is not a rank."""
        process = self.present.get(name)
        if process is None or process.spec.unit is None:
            return []
        return self.units[process.spec.unit]

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
            if name not in old_specs:
                # The new description applies to the running process.
                process.running_spec = spec
            self.present[name] = process
        self.old_specs = old_specs
        self._group()
