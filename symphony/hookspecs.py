"""What a backend's plug-in provides: one hook that returns one record.

A plug-in is a module that a distribution names in its entry-point group ``symphony.backends``, once by the
backend's name and once by each of its aliases::

    [project.entry-points."symphony.backends"]
    slurm = "symphony_slurm.plugin"

The module holds one hook, and imports nothing heavy::

    from symphony.hookspecs import BackendInfo, hookimpl

    @hookimpl
    def symphony_backend() -> BackendInfo:
        return BackendInfo(name="slurm", summary="Jobs on Slurm", load="symphony_slurm.cluster:SlurmCluster")
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
    "logs": "keeps what they print",
    "exec": "runs a command beside a process",
    "login": "attaches a terminal to a process",
    "copy": "moves files to and from a process",
    "forward": "leads a port of this machine to one of a process",
    "external-url": "tells where an exposed service is reached from outside",
    "topology": "tells who is joined with whom in what runs",
    "restart": "restarts processes by policy",
    "gpu": "gives GPUs to processes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of a backend's `Cluster` that the command line takes too, where that backend is chosen.

    ``name`` is the keyword, ``flags`` are what is typed (``("-n", "--namespace")``). A ``switch`` takes no value and
    means True; ``choices`` are the only values, where there are any. ``where`` is for one that says where experiments
    are, which every command on one of them needs, and not only its launch.
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
    """What is known of a backend without loading it.

    ``load`` names its `Cluster` as ``"package.module:Class"``. ``capabilities`` are among `CAPABILITIES`.
    ``options`` are those of its `Cluster` that the command line takes. ``extra`` is the extra of
    symphony-launcher whose packages it needs, if any.

    ``place`` is for a backend that takes long to tell which experiments there are: the name,
    ``"package.module:function"``, of a function that imports nothing heavy. From a mapping of the options it returns
    what JSON can hold, the same as long as these options lead to the same experiments. Completion then offers what
    it heard from there within the last minutes.
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
def symphony_backend() -> BackendInfo:  # type: ignore[empty-body]  # a specification: pluggy never calls it
    """Describe the one backend of this plug-in."""
