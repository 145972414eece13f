"""A group: processes that start, end and are placed together. On Kubernetes it is one Pod."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from symphony.errors import NotFound, SpecError, error_path
from symphony.model import validators
from symphony.model.component import Component
from symphony.model.process import Process
from symphony.names import did_you_mean

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from symphony.model.experiment import Experiment
    from symphony.model.process import ProcessOptions


class ProcessGroup(Component):
    """Several processes as one.

    Settings of one process (resources, mounts, environment) set on a group reach all its members, those added
    later too; settings of a Pod (node selectors, restart policy) belong to the group alone. A service that a
    group binds is served by any one of its members.
    """

    _what = "group"

    def __init__(
        self,
        name: str,
        *,
        start_dir: str | None = None,
        preamble_cmds: validators.Strings | None = None,
    ) -> None:
        super().__init__(name)
        with error_path("start_dir"):
            self.start_dir = None if start_dir is None else validators.path(start_dir, "start_dir")
        with error_path("preamble_cmds"):
            self.preamble_cmds = (
                [] if preamble_cmds is None else validators.lines(preamble_cmds, "preamble_cmds")
            )
        self.experiment: Experiment | None = None
        self._processes: dict[str, Process] = {}

    def new_process(self, name: str, **options: Unpack[ProcessOptions]) -> Process:
        """Make a process and add it; the keywords are those of `Process`."""
        process = Process(name, **options)
        self.add_process(process)
        return process

    def add_process(self, process: Process) -> None:
        """Add a process that is in no other group."""
        if process.group is not None and process.group is not self:
            raise SpecError(f"process {process.name!r} is in group {process.group.name!r} already")
        if process.experiment is not None:
            raise SpecError(
                f"process {process.name!r} is in experiment {process.experiment.name!r} on its own"
            )
        if process.name == self.name:
            raise SpecError(
                f"group {self.name!r} cannot have a process of its own name; names are unique"
            )
        if process.name in self._processes:
            raise SpecError(f"group {self.name!r} has a process {process.name!r} already")
        process._refuse_unplaced(f"the group {self.name!r}", self)
        own = process._pod_settings()
        if own:
            placed = not {"node_selector", "tolerations"}.isdisjoint(own)
            dispatched = ", or give process_group= where a dispatcher set them" if placed else ""
            raise SpecError(
                f"process {process.name!r} has settings that belong to the whole group: {', '.join(own)}; "
                f"set them on the group {self.name!r} instead{dispatched}"
            )
        if self.experiment is not None:
            self.experiment._claim(process.name)
        self._processes[process.name] = process
        process.group = self

    def add_processes(self, processes: Iterable[Process]) -> None:
        """Add several processes."""
        for process in processes:
            self.add_process(process)

    def get_process(self, name: str) -> Process:
        """The member of that name; `NotFound` with the near miss where there is none."""
        try:
            return self._processes[name]
        except KeyError:
            raise NotFound(
                f"group {self.name!r} has no process {name!r}{did_you_mean(name, self._processes)}"
            ) from None

    def list_processes(self) -> list[Process]:
        """The members, in declaration order."""
        return list(self._processes.values())

    def dump(self) -> dict[str, Any]:
        """The group in its file form, without its name."""
        own = {"start_dir": self.start_dir, "preamble_cmds": [*self.preamble_cmds] or None}
        return {
            **{key: value for key, value in own.items() if value is not None},
            **self._settings.dump(),
            "processes": {process.name: process.dump() for process in self.list_processes()},
        }
