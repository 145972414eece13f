"""An experiment: processes and groups, and the services that connect them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.errors import NotFound, SpecError, shown
from symphony.model.document_path import RANKS, REPLICAS
from symphony.model.experiment.component import add_all, attribute_parsers, check_in_place, names_of
from symphony.model.experiment.group import ProcessGroup
from symphony.model.experiment.images import DOCKERFILE, ImageBuild, image_build
from symphony.model.experiment.process import Process
from symphony.model.settings import validators
from symphony.model.settings.experiment_options import CONTINUE, EXPERIMENT_OPTIONS
from symphony.model.settings.value_types import ENV, ENV_FILES, MAX_REPLICAS
from symphony.support.attribute_checks import CheckedAttributes
from symphony.support.names import check_is_text, check_name, did_you_mean

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from symphony.model.document.scaling import Source
    from symphony.model.experiment.given_options import GivenOptions
    from symphony.model.experiment.process import ProcessOptions
    from symphony.model.settings.signatures import SettingOptions

Member = Process | ProcessGroup


def _parse_ends_with(value: object) -> list[str]:
    """Return the names of processes and groups, which can be given as names or as objects."""
    if value is None:
        return []
    names: list[str] = EXPERIMENT_OPTIONS["ends_with"].parse(names_of(value))
    return names


class Experiment(CheckedAttributes):
    """A set of processes that are launched together, described once for all backends.

    ``secrets`` is a path, a list of paths, or ``{name: path}``, and declares the files that every
    process can read. ``port_range`` contains the first and the last port that symphony can assign
    to services without a fixed port. The default range is 7000 to 8999. In every process, the shell
    lines in ``preamble_cmds`` run before those of the process's group and of the process itself.
    The start directory of a group or process is relative to ``start_dir``, unless it is absolute.
    ``code`` is the directory of the code of every process, or a mapping with the keys ``path``,
    ``include``, ``exclude`` and ``sync``; see `Process.code`.
    ``env`` contains environment variables for every process. ``env_file`` is a path or a list of
    paths of files with such variables. When the processes and groups in ``ends_with`` have
    finished, the experiment has finished, and the other processes are stopped. ``on_failure``
    determines what happens to the other processes when a process has failed: ``"continue"`` (the
    default), ``"stop"``, ``"restart"``, or a mapping such as ``{"policy": "restart",
    "max_restarts": 3, "backoff": "30s"}``. ``deadline`` is the time after the launch at which the
    experiment is stopped and has failed. With ``record_usage``, the resource use of each process is
    recorded; None means the configured default. With ``resume``, the experiment is started again
    after a reboot of the machine; see `Cluster.resume_experiments`. ``sbatch_options`` contains
    further options of sbatch for an experiment that runs as a job of Slurm. Relative paths other
    than the start directories of groups and processes are resolved against ``base_dir``. By
    default, this is the
    directory of the file from which the experiment was loaded, or the working directory if there is
    no such file.
    """

    _parsers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **attribute_parsers(
            EXPERIMENT_OPTIONS,
            {
                "secrets": dict,
                "preamble_cmds": list,
                "env": dict,
                "env_file": list,
                "on_failure": lambda: CONTINUE,
                "resume": bool,
                "sbatch_options": list,
            },
        ),
        "ends_with": _parse_ends_with,
    }
    secrets: dict[str, str]
    port_range: tuple[int, int] | None
    preamble_cmds: list[str]
    start_dir: str | None
    code: dict[str, Any] | bool | None
    env: dict[str, str]
    env_file: list[str]
    ends_with: list[str]
    on_failure: str | dict[str, Any]
    deadline: float | None
    record_usage: bool | None
    resume: bool
    sbatch_options: list[str]

    def __init__(
        self,
        name: str,
        *,
        secrets: Any = None,
        port_range: Any = None,
        preamble_cmds: validators.Strings | None = None,
        start_dir: str | None = None,
        code: validators.Code | None = None,
        env: Mapping[str, object] | None = None,
        env_file: validators.Paths | None = None,
        ends_with: validators.Strings | None = None,
        on_failure: str | Mapping[str, Any] | None = None,
        deadline: float | str | None = None,
        record_usage: bool | None = None,
        resume: bool | None = None,
        sbatch_options: validators.Strings | None = None,
    ) -> None:
        self._name = check_name(name, "experiment")
        self.secrets = secrets
        self.port_range = port_range
        self.preamble_cmds = preamble_cmds  # type: ignore[assignment]
        self.start_dir = start_dir
        self.code = code  # type: ignore[assignment]
        self.env = env  # type: ignore[assignment]
        self.env_file = env_file  # type: ignore[assignment]
        self.ends_with = ends_with  # type: ignore[assignment]
        self.on_failure = on_failure  # type: ignore[assignment]
        self.deadline = deadline  # type: ignore[assignment]
        self.record_usage = record_usage
        self.resume = resume  # type: ignore[assignment]
        self.sbatch_options = sbatch_options  # type: ignore[assignment]
        self._base_dir: Path | None = None
        self._file: Path | None = None
        self._replicas: dict[str, list[str]] = {}
        # Maps each process or group with no replicas to its services.
        self._absent_services: dict[str, dict[str, int | None]] = {}
        self._source: Source | None = None
        self._given: GivenOptions | None = None
        self._recorded_code: Mapping[str, Any] = {}
        self._images: dict[str, ImageBuild] = {}
        self._members: dict[str, Member] = {}
        self._groups: dict[str, ProcessGroup] = {}

    @property
    def name(self) -> str:
        """The experiment's name, which is a DNS-1035 label."""
        return self._name

    @property
    def base_dir(self) -> Path | None:
        """The directory against which relative paths are resolved, or None for the working
        directory.
        """
        return self._base_dir

    @base_dir.setter
    def base_dir(self, value: str | Path | None) -> None:
        self._base_dir = None if value is None else validators.path(value, "base_dir")

    @property
    def file(self) -> Path | None:
        """The file from which the experiment was loaded, or None if there is none."""
        return self._file

    @file.setter
    def file(self, value: str | Path | None) -> None:
        self._file = None if value is None else validators.path(value, "file")

    @property
    def replicas(self) -> dict[str, list[str]]:
        """Maps the name of each replicated process or group in the experiment's file to the names
        of its copies. `ends_with` can contain these names.
        """
        return self._replicas

    @replicas.setter
    def replicas(self, value: Mapping[str, list[str]]) -> None:
        replicas = validators.mapping(value, "replicas")
        self._replicas = {
            name: validators.strings(copies, f"the replicas of {shown(name)}")
            for name, copies in replicas.items()
        }

    @property
    def source(self) -> Source | None:
        """The document from which the experiment was loaded, or None if there is none."""
        return self._source

    @source.setter
    def source(self, value: Source | None) -> None:
        self._source = value

    @property
    def given(self) -> GivenOptions:
        """The values of parameters and the policies that the user has given in addition to the
        experiment's file.
        """
        if self._given is None:
            from symphony.model.experiment.given_options import GivenOptions

            self._given = GivenOptions()
        return self._given

    @given.setter
    def given(self, value: GivenOptions) -> None:
        from symphony.model.experiment.given_options import GivenOptions

        self._given = validators.instance(value, GivenOptions, "given")

    @property
    def recorded_code(self) -> Mapping[str, Any]:
        """The archives of the code of a running experiment, by the names of its processes; see
        `symphony.code.snapshot.CodeArchive`.

        These processes keep the recorded code, even if the files in their directories have changed.
        """
        return self._recorded_code

    @recorded_code.setter
    def recorded_code(self, value: Mapping[str, Any]) -> None:
        self._recorded_code = validators.mapping(value, "recorded_code")

    @property
    def services_without_replicas(self) -> tuple[str, ...]:
        """The services that a process or group with ``replicas: 0`` binds or exposes, and that no
        other process serves. Processes can connect to them, and find no addresses.
        """
        served = {
            service
            for component in self.list_components()
            for service in (*component.settings.binds, *component.settings.exposes)
        }
        names = [name for services in self._absent_services.values() for name in services]
        return tuple(name for name in dict.fromkeys(names) if name not in served)

    def _declare_absent(self, name: str, services: validators.ServiceSpec) -> None:
        """Declare the services of a process or group without replicas.

        ``name`` is the name of the process or group in the experiment's file, and ``services`` has
        the same forms as in `Process.binds`.
        """
        check_name(name, "process")
        self._absent_services[name] = validators.services(services, "services")
        self._replicas.setdefault(name, [])

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {len(self.list_all_processes())} processes)"

    # --- environment ---

    def set_env(self, key: str, value: object) -> Self:
        """Set an environment variable for every process."""
        name, content = validators.env_pair(key, value)
        self.env[name] = content
        return self

    def set_envs(self, envs: Mapping[str, object]) -> Self:
        """Set several environment variables for every process."""
        self.env.update(ENV.parse(envs, "env"))
        return self

    def add_env_file(self, path: validators.Paths) -> Self:
        """Set the environment variables in a file, or in several files, for every process.

        ``path`` has the same meaning as in `Process.add_env_file`.
        """
        for file in ENV_FILES.parse(path, "env_file"):
            if file not in self.env_file:
                self.env_file.append(file)
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
        """Declare an image that a launch with ``--build`` builds.

        A process uses the image if its ``container_image`` is ``repository``.
        ``context_directories`` lists the files and directories that ``dockerfile`` can copy, each
        as ``{"name": ..., "path": ..., "force_update": ...}``. `ImageBuild` describes the other
        arguments. A launch without ``--build`` uses the image name unchanged.
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
                f"experiment {self.name!r} already builds the image {image.repository!r}"
            )
        self._images[image.repository] = image
        return self

    def list_images(self) -> list[ImageBuild]:
        """Return the images that the experiment builds, in declaration order."""
        return list(self._images.values())

    # --- construction ---

    def new_process(self, name: str, **options: Unpack[ProcessOptions]) -> Process:
        """Create a process that is in no group, and add it to the experiment.

        The keyword arguments are those of `Process`.
        """
        process = Process(name, **options)
        self.add_process(process)
        return process

    def new_replicas(
        self,
        name: str,
        replicas: int,
        **options: Unpack[ProcessOptions],
    ) -> list[Process]:
        """Create several copies of a process, add them to the experiment, and return them.

        The copies are named ``<name>-0``, ``<name>-1`` and so on. The keyword arguments are those
        of `Process`. Each copy has its own address for each service in ``binds`` and ``exposes``.
        With 0 replicas, processes can connect to the services, and find no addresses.
        """
        check_name(name, "process")
        number = validators.whole_number(replicas, REPLICAS)
        if number > MAX_REPLICAS:
            raise SpecError(f"{REPLICAS} must be at most {MAX_REPLICAS}, not {number}")
        services = {
            **validators.services(options.get("binds") or (), "binds"),
            **validators.services(options.get("exposes") or (), "exposes"),
        }
        copies = [Process(f"{name}-{index}", **options) for index in range(number)]
        self.add_processes(copies)
        for process in copies:
            process.replicates(list(services))
        if not copies:
            self._declare_absent(name, services)
        self._replicas[name] = [process.name for process in copies]
        return copies

    def new_ranks(self, name: str, ranks: int, **options: Unpack[ProcessOptions]) -> list[Process]:
        """Create the ranks of a distributed program, add them to the experiment, and return them.

        The ranks are named ``<name>-0``, ``<name>-1`` and so on. They form the unit ``name``; see
        `Process.rank_of`. The other keyword arguments are those of `Process`.
        """
        if validators.whole_number(ranks, RANKS) == 0:
            raise SpecError("ranks must be at least 1, not 0")
        copies = self.new_replicas(name, ranks, **options)
        for process in copies:
            process.rank_of(name)
        return copies

    def new_process_group(
        self,
        name: str,
        *,
        start_dir: str | None = None,
        preamble_cmds: validators.Strings | None = None,
        **settings: Unpack[SettingOptions],
    ) -> ProcessGroup:
        """Create an empty group and add it to the experiment.

        The keyword arguments are those of `ProcessGroup`.
        """
        group = ProcessGroup(name, start_dir=start_dir, preamble_cmds=preamble_cmds, **settings)
        self.add_process_group(group)
        return group

    def add_process(self, process: Process) -> None:
        """Add a process that does not belong to a group or an experiment yet."""
        validators.instance(process, Process, "process")
        if process.group is not None:
            raise SpecError(
                f"process {process.name!r} is in group {process.group.name!r}; add the group"
            )
        if process.experiment is not None and process.experiment is not self:
            raise SpecError(
                f"process {process.name!r} is already in experiment {process.experiment.name!r}"
            )
        process._refuse_other_placement(f"experiment {self.name!r} without a group")
        self._refuse_taken_name(process.name)
        self._members[process.name] = process
        process._experiment = self

    def add_processes(self, processes: Iterable[Process]) -> None:
        """Add several processes, or none of them if one of them cannot be added."""
        given = validators.instances(processes, Process, "processes")
        add_all(given, self.add_process, self._remove)

    def add_process_group(self, group: ProcessGroup) -> None:
        """Add a group and its members."""
        validators.instance(group, ProcessGroup, "group")
        if group.experiment is not None and group.experiment is not self:
            raise SpecError(
                f"group {group.name!r} is already in experiment {group.experiment.name!r}"
            )
        for name in (group.name, *(process.name for process in group.list_processes())):
            self._refuse_taken_name(name)
        self._members[group.name] = self._groups[group.name] = group
        group._experiment = self

    def add_process_groups(self, groups: Iterable[ProcessGroup]) -> None:
        """Add several groups, or none of them if one of them cannot be added."""
        given = validators.instances(groups, ProcessGroup, "groups")
        add_all(given, self.add_process_group, self._remove)

    def _remove(self, member: Member) -> None:
        """Remove a process that is in no group, or a group."""
        del self._members[member.name]
        self._groups.pop(member.name, None)
        member._experiment = None

    def _refuse_taken_name(self, name: str) -> None:
        """Raise `SpecError` if a process or a group already has the given name. Names are
        unique.
        """
        other = self._members.get(name)
        if other is not None:
            raise SpecError(
                f"experiment {self.name!r} already has a {other.kind} {name!r}; names are unique"
            )
        for group in self._groups.values():
            if name in group._processes:
                raise SpecError(
                    f"experiment {self.name!r} already has a process {name!r}, in group "
                    f"{group.name!r}; names are unique"
                )

    # --- access ---

    def list_members(self) -> list[Member]:
        """Return all groups, and the processes that are in no group, in declaration order."""
        return list(self._members.values())

    def list_components(self) -> list[Process | ProcessGroup]:
        """Return all processes and groups, each group before its members, in declaration order."""
        if not self._groups:
            return list(self._members.values())
        components: list[Process | ProcessGroup] = []
        for member in self._members.values():
            components.append(member)
            if isinstance(member, ProcessGroup):
                components += member.list_processes()
        return components

    def list_processes(self) -> list[Process]:
        """Return the processes that are in no group."""
        return [member for member in self._members.values() if isinstance(member, Process)]

    def list_process_groups(self) -> list[ProcessGroup]:
        """Return the groups."""
        return list(self._groups.values())

    def list_all_processes(self) -> list[Process]:
        """Return all processes, in declaration order."""
        return [component for component in self.list_components() if isinstance(component, Process)]

    def get_process(self, name: str) -> Process:
        """Return the process with the given name, whether or not it is in a group.

        Raises `NotFound` if no process has this name. The error message suggests similar names.
        """
        check_is_text(name, "process")
        processes = {process.name: process for process in self.list_all_processes()}
        if name not in processes:
            hint = did_you_mean(name, processes)
            raise NotFound(f"experiment {self.name!r} has no process {shown(name)}{hint}")
        return processes[name]

    def get_process_group(self, name: str) -> ProcessGroup:
        """Return the group with the given name.

        Raises `NotFound` if no group has this name. The error message suggests similar names.
        """
        check_is_text(name, "group")
        if name not in self._groups:
            hint = did_you_mean(name, self._groups)
            raise NotFound(f"experiment {self.name!r} has no group {shown(name)}{hint}")
        return self._groups[name]

    def subset(self, processes: Sequence[str]) -> Experiment:
        """Return a copy of this experiment with only some of its processes.

        Each element of ``processes`` is the name of a process, ``group/process``, a group, or a
        process or group with a count, such as ``agent`` for ``agent-0`` to ``agent-7``. It can also
        be a pattern, such as ``agent-*``. The copy also contains the processes that the selected
        processes need: those that bind the services that they connect to, and those that they start
        after.

        Raises `NotFound` if an element selects no process, and `SpecError` if ``ends_with`` names a
        process that the copy does not contain.
        """
        from symphony.model.experiment.subset import subset

        return subset(self, validators.strings(processes, "processes"))

    def ends_with_components(self) -> list[str]:
        """Return the names in ``ends_with``, with each replicated process or group of the
        experiment's file replaced by its copies.

        Raises `SpecError` if the program has changed a value in place so that it is invalid.
        """
        self._check_options()
        names: list[str] = []
        for name in self.ends_with:
            names += self.replicas.get(name, [name])
        return list(dict.fromkeys(names))

    # --- files ---

    def dump_dict(self) -> dict[str, Any]:
        """Return the experiment as a dictionary with the keys of an experiment file.

        Raises `SpecError` if the program has changed a value in place so that it is invalid.
        """
        self._check_options()
        options: dict[str, Any] = {
            "name": self.name,
            "secrets": dict(self.secrets),
            "port_range": list(self.port_range or ()),
            "preamble_cmds": [*self.preamble_cmds],
            "start_dir": self.start_dir,
            "code": self.code,
            "env": dict(self.env),
            "env_file": [*self.env_file],
            "ends_with": self.ends_with_components(),
            "on_failure": None if self.on_failure == CONTINUE else self.on_failure,
            "deadline": self.deadline,
            "resume": self.resume,
            "sbatch_options": [*self.sbatch_options],
            "images": {name: image.dump() for name, image in self._images.items()},
        }
        result = {key: value for key, value in options.items() if value}
        if self.record_usage is not None:
            # False overrides the configured default.
            result["record_usage"] = self.record_usage
        result["processes"] = {name: member.dump() for name, member in self._members.items()}
        for name, services in self._absent_services.items():
            if services and name not in self._members:
                result["processes"][name] = {REPLICAS: 0, "binds": dict(services)}
        return result

    def check_values(self) -> None:
        """Raise `SpecError` if the program has changed a value of the experiment, a group or a
        process in place so that it is invalid.

        The message names the group or process, and the value. Values that are set with a method or
        as an attribute are validated immediately.
        """
        self._check_options()
        for component in self.list_components():
            component.check_values()

    def _check_options(self) -> None:
        try:
            check_in_place(self, EXPERIMENT_OPTIONS)
        except SpecError as exc:
            raise SpecError(f"experiment {self.name!r}: {exc}", path=exc.path) from exc

    @classmethod
    def load_dict(
        cls, data: Mapping[str, Any], *, parameters: Mapping[str, object] | None = None
    ) -> Experiment:
        """Return the experiment that ``data`` describes. ``data`` has the keys of an experiment
        file.

        ``parameters`` contains the values of declared parameters. If a parameter is not given, its
        value is taken from the environment. If it is not set there either, its declared default is
        used. Raises `SpecError` for the first error. The exception contains the error's path.
        """
        from symphony.model.document.load import load_experiment

        return load_experiment(cls, data, parameters).experiment_or_error()

    def dump_file(self, path: str | Path) -> None:
        """Write the experiment to a ``.yml``, ``.yaml`` or ``.json`` file."""
        from symphony.model.document.files import write

        write(self.dump_dict(), validators.path(path, "path"))

    @classmethod
    def load_file(
        cls, path: str | Path, *, parameters: Mapping[str, object] | None = None
    ) -> Experiment:
        """Return the experiment that a YAML or JSON file describes.

        ``parameters`` has the same meaning as in `load_dict`. Raises `NotFound` if the file does
        not exist, and `SpecError` for the first error. The error message contains the file name
        and, if known, the line and the column.
        """
        from symphony.model.document.files import load

        return load(cls, validators.path(path, "path"), parameters).experiment_or_error()
