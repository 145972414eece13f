"""An experiment: processes and groups, and the services that join them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.errors import NotFound, SpecError, error_path
from symphony.model import validators
from symphony.model.group import ProcessGroup
from symphony.model.images import DOCKERFILE, ImageBuild, image_build
from symphony.model.process import Process
from symphony.names import check_name, did_you_mean

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from symphony.model.process import ProcessOptions

Member = Process | ProcessGroup


class Experiment:
    """What is launched together, described once for every backend.

    ``secrets`` are files (a path, several, or ``{name: path}``) that every process can read; ``port_range`` is
    the pool from which services without a port of their own get one (both ends in it; 7000 to 8999 unless
    given). ``preamble_cmds`` and ``start_dir`` hold for every process; those of a group and of a process come
    after them. Relative paths of files and folders are relative to ``base_dir``, which is the folder of the
    file that the experiment was read from, or the working directory.
    """

    def __init__(
        self,
        name: str,
        *,
        secrets: Any = None,
        port_range: Any = None,
        preamble_cmds: validators.Strings | None = None,
        start_dir: str | None = None,
        env: Mapping[str, object] | None = None,
    ) -> None:
        self._name = check_name(name, "experiment")
        with error_path("secrets"):
            self.secrets = {} if secrets is None else validators.files(secrets, "secrets")
        with error_path("port_range"):
            self.port_range = None if port_range is None else validators.port_range(port_range)
        with error_path("preamble_cmds"):
            self.preamble_cmds = (
                [] if preamble_cmds is None else validators.lines(preamble_cmds, "preamble_cmds")
            )
        with error_path("start_dir"):
            self.start_dir = None if start_dir is None else validators.path(start_dir, "start_dir")
        self.base_dir = None
        self.env: dict[str, str] = {}
        with error_path("env"):
            self.set_envs({} if env is None else env)
        self._images: dict[str, ImageBuild] = {}
        self._members: dict[str, Member] = {}
        self._groups: dict[str, ProcessGroup] = {}

    @property
    def name(self) -> str:
        """The name, a DNS-1035 label."""
        return self._name

    @property
    def base_dir(self) -> Path | None:
        """Where relative paths begin; the working directory where it is None. It may be set as text too."""
        return self._base_dir

    @base_dir.setter
    def base_dir(self, value: str | Path | None) -> None:
        self._base_dir = None if value is None else Path(validators.path(value, "base_dir"))

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {len(self.list_all_processes())} processes)"

    # --- environment ---

    def set_env(self, key: str, value: object) -> Self:
        """Set an environment variable of every process."""
        name, content = validators.env_pair(key, value)
        self.env[name] = content
        return self

    def set_envs(self, envs: Mapping[str, object]) -> Self:
        """Set several environment variables of every process."""
        for key, value in validators.mapping(envs, "env").items():
            with error_path(key):
                self.set_env(key, value)
        return self

    # --- images ---

    def build_image(
        self,
        repository: str,
        *,
        dockerfile: str | Path = DOCKERFILE,
        context_directories: Iterable[Mapping[str, Any]] = (),
        temp_directory: str | Path | None = None,
        build_options: validators.Strings = (),
    ) -> Self:
        """Declare that the image of ``repository`` is built for this experiment, where a launch is told to build.

        Processes run from it with ``container_image=repository``. ``context_directories`` are the files and folders
        that ``dockerfile`` can copy from, as ``{"name": ..., "path": ..., "force_update": ...}``; see `ImageBuild`
        for the rest. A launch that is not told to build uses the name of the image as it is written.
        """
        image = image_build(
            repository,
            {
                "dockerfile": dockerfile,
                "context_directories": context_directories,
                "temp_directory": temp_directory,
                "build_options": build_options,
            },
        )
        if image.repository in self._images:
            raise SpecError(
                f"experiment {self.name!r} builds the image {image.repository!r} already; it is built once"
            )
        self._images[image.repository] = image
        return self

    def list_images(self) -> list[ImageBuild]:
        """The images that are built for this experiment, in declaration order."""
        return list(self._images.values())

    # --- building ---

    def new_process(self, name: str, **options: Unpack[ProcessOptions]) -> Process:
        """Make a process in no group and add it; the keywords are those of `Process`."""
        process = Process(name, **options)
        self.add_process(process)
        return process

    def new_process_group(
        self,
        name: str,
        *,
        start_dir: str | None = None,
        preamble_cmds: validators.Strings | None = None,
    ) -> ProcessGroup:
        """Make an empty group and add it."""
        group = ProcessGroup(name, start_dir=start_dir, preamble_cmds=preamble_cmds)
        self.add_process_group(group)
        return group

    def add_process(self, process: Process) -> None:
        """Add a process that is in no group and no experiment."""
        if process.group is not None:
            raise SpecError(
                f"process {process.name!r} is in group {process.group.name!r}: add the group"
            )
        if process.experiment is not None and process.experiment is not self:
            raise SpecError(
                f"process {process.name!r} is in experiment {process.experiment.name!r} already"
            )
        process._refuse_unplaced(f"experiment {self.name!r} on its own")
        self._claim(process.name)
        self._members[process.name] = process
        process.experiment = self

    def add_processes(self, processes: Iterable[Process]) -> None:
        """Add several processes."""
        for process in processes:
            self.add_process(process)

    def add_process_group(self, group: ProcessGroup) -> None:
        """Add a group with its members."""
        if group.experiment is not None and group.experiment is not self:
            raise SpecError(
                f"group {group.name!r} is in experiment {group.experiment.name!r} already"
            )
        for name in (group.name, *(process.name for process in group.list_processes())):
            self._claim(name)
        self._members[group.name] = self._groups[group.name] = group
        group.experiment = self

    def add_process_groups(self, groups: Iterable[ProcessGroup]) -> None:
        """Add several groups."""
        for group in groups:
            self.add_process_group(group)

    def _claim(self, name: str) -> None:
        """Refuse a name that is taken: names of processes and groups are unique in an experiment."""
        other = self._members.get(name)
        if other is not None:
            what = "group" if isinstance(other, ProcessGroup) else "process"
            raise SpecError(
                f"experiment {self.name!r} has a {what} {name!r} already; names are unique"
            )
        for group in self._groups.values():
            if name in group._processes:
                raise SpecError(
                    f"experiment {self.name!r} has a process {name!r} already, in group {group.name!r}; "
                    "names are unique across groups"
                )

    # --- looking ---

    def list_members(self) -> list[Member]:
        """Processes in no group, and groups, in declaration order."""
        return list(self._members.values())

    def list_processes(self) -> list[Process]:
        """The processes that are in no group."""
        return [member for member in self._members.values() if isinstance(member, Process)]

    def list_process_groups(self) -> list[ProcessGroup]:
        """The groups."""
        return list(self._groups.values())

    def list_all_processes(self) -> list[Process]:
        """Every process, in declaration order."""
        return [
            process
            for member in self._members.values()
            for process in (
                member.list_processes() if isinstance(member, ProcessGroup) else [member]
            )
        ]

    def get_process(self, name: str) -> Process:
        """The process of that name, in a group or not; `NotFound` with the near miss where there is none."""
        every = {process.name: process for process in self.list_all_processes()}
        if name not in every:
            raise NotFound(
                f"experiment {self.name!r} has no process {name!r}{did_you_mean(name, every)}"
            )
        return every[name]

    def get_process_group(self, name: str) -> ProcessGroup:
        """The group of that name; `NotFound` with the near miss where there is none."""
        groups = {group.name: group for group in self.list_process_groups()}
        if name not in groups:
            raise NotFound(
                f"experiment {self.name!r} has no group {name!r}{did_you_mean(name, groups)}"
            )
        return groups[name]

    # --- files ---

    def dump_dict(self) -> dict[str, Any]:
        """The experiment in its file form: plain dictionaries, lists, text and numbers."""
        own: dict[str, Any] = {
            "name": self.name,
            "secrets": dict(self.secrets),
            "port_range": list(self.port_range) if self.port_range else None,
            "preamble_cmds": [*self.preamble_cmds],
            "start_dir": self.start_dir,
            "env": dict(self.env),
        }
        return {
            **{key: value for key, value in own.items() if value},
            **(
                {"images": {name: image.dump() for name, image in self._images.items()}}
                if self._images
                else {}
            ),
            "processes": {name: member.dump() for name, member in self._members.items()},
        }

    @classmethod
    def load_dict(
        cls, data: Mapping[str, Any], *, parameters: Mapping[str, object] | None = None
    ) -> Experiment:
        """The experiment that `dump_dict` or a file describes; `SpecError` says what is wrong and where.

        ``parameters`` are values for those that it declares, over the environment and its own.
        """
        from symphony.model.load import experiment

        return experiment(data, parameters)

    def dump_file(self, path: str | Path) -> None:
        """Write the experiment to a ``.yml``, ``.yaml`` or ``.json`` file."""
        from symphony.model.files import write

        write(self.dump_dict(), Path(path))

    @classmethod
    def load_file(
        cls, path: str | Path, *, parameters: Mapping[str, object] | None = None
    ) -> Experiment:
        """Read an experiment from a YAML or JSON file; a `SpecError` names file, line and column.

        ``parameters`` are values for those that the file declares, over the environment and the file's own.
        """
        from symphony.model.files import load

        return load(Path(path), parameters)
