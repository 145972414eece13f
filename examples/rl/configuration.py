"""Read the experiment's configuration from a YAML file and from command-line options, which
override the file.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from symphony import Experiment, NotFound, SpecError

# SERVERS are the processes in the group SERVER_GROUP. The learner runs alone, so that it can be
# restarted while the servers and the agents continue.
SERVERS = ("replay", "ps", "curriculum", "logger", "recorder", "page")
ROLES = ("learner", *SERVERS, "agent", "evaluator")
SERVER_GROUP = "servers"
PODS = ("learner", SERVER_GROUP, "agent", "evaluator")
# The directory at which `code` is mounted.
CODE_FOLDER = "/code"


def at_least(least: float, default: Any) -> Any:
    """Return a dataclass field for a number that must be at least ``least``."""
    return field(default=default, metadata={"least": least})


@dataclass(frozen=True, kw_only=True)
class Run:
    """The settings for the programs; see `roles.options.Options` for their meaning."""

    updates: int = at_least(1, 1000)
    target: float | None = None
    forever: bool = False
    pace: float = at_least(0, 0.0)
    patience: float = at_least(0.1, 60.0)
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Build:
    """The settings for building the image: the Dockerfile, its base image, and additional options
    for the engine's ``build`` command.
    """

    dockerfile: str = "Dockerfile"
    base: str | None = None
    options: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Results:
    """The location of checkpoints and results. ``folder`` is the path of the directory in the
    programs' file system.

    On a cluster, a directory on an NFS server (``nfs``, as ``server:/path``) or on the node
    (``host_path``) can be mounted at ``folder``.
    """

    folder: str | None = None
    nfs: str | None = None
    host_path: str | None = None

    def __post_init__(self) -> None:
        if self.nfs is not None and self.host_path is not None:
            raise SpecError("results come from nfs or host_path, not from both: remove one of them")
        if self.nfs is not None and ":/" not in self.nfs:
            raise SpecError(f"nfs must be SERVER:/PATH, not {self.nfs!r}")
        source = "nfs" if self.nfs is not None else "host_path"
        if self.folder is None and getattr(self, source) is not None:
            raise SpecError(
                f"results.{source} is set, but results.folder, its mount path, is not: "
                "add results.folder or --results FOLDER, for example /results"
            )


@dataclass(frozen=True, kw_only=True)
class Code:
    """The directory with the package ``roles`` that containers mount and use instead of the code in
    the image: a directory on an NFS server (``nfs``, as ``server:/path``) or on the node
    (``host_path``).
    """

    nfs: str | None = None
    host_path: str | None = None

    def __post_init__(self) -> None:
        if (self.nfs is None) == (self.host_path is None):
            raise SpecError("code comes from nfs or host_path: set one of them")


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """The source of the dispatcher's information about nodes: the path of a Terraform description
    (``terraform``), or the cluster, whose nodes are divided into pools by the label ``label``.
    """

    terraform: str | None = None
    label: str | None = None


@dataclass(frozen=True, kw_only=True)
class Role:
    """The settings for each process in a role: its image, its environment variables, and keyword
    arguments for `resource_request`, `resource_limit` and `assign_to`.
    """

    image: str | None = None
    request: dict[str, Any] = field(default_factory=dict)
    limit: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    assign: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Pod:
    """The nodes on which one kind of Pod can run: the labels that a node must have, and the Pod's
    tolerations.
    """

    node_selector: dict[str, Any] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The configuration of the whole experiment. Each agent runs alone, or in a group if
    ``group_size`` is greater than 1.

    ``image`` is used for all roles without an image of their own. If ``build`` is set, ``image`` is
    the repository to which the built image is pushed.
    """

    agents: int = at_least(1, 8)
    group_size: int = at_least(1, 1)
    evaluators: int = at_least(0, 2)
    image: str | None = None
    page_port: int | None = None
    run: Run = field(default_factory=Run)
    build: Build | None = None
    results: Results = field(default_factory=Results)
    code: Code | None = None
    nodes: Nodes | None = None
    roles: dict[str, Role] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.build is not None and self.image is None:
            raise SpecError(
                "build is set but image, the repository to push to, is missing: "
                "add image: or --repository IMAGE"
            )

    def role(self, name: str) -> Role:
        """Return the settings for the role ``name``."""
        return self.roles.get(name, Role())

    def pod(self, name: str) -> Pod:
        """Return the settings for Pods of the kind ``name``."""
        return self.pods.get(name, Pod())


def load(path: Path, over: Mapping[str, Any] | None = None) -> Configuration:
    """Read the configuration file ``path``. The values in ``over`` override those in the file,
    except for values that are None.

    Raises `SpecError` if the configuration is invalid. The message names the setting, and also the
    file if the error is in the file.
    """
    try:
        content = yaml.safe_load(path.read_text()) or {}
    except OSError as exc:
        raise SpecError(f"{path}: cannot be read: {exc.strerror}") from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise SpecError(f"{path}: not YAML: {' '.join(str(exc).split())}") from exc
    with prefixed(f"{path}: "):
        alone = _mapping(content, "the file")
        merged = _over(alone, over or {})
    try:
        found = _configuration(merged)
    except SpecError:
        with prefixed(f"{path}: "):
            # Check the file without the options. If the file itself is invalid, its error replaces
            # the first error and names the file as the source of the problem.
            _configuration(alone)
        raise
    if found.nodes is None or found.nodes.terraform is None:
        return found
    nodes = dataclasses.replace(found.nodes, terraform=str(path.parent / found.nodes.terraform))
    return dataclasses.replace(found, nodes=nodes)


@contextlib.contextmanager
def prefixed(where: str) -> Iterator[None]:
    """Convert a `SpecError` or `NotFound` to a `SpecError` whose message begins with ``where``."""
    try:
        yield
    except (SpecError, NotFound) as exc:
        raise SpecError(f"{where}{exc}") from exc


def _configuration(given: Mapping[str, Any]) -> Configuration:
    for key, known in (("roles", ROLES), ("pods", PODS)):
        _refuse_unknown(_mapping(given.get(key), key), known, key)
    found: Configuration = _record(Configuration, given, "")
    if found.page_port is not None:
        _check("page_port", {"exposes": {"page": found.page_port}})
    for name, role in found.roles.items():
        settings = {"resource_request": role.request, "resource_limit": role.limit, "env": role.env}
        _check(f"roles.{name}", {**settings, "container_image": role.image})
    for name, pod in found.pods.items():
        _check(f"pods.{name}", {"node_selector": pod.node_selector, "tolerations": pod.tolerations})
    return found


def _check(where: str, settings: Mapping[str, Any]) -> None:
    """Raise `SpecError` if symphony would reject the settings for a process."""
    process = {key: value for key, value in settings.items() if value is not None}
    with prefixed(f"{where}: "):
        Experiment.load_dict({"name": "rl", "processes": {"one": process}})


# --- values, checked against the annotations ---


def _record(kind: Any, given: object, where: str) -> Any:
    settings = _mapping(given, where or "the file")
    fields = {item.name: item for item in dataclasses.fields(kind)}
    _refuse_unknown(settings, fields, where or "the file")
    hints = typing.get_type_hints(kind)
    found = {}
    for key, value in settings.items():
        if value is not None:
            least = fields[key].metadata.get("least")
            found[key] = _value(hints[key], value, f"{where}.{key}" if where else key, least)
    return kind(**found)


def _value(hint: Any, given: Any, where: str, least: float | None = None) -> Any:
    """Validate ``given`` as a value of the type ``hint``, and return it."""
    # If the type allows None, the value is still not None here, because `_record` omits None.
    if isinstance(hint, types.UnionType):
        (hint,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
    if dataclasses.is_dataclass(hint):
        return _record(hint, given, where)
    if typing.get_origin(hint) is dict:
        values = typing.get_args(hint)[1]
        return {
            key: _value(values, value, f"{where}.{key}")
            for key, value in _mapping(given, where).items()
        }
    if typing.get_origin(hint) is list:
        if not isinstance(given, list):
            raise SpecError(f"{where} must be a list, not {given!r}")
        return [
            _value(typing.get_args(hint)[0], value, f"{where}[{n}]")
            for n, value in enumerate(given)
        ]
    return given if hint is Any else _scalar(hint, given, where, least)


def _scalar(kind: type, given: Any, where: str, least: float | None) -> Any:
    accepted = (int, float) if kind is float else kind
    fits = isinstance(given, accepted) and (kind is bool or not isinstance(given, bool))
    if fits and kind in (int, float):
        fits = math.isfinite(given) and (least is None or given >= least)
    if not fits:
        bound = "" if least is None else f" of at least {least}"
        raise SpecError(f"{where} must be {_KINDS[kind]}{bound}, not {given!r}")
    return given


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _mapping(given: object, where: str) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise SpecError(f"{where} must be a mapping of settings, not {given!r}")
    return given


def _refuse_unknown(given: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in given:
        if key not in known:
            raise SpecError(f"{where} has no setting {key!r}; there are {', '.join(known)}")


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = copy.deepcopy(dict(below))
    for key, value in above.items():
        if isinstance(value, Mapping):
            merged = _over(_mapping(result.get(key), key), value)
            if merged:
                result[key] = merged
        elif value is not None:
            result[key] = value
    return result
