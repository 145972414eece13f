"""Groups of processes that are started, stopped and placed together.

On Kubernetes, a group is one Pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.errors import NotFound, SpecError, shown
from symphony.model.experiment.component import Component, add_all, attribute_parsers
from symphony.model.experiment.process import PREAMBLE_CMDS, START_DIR, Process
from symphony.model.settings import validators
from symphony.model.settings.value_types import Field, field_table
from symphony.support.names import check_is_text, did_you_mean

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from symphony.model.experiment.experiment import Experiment
    from symphony.model.experiment.process import ProcessOptions
    from symphony.model.settings.signatures import SettingOptions

GROUP_OPTIONS = field_table(START_DIR, PREAMBLE_CMDS)


class ProcessGroup(Component):
    """Several processes that are started, stopped and placed together.

    Container settings, such as resources, volumes and environment variables, are the defaults for
    all members, including members that are added later. Pod settings, such as node selectors and
    the restart policy, apply to the group as a whole. Any member can serve a service that the group
    binds. The keyword arguments are the keys of a group in an experiment file, with values of the
    same forms.
    """

    kind: ClassVar[str] = "group"
    option_names: ClassVar[tuple[str, ...]] = tuple(GROUP_OPTIONS)
    _fields: ClassVar[Mapping[str, Field]] = GROUP_OPTIONS
    _parsers: ClassVar[Mapping[str, Callable[[Any], Any]]] = attribute_parsers(
        _fields, {"preamble_cmds": list}
    )
    start_dir: str | None
    preamble_cmds: list[str]

    def __init__(
        self,
        name: str,
        *,
        start_dir: str | None = None,
        preamble_cmds: validators.Strings | None = None,
        **settings: Unpack[SettingOptions],
    ) -> None:
        super().__init__(name)
        self.start_dir = start_dir
        self.preamble_cmds = preamble_cmds  # type: ignore[assignment]
        self._experiment: Experiment | None = None
        self._processes: dict[str, Process] = {}
        if settings:
            self.configure(**settings)

    @property
    def experiment(self) -> Experiment | None:
        """The experiment to which the group was added, or None."""
        return self._experiment

    def new_process(self, name: str, **options: Unpack[ProcessOptions]) -> Process:
        """Create a process in the group. The keyword arguments are those of `Process`."""
        process = Process(name, **options)
        self.add_process(process)
        return process

    def add_process(self, process: Process) -> None:
        """Add a process that is not yet in a group or an experiment.

        Raises `SpecError` if the process is already in one, if its name is already used, or if it
        has settings that must be set on the group.
        """
        validators.instance(process, Process, "process")
        if process.group is not None and process.group is not self:
            raise SpecError(f"process {process.name!r} is already in group {process.group.name!r}")
        if process.experiment is not None:
            raise SpecError(
                f"process {process.name!r} is already in experiment {process.experiment.name!r}, "
                "without a group"
            )
        if process.name == self.name:
            raise SpecError(
                f"group {self.name!r} cannot have a process with its own name; names are unique"
            )
        if process.name in self._processes:
            raise SpecError(f"group {self.name!r} already has a process {process.name!r}")
        process._refuse_other_placement(f"the group {self.name!r}", self)
        pod_settings = process._pod_settings()
        if pod_settings:
            is_placed = not {"node_selector", "tolerations"}.isdisjoint(pod_settings)
            hint = ", or give process_group= to the dispatcher that set them" if is_placed else ""
            raise SpecError(
                f"process {process.name!r} has settings that belong to its group: "
                f"{', '.join(pod_settings)}; set them on the group {self.name!r}{hint}"
            )
        if self.experiment is not None:
            self.experiment._refuse_taken_name(process.name)
        self._processes[process.name] = process
        process._group = self

    def add_processes(self, processes: Iterable[Process]) -> None:
        """Add several processes, or none of them if one of them cannot be added."""
        given = validators.instances(processes, Process, "processes")
        add_all(given, self.add_process, self._remove)

    def _remove(self, process: Process) -> None:
        del self._processes[process.name]
        process._group = None

    def get_process(self, name: str) -> Process:
        """Return the member with the given name.

        Raises `NotFound` if the group has no such process. The error message suggests similar
        names.
        """
        check_is_text(name, "process")
        if name not in self._processes:
            hint = did_you_mean(name, self._processes)
            raise NotFound(f"group {self.name!r} has no process {shown(name)}{hint}")
        return self._processes[name]

    def list_processes(self) -> list[Process]:
        """Return the members, in declaration order."""
        return list(self._processes.values())

    def dump(self) -> dict[str, Any]:
        """Return the group without its name, as it is written in an experiment file.

        Raises `SpecError` if the program has changed a value in place so that it is invalid.
        """
        self.check_values()
        options: dict[str, Any] = {}
        if self.start_dir is not None:
            options["start_dir"] = self.start_dir
        if self.preamble_cmds:
            options["preamble_cmds"] = [*self.preamble_cmds]
        members = {process.name: process.dump() for process in self.list_processes()}
        return {**options, **self._settings.dump(), "processes": members}
