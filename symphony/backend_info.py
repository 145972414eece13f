"""The description of a backend; see `symphony.hookspecs`."""

from __future__ import annotations

from typing import NamedTuple

PROJECT = "symphony"
GROUP = "symphony.backends"

CAPABILITIES = {
    "launch": "starts processes",
    "stop": "stops an experiment and keeps its logs",
    "control": "stops, starts, restarts and signals single processes",
    "up": "changes an experiment while it is running",
    "code": "runs processes with a snapshot of their code",
    "logs": "keeps the output of processes",
    "runs": "keeps the records of runs whose experiments were deleted or replaced",
    "exec": "runs a command in the environment of a process",
    "login": "attaches a terminal to a process",
    "copy": "copies files to and from a process",
    "forward": "forwards a local port to a process",
    "debug": "forwards a local port to a debugger in a process",
    "external-url": "gives exposed services an external address",
    "usage": "reports the resources that running processes use",
    "topology": "reports the connections of a running experiment",
    "restart": "restarts processes by their restart policy",
    "policies": "applies ends_with, on_failure, deadline and max_restarts",
    "gpu": "assigns GPUs to processes",
    "ranks": "starts, restarts and stops the ranks of a distributed program together",
}


class Option(NamedTuple):
    """An option of a backend's `Cluster` class that is also available on the command line.

    ``name`` is the keyword argument of the class. ``flags`` are the command-line options, such as
    ``("-n", "--namespace")``. A ``switch`` takes no value and sets the keyword argument to True. If
    ``choices`` are given, other values are rejected. ``where`` is true if the option determines
    which experiments the backend finds. symphony then repeats the option in the commands that it
    suggests to the user. ``commands`` contains the commands that have the option; by default, these
    are all commands.
    """

    name: str
    flags: tuple[str, ...]
    help: str
    metavar: str | None = None
    switch: bool = False
    choices: tuple[str, ...] = ()
    where: bool = False
    commands: tuple[str, ...] = ()


# The directory in which the backends that run experiments on machines keep them.
STATE_DIR = Option(
    name="state_dir",
    flags=("--state-dir",),
    metavar="DIRECTORY",
    help="the directory with the experiments of the backend",
)
# The option of the backends that run processes on this machine, in the directory of their code.
SNAPSHOT = Option(
    name="snapshot",
    flags=("--snapshot",),
    switch=True,
    help="run processes with code from a copy, which later edits do not change",
    commands=("launch", "render", "up", "diff", "rerun"),
)


class BackendInfo(NamedTuple):
    """The description of a backend, which is available without loading the backend.

    ``load`` names the backend's `Cluster` class in the form ``"package.module:Class"``.
    ``capabilities`` are keys of `CAPABILITIES`. ``options`` are the options of the class that the
    command line accepts. ``extra`` is the extra of symphony-launcher that installs the required
    packages, if any.

    A backend that takes a long time to list its experiments declares ``place``. ``place`` names a
    function, in the form ``"package.module:function"``, that imports no libraries other than
    symphony. The function takes the options as a mapping and returns a JSON-serializable value. If
    the function returns the same value for two sets of options, they select the same experiments.
    For a short time, shell completion caches the names that were listed for each value.

    A backend that can list its experiments within a few milliseconds, without a request to another
    machine, declares ``experiments``. It names a function in the same form, which takes the name of
    the backend and the configured options as a mapping, and returns the names of the experiments.
    The function must not import libraries other than symphony. Commands then find the experiments
    of this backend if no backend is named.
    """

    name: str
    summary: str
    load: str
    aliases: tuple[str, ...] = ()
    capabilities: frozenset[str] = frozenset()
    options: tuple[Option, ...] = ()
    extra: str | None = None
    place: str | None = None
    experiments: str | None = None
