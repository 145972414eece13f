"""How an experiment is to be: the YAML file that says so, and what the command line puts over it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from symphony import SpecError

# The processes that are there once, all in the group NONAGENT, and those of which there are many.
SERVERS = ("learner", "replay", "ps", "curriculum", "logger", "recorder", "page")
ROLES = (*SERVERS, "agent", "evaluator")
NONAGENT = "nonagent"
PODS = (NONAGENT, "agent", "evaluator")


@dataclass(frozen=True, kw_only=True)
class Run:
    """What the programs are told; `roles.options.Options` says what each means."""

    updates: int = 1000
    target: float | None = None
    forever: bool = False
    pace: float = 0.0
    patience: float = 60.0
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Build:
    """How the image is built: a Dockerfile, what it begins with, and further words for the engine's ``build``."""

    dockerfile: str = "Dockerfile"
    base: str | None = None
    options: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Results:
    """Where checkpoints and results stay: ``folder``, as the programs see it.

    In a cluster a folder of an NFS server (``server:/path``) is mounted there, or a folder of the node.
    """

    folder: str | None = None
    nfs: str | None = None
    host_path: str | None = None


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """What the dispatcher knows of the nodes: a description by Terraform, or a label of the nodes that there are."""

    terraform: str | None = None
    label: str | None = None


@dataclass(frozen=True, kw_only=True)
class Role:
    """What each process of a role needs: the keywords of `resource_request`, `resource_limit` and `assign_to`."""

    image: str | None = None
    request: dict[str, Any] = field(default_factory=dict)
    limit: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    assign: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Pod:
    """Where the Pods of a kind run: labels that the node has to have, and taints that they bear."""

    node_selector: dict[str, Any] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The whole experiment. ``agents`` run alone, or where ``group_size`` is above 1 in groups of that many.

    ``image`` is what all roles run from that name none; with ``build`` it is the repository that is built and pushed.
    """

    agents: int = 8
    group_size: int = 1
    evaluators: int = 2
    image: str | None = None
    page_port: int | None = None
    run: Run = field(default_factory=Run)
    build: Build | None = None
    results: Results = field(default_factory=Results)
    nodes: Nodes | None = None
    roles: dict[str, Role] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("agents", 1), ("group_size", 1), ("evaluators", 0)):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise SpecError(f"{name} is a whole number of at least {least}, not {number!r}")
        if self.results.nfs is not None and self.results.host_path is not None:
            raise SpecError("results come from nfs or host_path, not from both: take one away")
        if self.results.nfs is not None and ":/" not in self.results.nfs:
            raise SpecError(f"nfs is SERVER:/PATH, not {self.results.nfs!r}")
        if self.build is not None and self.image is None:
            raise SpecError("build says how the image is made, and image, the repository to push it to, is missing")

    def role(self, name: str) -> Role:
        """What a role needs."""
        return self.roles.get(name, Role())

    def pod(self, name: str) -> Pod:
        """Where the Pods of a kind run."""
        return self.pods.get(name, Pod())


def load(path: Path, over: Mapping[str, Any] | None = None) -> Configuration:
    """Read a configuration. ``over`` is put over it, mapping by mapping; what is None there counts as absent.

    Raises `SpecError`, which names the file and the setting.
    """
    try:
        content = yaml.safe_load(path.read_text()) or {}
    except OSError as exc:
        raise SpecError(f"{path}: cannot be read: {exc.strerror}") from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise SpecError(f"{path}: not YAML: {' '.join(str(exc).split())}") from exc
    try:
        merged = _over(_mapping(content, "the file"), over or {})
        if isinstance(merged.get("nodes"), dict) and merged["nodes"].get("terraform"):
            merged["nodes"]["terraform"] = str(path.parent / merged["nodes"]["terraform"])
        return _configuration(merged)
    except SpecError as exc:
        raise SpecError(f"{path}: {exc}") from exc


def _configuration(given: Mapping[str, Any]) -> Configuration:
    _refuse_unknown(given, [item.name for item in dataclasses.fields(Configuration)], "the file")
    parts: dict[str, Any] = {"run": Run, "build": Build, "results": Results, "nodes": Nodes}
    found = {key: value for key, value in given.items() if value is not None}
    for key in parts.keys() & found.keys():
        found[key] = _record(parts[key], found[key], key)
    for key, kind, known in (("roles", Role, ROLES), ("pods", Pod, PODS)):
        members = _mapping(found.get(key, {}), key)
        _refuse_unknown(members, known, key)
        found[key] = {name: _record(kind, value, f"{key}.{name}") for name, value in members.items()}
    return Configuration(**found)


def _record(kind: Any, given: object, where: str) -> Any:
    settings = _mapping(given, where)
    _refuse_unknown(settings, [item.name for item in dataclasses.fields(kind)], where)
    return kind(**{key: value for key, value in settings.items() if value is not None})


def _mapping(given: object, where: str) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise SpecError(f"{where} is a mapping of settings, not {given!r}")
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
