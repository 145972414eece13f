"""From the words of ``symphony submit`` to an experiment of one process that runs to completion. Pure.

The readers of single options raise `SpecError`; which option it was is the caller's to say.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from symphony.errors import SpecError, SymphonyError
from symphony.names import corrected

if TYPE_CHECKING:
    from symphony.model import Experiment, Process

# What the one process is called: the experiment has the job's name.
PROCESS = "main"

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Something that is mounted at ``target``: ``kind`` is host_path, nfs or pvc, ``source`` a path or a claim."""

    kind: str
    source: str
    target: str
    server: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for. Amounts are as Kubernetes writes them, times in seconds; None and 0 are unset."""

    command: tuple[str, ...]
    name: str | None = None
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


def experiment(request: Request) -> Experiment:
    """The experiment that a launch takes. Raises `SpecError`."""
    from symphony.model import Experiment

    result = Experiment(
        request.name or default_name(request.command), secrets=_secrets(request.secret)
    )
    process = result.new_process(
        PROCESS,
        container_image=request.image,
        command=list(request.command),
        env=dict(request.env),
        start_dir=request.workdir,
    )
    process.job(
        backoff_limit=request.retries, active_deadline=request.time or None, ttl=request.keep
    )
    if request.grace is not None:
        process.termination_grace_period(request.grace)
    _resources(process, request)
    for mount in request.mount:
        _mount(process, mount)
    if request.shm:
        process.mount_shared_memory(request.shm)
    for key, value in request.node_selector:
        process.node_selector(key, value)
    for toleration in request.toleration:
        process.add_toleration(**toleration)  # type: ignore[arg-type]  # it has no seconds
    return result


def _secrets(pairs: Sequence[Pair]) -> dict[str, str] | None:
    found = dict(pairs)
    for name, path in pairs:
        if found[name] != path:
            raise SpecError(
                f"two secrets are named {name!r}: {path} and {found[name]}; name one: --secret NAME={path}"
            )
    return found or None


def _resources(process: Process, request: Request) -> None:
    """Requests and limits; a limit that was not given is what was requested."""
    process.resource_request(cpu=request.cpu, memory=request.memory)
    pairs = {
        "cpu": (request.cpu, request.limit_cpu),
        "memory": (request.memory, request.limit_memory),
    }
    for what, (asked, allowed) in pairs.items():
        if asked and allowed and _number(allowed) < _number(asked):
            raise SpecError(
                f"--limit-{what} {allowed} is less than --{what} {asked}: it may use what it asks for"
            )
    process.resource_limit(
        cpu=request.limit_cpu or request.cpu,
        memory=request.limit_memory or request.memory,
        gpu=request.gpu or None,
    )


def _mount(process: Process, mount: Mount) -> None:
    if mount.kind == "nfs":
        process.mount_nfs(mount.server, mount.source, mount.target)
    elif mount.kind == "pvc":
        process.mount_pvc(mount.source, mount.target, read_only=mount.read_only)
    else:
        process.mount_host_path(mount.source, mount.target, read_only=mount.read_only)


# --- names ---

# Programs that run a program: the name of the job is that of the one they run.
_RUNNERS = re.compile(
    r"(python|pypy)[\d.]*|(ba|da|z)?sh|torchrun|deepspeed|Rscript|julia|node|perl|ruby"
)
# What follows these is a program's text, which is no name.
_TEXT_FOLLOWS = {"-c", "-e"}


def default_name(command: Sequence[str]) -> str:
    """What a job is called whose name was not said: as its program, which may stand after an interpreter.

    >>> default_name(["python", "-u", "work/train_big.py", "--epochs", "3"])
    'train-big'
    >>> default_name(["/opt/Simulate", "x"])
    'simulate'
    """
    program = _program(command)
    name = corrected(PurePath(program).stem)
    if not name:
        raise SpecError(f"no name can be made of {program!r}: give --name")
    return name


def _program(command: Sequence[str]) -> str:
    runner = command[0]
    if _RUNNERS.fullmatch(PurePath(runner).name):
        for before, word in pairwise(command):
            if word in _TEXT_FOLLOWS:
                break
            if not word.startswith("-"):
                return word.rpartition(".")[2] if before == "-m" else word
    return runner


# --- what a backend leaves out ---

_SETTINGS: dict[str, tuple[str, ...]] = {
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
    "time": ("job",),
    "retries": ("job",),
    "keep": ("job",),
}


def ignored_options(request: Request, ignored: Collection[str]) -> list[str]:
    """The options that were given and that a backend ignores, from the ``ignored`` settings of its manifest."""
    return [
        f"--{name.replace('_', '-')}"
        for name, settings in _SETTINGS.items()
        if getattr(request, name) and not set(settings).isdisjoint(ignored)
    ]


# --- what the library calls the options ---

_CALLS = {"lower resource_limit(gpu=)": "lower --gpu, or leave it out"}
NO_IMAGE = "a container runs from an image, and none is given: add --image IMAGE"


def in_own_words(exc: SymphonyError) -> str:
    """What an error says, to somebody who has seen these options and no description."""
    if isinstance(exc, SpecError) and exc.path[-1:] == ("container_image",):
        return NO_IMAGE
    said = str(exc)
    for call, option in _CALLS.items():
        said = said.replace(call, option)
    return said


# --- reading options ---

_LONGEST = 2**31 - 1
_UNITS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def time_limit(text: str) -> int:
    """A time as Slurm writes it, or with units (``90s``, ``1h30m``), in seconds; 0 is no limit.

    After sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes and
    days-hours:minutes:seconds.

    >>> time_limit("30"), time_limit("30:00"), time_limit("1-12"), time_limit("90s")
    (1800, 1800, 129600, 90)
    """
    matched = re.fullmatch(r"(?:(\d+)-)?(\d+(?::\d+){0,2})", text, re.ASCII)
    total = _with_units(text) if matched is None else _slurm_time(text, matched[1], matched[2])
    if total > _LONGEST:
        raise SpecError(f"{text!r} is longer than a job can be given")
    return total


def _slurm_time(text: str, days: str | None, rest: str) -> int:
    fields = [int(field) for field in rest.split(":")]
    highest = [_LONGEST if days is None else 23, 59, 59]
    if any(field > limit for field, limit in zip(fields, highest, strict=False)):
        raise SpecError(
            f"{text!r} is no time: minutes and seconds after ':' go up to 59, hours after '-' up to 23"
        )
    if days is None and len(fields) < 3:
        fields.insert(0, 0)  # without days and hours, the first are minutes
    hours, minutes, seconds = [*fields, 0, 0][:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _with_units(text: str) -> int:
    try:
        if text[-1:].isalpha():
            return whole_seconds(text)
    except SpecError:
        pass
    raise SpecError(
        f"a time is minutes, M:SS, H:MM:SS, D-HH or D-HH:MM:SS, or 90s, 5m, 2h, not {text!r}"
    )


def whole_seconds(text: str) -> int:
    """A number of seconds or a duration such as ``5m``, in seconds, rounded up."""
    from symphony.commandline.parsing.arguments import parse_seconds

    try:
        return min(math.ceil(parse_seconds(text)), _LONGEST)
    except argparse.ArgumentTypeError as exc:
        raise SpecError(str(exc)) from None


def cores(text: str) -> str:
    """An amount of processors: ``2``, ``0.5``, ``500m``."""
    from symphony.model.validators import quantity

    return quantity(text, "cpu")


def memory(text: str) -> str:
    """An amount of memory in bytes or with a unit; one that no program fits in is a unit forgotten."""
    from symphony.model.validators import quantity

    found = quantity(text, "an amount of memory")
    if _number(found) < 1_000_000:
        digits = re.match(r"[\d.]+", found)
        number = digits.group() if digits else "512"
        raise SpecError(
            f"{text!r} is less than a megabyte, since without a unit it is bytes; for example '{number}Mi'"
        )
    return found


def _number(quantity: str) -> Decimal:
    """What a quantity amounts to, to compare it with others."""
    matched = re.fullmatch(r"([\d.]+)(?:([eE][-+]?\d+)|(m)|([kKMGTPE]?)(i?))", quantity)
    if matched is None:
        raise SpecError(f"{quantity!r} is no amount")
    digits, exponent, milli, unit, binary = matched.groups(default="")
    if exponent or milli:
        return Decimal(f"{digits}{exponent or 'e-3'}")
    base = Decimal(1024 if binary else 1000)
    return Decimal(digits) * base ** _UNITS[unit]


def mount(text: str) -> Mount:
    """``HOST:TARGET[:ro]``, where HOST is a path of the node, ``nfs://SERVER/PATH`` or ``pvc://CLAIM``."""
    from symphony.model.validators import absolute, one_of, path

    matched = re.fullmatch(r"(?:(\w*)://)?([^:]*):([^:]*)(?::([^:]*))?", text)
    if matched is None:
        raise SpecError(
            f"a mount is HOST:TARGET or HOST:TARGET:ro, such as /data/images:/data:ro, not {text!r}"
        )
    scheme, source, target, mode = matched.groups()
    target = absolute(target, f"where {text!r} is mounted")
    read_only = mode is not None and one_of(mode, ("ro", "rw"), f"the end of {text!r}") == "ro"
    if scheme is None:
        source = absolute(source, f"the folder of the machine in {text!r}")
        return Mount(kind="host_path", source=source, target=target, read_only=read_only)
    kind = one_of(scheme, ("nfs", "pvc"), f"the beginning of {text!r}")
    if kind == "pvc":
        claim = path(source, f"the claim in {text!r}")
        return Mount(kind=kind, source=claim, target=target, read_only=read_only)
    server, _, folder = source.partition("/")
    if not server or not folder:
        raise SpecError(
            f"{text!r} names no folder of a server; for example nfs://files.example/home/me:{target}"
        )
    if read_only:
        raise SpecError(
            f"{text!r}: what nfs:// mounts can be written to; leave ':ro' out, or mount a claim (pvc://)"
        )
    return Mount(kind=kind, server=server, source=f"/{folder}", target=target)


def variable(text: str, environ: Mapping[str, str]) -> Pair:
    """``KEY=VALUE``, or ``KEY`` with its value in ``environ``."""
    from symphony.model.validators import env_pair

    key, equals, value = text.partition("=")
    if not equals:
        if key not in environ:
            raise SpecError(
                f"variable {key!r} is not set here, and has no value to take over; write {key}=VALUE"
            )
        value = environ[key]
    return env_pair(key, value)


def secret(text: str) -> Pair:
    """``FILE``, or ``NAME=FILE``: the name that a file gets, and where it is."""
    from symphony.model.validators import files

    name, equals, path = text.partition("=")
    named = equals and "/" not in name
    ((name, path),) = files({name: path} if named else text, "a secret").items()
    return name, path


def label(text: str) -> Pair:
    """``KEY=VALUE`` of a label that nodes have."""
    from symphony.model.validators import label_pair

    key, equals, value = text.partition("=")
    if not equals:
        raise SpecError(f"a label is KEY=VALUE, such as gpu=a100, not {text!r}")
    return label_pair(key, value)


def toleration(text: str) -> dict[str, str]:
    """``KEY[=VALUE][:EFFECT]``, as kubectl writes taints."""
    from symphony.model.component import TAINT_EFFECTS
    from symphony.model.validators import label_pair, one_of

    pair, colon, effect = text.partition(":")
    key, equals, value = pair.partition("=")
    key, value = label_pair(key, value)
    found = (
        {"key": key, "operator": "Equal", "value": value}
        if equals
        else {"key": key, "operator": "Exists"}
    )
    if colon:
        found["effect"] = one_of(effect, TAINT_EFFECTS, "the effect of a taint")
    return found
