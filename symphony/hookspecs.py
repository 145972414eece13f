"""The hook that the plug-in for a backend implements.

A plug-in is a module in the entry-point group ``symphony.backends`` of a distribution. The group
contains one entry for the name of the backend, and one for each of its aliases::

    [project.entry-points."symphony.backends"]
    slurm = "symphony_slurm.plugin"

The module implements one hook. The module is imported whenever backends are listed, so it must not
import other libraries::

    from symphony.hookspecs import BackendInfo, hookimpl

    @hookimpl
    def symphony_backend() -> BackendInfo:
        return BackendInfo(
            name="slurm", summary="Jobs on Slurm", load="symphony_slurm.cluster:SlurmCluster"
        )
"""

from __future__ import annotations

from dataclasses import dataclass

import pluggy

PROJECT = "symphony"
GROUP = "symphony.backends"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

CAPABILITIES = {
    "launch": "starts processes",
    "logs": "keeps the output of processes",
    "exec": "runs a command in the environment of a process",
    "login": "attaches a terminal to a process",
    "copy": "copies files to and from a process",
    "forward": "forwards a local port to a process",
    "external-url": "gives exposed services an external address",
    "topology": "reports the connections of a running experiment",
    "restart": "restarts processes by their restart policy",
    "gpu": "assigns GPUs to processes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of the `Cluster` class of a backend that is also available on the command line.

    ``name`` is the keyword argument of the class. ``flags`` are the command-line options, such as
    ``("-n", "--namespace")``. A ``switch`` takes no value and sets the keyword argument to True. If
    ``choices`` are given, other values are rejected. ``where`` is true if the option determines
    which experiments exist. All commands for experiments then accept the option, not only the
    commands that launch.
    """

    name: str
    flags: tuple[str, ...]
    help: str
    metavar: str | None = None
    switch: bool = False
    choices: tuple[str, ...] = ()
    where: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendInfo:
    """The description of a backend, which is available without loading the backend.

    ``load`` is the `Cluster` class of the backend in the form ``"package.module:Class"``.
    ``capabilities`` are keys of `CAPABILITIES`. ``options`` are the options of the class that the
    command line accepts. ``extra`` is the extra of symphony-launcher that installs the required
    packages, if any.

    ``place`` is used by a backend that takes a long time to list its experiments. It is a function
    in the form ``"package.module:function"`` that imports no other libraries. The function takes
    the options as a mapping and returns a value that can be written as JSON. Two sets of options
    with the same value select the same experiments. Shell completion then offers the names that
    were listed for this value in the last minutes.
    """

    name: str
    summary: str
    load: str
    aliases: tuple[str, ...] = ()
    capabilities: frozenset[str] = frozenset()
    options: tuple[Option, ...] = ()
    extra: str | None = None
    place: str | None = None


@hookspec
def symphony_backend() -> BackendInfo:  # type: ignore[empty-body]  # pluggy never calls it
    """Return the description of the backend that this plug-in provides."""
