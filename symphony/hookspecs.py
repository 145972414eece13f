"""The hook that the plug-in of a backend implements.

A plug-in is a module in the entry-point group ``symphony.backends`` of a distribution. There is one
entry for the name of the backend, and one for each of its aliases::

    [project.entry-points."symphony.backends"]
    slurm = "symphony_slurm.plugin"

The module implements one hook. It is imported whenever backends are listed, so it must not import
other libraries::

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
    """An option of a backend's `Cluster` that is also an option of the command line.

    ``name`` is the keyword of the class. ``flags`` are the options of the command line, such as
    ``("-n", "--namespace")``. A ``switch`` takes no value and sets the keyword to True. If there
    are ``choices``, other values are refused. ``where`` is true if the option decides which
    experiments there are: all commands for experiments then take it, and not only a launch.
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

    ``load`` is its `Cluster` class in the form ``"package.module:Class"``. ``capabilities`` are
    keys of `CAPABILITIES`. ``options`` are the options of the class that the command line takes.
    ``extra`` is the extra of symphony-launcher that installs the packages it needs, if any.

    ``place`` is for a backend that needs time to list its experiments: a function in the form
    ``"package.module:function"`` that imports no other libraries. It takes the options as a mapping
    and returns a value that can be written as JSON. Two sets of options with the same value select
    the same experiments. Shell completion then offers the names of the last minutes for that value.
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
    """Return the description of the backend of this plug-in."""
