"""A plain-data description of one process that a supervisor starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from symphony.errors import BackendError
from symphony.plan.restart_policy import RestartPolicy
from symphony.support.data_classes import dataclass, field, fields, replace
from symphony.support.signal_names import STOP_SIGNALS

# The variables that contain the GPUs of a process: for NVIDIA, and for AMD. Programs for AMD GPUs
# accept both, if they have the same value.
GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
AMD_GPU_VARIABLE = "HIP_VISIBLE_DEVICES"

# The variable that contains the number of threads that OpenMP and libraries such as PyTorch use.
THREADS_VARIABLE = "OMP_NUM_THREADS"

# The variable in which a shell stores its directory, and from which many programs read theirs.
DIRECTORY_VARIABLE = "PWD"
# The number of the job of Slurm that a program belongs to.
SLURM_JOB_VARIABLE = "SLURM_JOB_ID"

DEFAULT_GRACE_SECONDS = 30.0
DEFAULT_STOP_SIGNAL = "TERM"
DEFAULT_LOG_LIMIT_BYTES = 2**30

# JSON has no tuples, so `ProcessSpec.from_dict` converts the lists in these fields back to tuples.
_TUPLE_FIELDS = ("argv", "releases", "connects", "preamble", "stop_command")


def _passed_setting(default: Any, *, accepts: Callable[[Any], bool], is_live: bool) -> Any:
    """Declare a field that contains the value of the setting with the same name, or ``default``.

    ``accepts`` returns whether a value in a record is valid. ``is_live`` is true if the supervisor
    can use a changed value without a restart of the process. All that a launch, a dry run, a change
    and the check of a record do with the setting follows from this declaration.
    """
    return field(default=default, metadata={"accepts": accepts, "is_live": is_live})


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_stop_signal(value: object) -> bool:
    return isinstance(value, str) and value in STOP_SIGNALS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """A description that contains everything needed to start a process.

    * ``env`` overrides variables in the launcher's environment.
    * ``env_secrets`` maps names of environment variables to names of files in the secrets
      directory. Each file contains the value of its variable; see `with_secrets`.
    * ``preamble`` contains the shell lines that ``argv`` runs first. If there are any lines, the
      first element of ``argv`` is the shell. `symphony.supervised.access.exec_command` runs the
      same lines before a command that is started in the environment of the process.
    * ``releases`` contains the ports that this process or its group binds. The supervisor releases
      its holds on these ports, if any, when the process starts.
    * ``ready`` is the readiness test with resolved addresses, for example ``{"tcp": [host,
      port]}``. None means that the process is ready as soon as it is running.
    * ``healthy`` is the health test in the same form, with its ``every``, ``failures`` and
      ``timeout``, or None if there is none.
    * ``ready_timeout`` and ``grace`` are in seconds, and ``log_limit`` is in bytes.
    * ``stop_signal`` is the name of the signal that stops the process, without SIG. If
      ``stop_command`` is not empty, this command stops it instead. With ``signal_group``, the whole
      process group receives the signal.
    * ``restart`` is the restart policy. ``deadline`` is the time in seconds after the first start
      at which the process is stopped and has failed, or None.
    * ``unit`` is the unit of which the process is a rank, or None; see
      `symphony.plan.resolution.ranks`.
    * ``code`` describes the snapshot of the code, or is None: its ``digest``, the ``directory``
      from which the process runs, and the ``source``, which is the same directory if the process
      does not run from a copy.
    * ``configs`` maps the names of configuration files to the digests of their texts.
    * ``tty`` is true if the process runs on a terminal even on backends that otherwise use none.
    """

    name: str
    group: str | None = None
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    env_secrets: dict[str, str] = field(default_factory=dict)
    grace: float = DEFAULT_GRACE_SECONDS
    stop_signal: str = _passed_setting(DEFAULT_STOP_SIGNAL, accepts=_is_stop_signal, is_live=True)
    stop_command: tuple[str, ...] = ()
    signal_group: bool = _passed_setting(False, accepts=_is_flag, is_live=True)
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    deadline: float | None = None
    ready: dict[str, Any] | None = None
    ready_timeout: float = 60.0
    healthy: dict[str, Any] | None = None
    starts_after: dict[str, str] = field(default_factory=dict)
    releases: tuple[int, ...] = ()
    connects: tuple[str, ...] = ()
    gpus: int = 0
    log_limit: int = DEFAULT_LOG_LIMIT_BYTES
    tty: bool = _passed_setting(False, accepts=_is_flag, is_live=False)
    preamble: tuple[str, ...] = ()
    unit: str | None = None
    code: dict[str, str] | None = None
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The path ``group/process``, or ``process`` if the process is in no group."""
        return f"{self.group}/{self.name}" if self.group else self.name

    @property
    def document_path(self) -> tuple[str, ...]:
        """The keys that lead to the process in an experiment file."""
        own_path = ("processes", self.name)
        return own_path if self.group is None else ("processes", self.group, *own_path)

    @property
    def devices(self) -> tuple[str, ...]:
        """The identifiers of the GPUs that the process holds."""
        return devices_of(self.gpus, self.env)

    def to_dict(self) -> dict[str, Any]:
        """Return the description as a dictionary of JSON-serializable values."""
        data = {item: getattr(self, item) for item in self.__slots__}
        return {**data, "restart": self.restart.value()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProcessSpec:
        """Create a description from the output of `to_dict`.

        Raises BackendError if another version of symphony has added a field.
        """
        fields = dict(data)
        unknown = sorted(set(fields).difference(cls.__slots__))
        if unknown:
            raise BackendError(
                f"another version of symphony has described the processes, with the unknown field "
                f"{unknown[0]!r}; use that version, or launch the experiment again with force"
            )
        for name in _TUPLE_FIELDS:
            if name in fields:
                fields[name] = tuple(fields[name])
        fields["restart"] = RestartPolicy.of(fields.get("restart"))
        return cls(**fields)

    def with_secrets(self, directory: Path, newer: Path | None = None) -> ProcessSpec:
        """Return a copy whose ``env`` contains the values of the secrets.

        ``newer`` is a directory with secrets that replace those in ``directory``.
        Use the copy only to start the process, and never write it to a file.
        """
        if not self.env_secrets:
            return self
        values = {
            variable: os.fsdecode(_secret_file(name, directory, newer).read_bytes())
            for variable, name in self.env_secrets.items()
        }
        return replace(self, env={**self.env, **values}, env_secrets={})


# The fields that contain the values of settings unchanged, with their defaults.
PASSED_SETTINGS: dict[str, Any] = {
    item.name: item.default for item in fields(ProcessSpec) if item.metadata
}
LIVE_PASSED_SETTINGS = frozenset(
    item.name for item in fields(ProcessSpec) if item.metadata.get("is_live")
)
PASSED_SETTING_CHECKS: dict[str, Callable[[Any], bool]] = {
    item.name: item.metadata["accepts"] for item in fields(ProcessSpec) if item.metadata
}


def devices_of(gpus: int, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that a process holds, from the values of its description."""
    value = env.get(GPU_VARIABLE, "") if gpus else ""
    return tuple(value.split(",")) if value else ()


def with_devices(spec: ProcessSpec, devices: Sequence[str]) -> ProcessSpec:
    """Return a copy in whose ``env`` only the given GPUs are visible."""
    value = ",".join(devices)
    return replace(spec, env={**spec.env, GPU_VARIABLE: value, AMD_GPU_VARIABLE: value})


def with_thread_limit(
    spec: ProcessSpec, ranks: int, cores: int, environ: Mapping[str, str]
) -> ProcessSpec:
    """Return a copy in whose ``env`` the number of OpenMP threads is a fair share of the cores.

    By default, each rank would use a thread for each core of the machine. If the user has set the
    number, in the description of the process or in ``environ``, it is not changed.
    """
    if any(THREADS_VARIABLE in names for names in (spec.env, spec.env_secrets, environ)):
        return spec
    threads = max(1, cores // ranks)
    return replace(spec, env={**spec.env, THREADS_VARIABLE: str(threads)})


def with_directory_variable(spec: ProcessSpec) -> ProcessSpec:
    """Return a copy in whose ``env`` the variable PWD contains the directory of the process.

    The process would otherwise inherit the directory of the launcher. If the description of the
    process sets the variable, it is not changed.
    """
    if any(DIRECTORY_VARIABLE in names for names in (spec.env, spec.env_secrets)):
        return spec
    return replace(spec, env={**spec.env, DIRECTORY_VARIABLE: directory_value(spec.cwd)})


def directory_value(directory: str) -> str:
    """Return the value of PWD for a directory, which must not contain ``..``; see POSIX."""
    # This is called for each process, and `Path` takes longer.
    parts = directory.split("/")
    return os.path.realpath(directory) if ".." in parts else directory


def _secret_file(name: str, directory: Path, newer: Path | None) -> Path:
    if newer is not None and (newer / name).exists():
        return newer / name
    return directory / name
