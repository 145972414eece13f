"""Build the experiment for ``symphony submit`` from the command's options.

Each ``parse_...`` function parses the value of one option and raises `SpecError` if the value is
invalid. The error messages do not name the option, because argparse adds the name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from symphony.errors import SpecError, SymphonyError
from symphony.model.settings.durations import parse_time_limit, parse_whole_seconds
from symphony.model.settings.quantities import memory_text, parse_quantity, quantity_text
from symphony.support.names import MAX_LENGTH, suggested_name

if TYPE_CHECKING:
    from symphony.model import Experiment, Process

__all__ = [
    "JobRequest",
    "Mount",
    "build_experiment",
    "default_name",
    "ignored_options",
    "message_for_options",
    "numbered_names",
    "parse_cpu",
    "parse_label",
    "parse_memory",
    "parse_mount",
    "parse_replicas",
    "parse_secret",
    "parse_time_limit",
    "parse_toleration",
    "parse_variable",
    "parse_whole_seconds",
]

# The name of the process in the experiment. The experiment is named after the job.
PROCESS_NAME = "main"
# In the command of a job with replicas, this text stands for the number of the replica, as in the
# file of an experiment.
INDEX_REFERENCE = "${index}"

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A volume that is mounted at ``target``.

    ``kind`` is ``host_path``, ``nfs`` or ``pvc``. ``source`` is a path or the name of a
    PersistentVolumeClaim.
    """

    kind: str
    source: str
    target: str
    server: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """The values of the ``submit`` options.

    Amounts are quantities in Kubernetes notation, and times are in seconds. Each field except
    ``command`` is named after an option. None means that an option is not set. For ``gpu`` and
    ``time``, 0 has the same meaning.
    """

    command: tuple[str, ...]
    name: str | None = None
    replicas: int | None = None
    image: str | None = None
    cpu: str | None = None
    memory: str | None = None
    limit_cpu: str | None = None
    limit_memory: str | None = None
    gpu: int | None = None
    shm: str | None = None
    mount: Sequence[Mount] = ()
    env: Sequence[Pair] = ()
    secret: Sequence[Pair] = ()
    workdir: str | None = None
    node_selector: Sequence[Pair] = ()
    toleration: Sequence[Mapping[str, str]] = ()
    time: int | None = None
    retries: int = 0
    grace: int | None = None
    keep: int | None = None


def build_experiment(request: JobRequest) -> Experiment:
    """Return an experiment with one process that runs to completion, or with its replicas.

    Raises `SpecError` if the request is invalid.
    """
    from symphony.model import Experiment

    name = request.name or default_name(request.command)
    experiment = Experiment(name, secrets=_secrets(request.secret))
    if request.replicas is None:
        _add_process(experiment, PROCESS_NAME, request.command, request)
        return experiment
    names = [f"{PROCESS_NAME}-{index}" for index in range(request.replicas)]
    for index, process_name in enumerate(names):
        command = [word.replace(INDEX_REFERENCE, str(index)) for word in request.command]
        _add_process(experiment, process_name, command, request)
    experiment.replicas = {PROCESS_NAME: names}
    return experiment


def _add_process(
    experiment: Experiment, name: str, command: Sequence[str], request: JobRequest
) -> None:
    """Add a process with all settings of the request."""
    process = experiment.new_process(
        name,
        container_image=request.image,
        command=list(command),
        env=dict(request.env),
        start_dir=request.workdir,
    )
    process.job(
        backoff_limit=request.retries, active_deadline=request.time or None, ttl=request.keep
    )
    if request.grace is not None:
        process.termination_grace_period(request.grace)
    _set_resources(process, request)
    for mount in request.mount:
        _add_mount(process, mount)
    if request.shm:
        process.mount_shared_memory(request.shm)
    for key, value in request.node_selector:
        process.node_selector(key, value)
    for toleration in request.toleration:
        process.add_toleration(**toleration)


def _secrets(pairs: Sequence[Pair]) -> dict[str, str] | None:
    """Return a mapping from secret names to file paths, or None if there are no secrets.

    Raises `SpecError` if two files share a secret name.
    """
    paths = dict(pairs)
    for name, path in pairs:
        if paths[name] != path:
            raise SpecError(
                f"two secrets have the name {name!r}: {path} and {paths[name]}; "
                f"rename one of them with --secret NAME={path}"
            )
    return paths or None


def _set_resources(process: Process, request: JobRequest) -> None:
    """Set the resource requests and limits. A CPU or memory limit defaults to the request."""
    _check_limit("cpu", request.cpu, request.limit_cpu)
    _check_limit("memory", request.memory, request.limit_memory)
    process.resource_request(cpu=request.cpu, memory=request.memory)
    process.resource_limit(
        cpu=request.limit_cpu or request.cpu,
        memory=request.limit_memory or request.memory,
        gpu=request.gpu or None,
    )


def _check_limit(option: str, requested: str | None, limit: str | None) -> None:
    if requested and limit and parse_quantity(limit) < parse_quantity(requested):
        raise SpecError(
            f"--limit-{option} {limit} is less than --{option} {requested}; raise the limit or "
            "lower the request"
        )


def _add_mount(process: Process, mount: Mount) -> None:
    if mount.kind == "nfs":
        process.mount_nfs(mount.server, mount.source, mount.target)
    elif mount.kind == "pvc":
        process.mount_pvc(mount.source, mount.target, read_only=mount.read_only)
    else:
        process.mount_host_path(mount.source, mount.target, read_only=mount.read_only)


# --- the default name ---

# Programs that run another program. The job is named after that program.
_INTERPRETERS = re.compile(
    r"(python|pypy)[\d.]*|(ba|da|z)?sh|torchrun|deepspeed|Rscript|julia|node|perl|ruby"
)
# The argument that follows one of these options is source code, not the name of a program.
_SOURCE_CODE_OPTIONS = {"-c", "-e"}


def default_name(command: Sequence[str]) -> str:
    """Return the name for a job without ``--name``: the name of the program that the command runs.

    If the command starts an interpreter, the job is named after the program that the interpreter
    runs. If the command line contains the program's source code or names no program, the job is
    named after the interpreter. Raises `SpecError` if no name can be derived.

    >>> default_name(["python", "-u", "work/train_big.py", "--epochs", "3"])
    'train-big'
    >>> default_name(["/opt/Simulate", "x"])
    'simulate'
    """
    program = _find_program(command)
    name = suggested_name(PurePath(program).stem)
    if not name:
        raise SpecError(f"cannot derive a job name from {program!r}; pass --name")
    return name


def numbered_names(name: str) -> Iterator[str]:
    """Yield ``name``, and then this name with the numbers 2, 3 and so on. A long name is shortened.

    >>> from itertools import islice
    >>> list(islice(numbered_names("train"), 3))
    ['train', 'train-2', 'train-3']
    """
    yield name
    for number in count(2):
        suffix = f"-{number}"
        yield name[: MAX_LENGTH - len(suffix)].rstrip("-") + suffix


def _find_program(command: Sequence[str]) -> str:
    first = command[0]
    if not _INTERPRETERS.fullmatch(PurePath(first).name):
        return first
    for previous, word in pairwise(command):
        if word in _SOURCE_CODE_OPTIONS:
            return first
        if not word.startswith("-"):
            # The option ``-m`` is followed by a dotted module name, whose last part is the most
            # specific name of the program.
            return word.rpartition(".")[2] if previous == "-m" else word
    return first


# --- options that a backend ignores ---

# Maps options to the experiment settings that they control.
_SETTINGS_OF_OPTIONS: dict[str, tuple[str, ...]] = {
    "image": ("container_image",),
    "cpu": ("resource_request.cpu",),
    "memory": ("resource_request.memory",),
    "limit_cpu": ("resource_limit.cpu",),
    "limit_memory": ("resource_limit.memory",),
    "gpu": ("resource_limit.gpu",),
    "shm": ("volumes.shared_memory",),
    "mount": ("volumes.host_path", "volumes.nfs", "volumes.pvc"),
    "node_selector": ("node_selector",),
    "toleration": ("tolerations",),
    "time": ("job.active_deadline",),
    "retries": ("job.backoff_limit",),
    "keep": ("job.ttl",),
}


def ignored_options(request: JobRequest, ignored: Collection[str]) -> list[str]:
    """Return the options that are set in ``request`` and that the backend ignores.

    ``ignored`` contains the settings that the backend's manifest lists as ignored.
    """
    return [
        f"--{option.replace('_', '-')}"
        for option, settings in _SETTINGS_OF_OPTIONS.items()
        if getattr(request, option) and not set(settings).isdisjoint(ignored)
    ]


# --- error messages ---

# Maps suggestions in the library's error messages to suggestions that name options instead of
# methods.
_SUGGESTIONS = {"lower resource_limit(gpu=)": "lower --gpu, or omit it"}
NO_IMAGE_MESSAGE = "a container image is required; add --image IMAGE"


def message_for_options(exc: SymphonyError) -> str:
    """Return the message of ``exc``, with ``submit`` options in place of method names."""
    if isinstance(exc, SpecError) and exc.path[-1:] == ("container_image",):
        return NO_IMAGE_MESSAGE
    text = str(exc)
    for suggestion, replacement in _SUGGESTIONS.items():
        text = text.replace(suggestion, replacement)
    return text


# --- parsing option values ---


def parse_replicas(text: str) -> int:
    """Parse a number of replicas, which must be between 1 and `MAX_REPLICAS`."""
    from symphony.model.settings.value_types import MAX_REPLICAS

    if not text.isdecimal() or not 1 <= int(text[:10]) <= MAX_REPLICAS:
        raise SpecError(
            f"the number of replicas must be between 1 and {MAX_REPLICAS}, not {text!r}"
        )
    return int(text)


def parse_cpu(text: str) -> str:
    """Validate ``text`` as a number of processors, such as ``0.5`` or ``500m``, and return it."""
    return quantity_text(text, "the number of processors")


def parse_memory(text: str) -> str:
    """Validate ``text`` as an amount of memory, with or without a unit, and return it."""
    return memory_text(text, "the amount of memory")


def parse_mount(text: str) -> Mount:
    """Parse ``HOST:TARGET[:ro]``.

    HOST is a path on the node, ``nfs://SERVER/PATH`` or ``pvc://CLAIM``.
    """
    from symphony.model.settings.validators import absolute_path, nonempty_text, one_of

    matched = re.fullmatch(r"(?:(\w*)://)?([^:]*):([^:]*)(?::([^:]*))?", text)
    if matched is None:
        raise SpecError(
            "a mount must be HOST:TARGET or HOST:TARGET:ro, such as /data/images:/data:ro, "
            f"not {text!r}"
        )
    scheme, source, target, mode = matched.groups()
    target = absolute_path(target, f"the target of {text!r}")
    read_only = False
    if mode is not None:
        read_only = one_of(mode, ("ro", "rw"), f"the mode of {text!r}") == "ro"
    if scheme is None:
        directory = absolute_path(source, f"the directory of the node in {text!r}")
        return Mount(kind="host_path", source=directory, target=target, read_only=read_only)
    kind = one_of(scheme, ("nfs", "pvc"), f"the scheme of {text!r}")
    if kind == "pvc":
        claim = nonempty_text(source, f"the claim in {text!r}")
        return Mount(kind=kind, source=claim, target=target, read_only=read_only)
    server, _, directory = source.partition("/")
    if not server or not directory:
        raise SpecError(
            f"{text!r} must name a server and a directory, for example "
            f"nfs://files.example/home/me:{target}"
        )
    if read_only:
        raise SpecError(
            f"{text!r}: nfs:// mounts cannot be read-only; remove ':ro', or mount a claim (pvc://)"
        )
    return Mount(kind=kind, server=server, source=f"/{directory}", target=target)


def parse_variable(text: str, environ: Mapping[str, str]) -> Pair:
    """Parse ``KEY=VALUE``, or ``KEY`` for a variable whose value is copied from ``environ``."""
    from symphony.model.settings.validators import env_pair

    key, equals, value = text.partition("=")
    if not equals:
        if key not in environ:
            raise SpecError(
                f"variable {key!r} is not set in this environment; set its value with {key}=VALUE"
            )
        value = environ[key]
    return env_pair(key, value)


def parse_secret(text: str) -> Pair:
    """Parse ``FILE`` or ``NAME=FILE``. Return the secret's name and the file's path."""
    from symphony.model.settings.validators import files

    name, equals, path = text.partition("=")
    has_name = equals and "/" not in name
    secrets = files({name: path} if has_name else text, "a secret")
    return next(iter(secrets.items()))


def parse_label(text: str) -> Pair:
    """Parse a node label, ``KEY=VALUE``, and return its key and value."""
    from symphony.model.settings.validators import label_pair

    key, equals, value = text.partition("=")
    if not equals:
        raise SpecError(f"a label must be KEY=VALUE, such as gpu=a100, not {text!r}")
    return label_pair(key, value)


def parse_toleration(text: str) -> dict[str, str]:
    """Parse a taint in kubectl notation, ``KEY[=VALUE][:EFFECT]``, and return its toleration."""
    from symphony.model.settings.setting_types import TAINT_EFFECTS
    from symphony.model.settings.validators import label_pair, one_of

    pair, colon, effect = text.partition(":")
    key, equals, value = pair.partition("=")
    key, value = label_pair(key, value)
    toleration = {"key": key, "operator": "Exists"}
    if equals:
        toleration = {"key": key, "operator": "Equal", "value": value}
    if colon:
        toleration["effect"] = one_of(effect, TAINT_EFFECTS, "the effect of a taint")
    return toleration
