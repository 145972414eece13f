"""Rules on how much an environment holds.

* Linux takes an argument or variable (``NAME=value``, with the NUL at its end) of at most 32 pages, 128 KiB, and all
  of them together in a quarter of the stack's limit, 2 MiB of the usual 8 MiB: execve(2), "Limits on size of arguments
  and environment".
* Kubernetes keeps an object in etcd, whose requests hold at most 1.5 MiB unless it is told otherwise:
  https://etcd.io/docs/latest/dev-guide/limit/ (``--max-request-bytes``).

Near a limit is from 80 % of it: the launcher's own variables, and what Kubernetes adds to an object, come on top.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from symphony.errors import SpecError
from symphony.lint.findings import ERROR, WARNING, Finding
from symphony.lint.mending import mended
from symphony.lint.services import place_of
from symphony.lint.texts import texts
from symphony.model.document_path import Place
from symphony.plan.addresses import AddressScheme
from symphony.plan.resolve import argv, resolve

if TYPE_CHECKING:
    from symphony.lint.targets import Target
    from symphony.model import Experiment, Process

STRING = 32 * 4096
ALL = 8 * 1024 * 1024 // 4
OBJECT = 3 * 512 * 1024
NEAR = 0.8
POINTER = 8
SHELL = "/bin/sh"
# What a variable takes in an object's JSON beside its name and value: {"name":"","value":""},
_AROUND = 23


def rules(experiment: Experiment, target: Target) -> Iterator[Finding]:
    """Arguments and variables that are near a limit, of a process and, elsewhere, of the object that it is part of."""
    scheme = AddressScheme(backend=target.name, host=lambda name: name, bind_host="0.0.0.0")
    try:
        plan = resolve(mended(experiment), scheme, target.cluster.defaults)
    except SpecError:  # told by other rules
        return
    described = {process.name: process for process in experiment.list_all_processes()}
    shared = _bytes_of(plan.shared_env)
    shared_in_json = _json_size(plan.shared_env)
    objects: dict[str, int] = {}
    for planned in plan:
        place, words = place_of(described[planned.name]), argv(planned, SHELL)
        yield from _strings(experiment, described[planned.name])
        if planned.cmds is not None:  # one argument, the shell's
            size = max(len(word.encode()) + 1 for word in words)
            yield from _near(size, STRING, "its shell lines", (*place, "cmds"), planned.path)
        total = (
            shared
            + _bytes_of(planned.env)
            + sum(len(word.encode()) + 1 + POINTER for word in words)
        )
        yield from _near(total, ALL, "all of its arguments and environment", place, planned.path)
        unit = planned.group or planned.name
        size = (
            shared_in_json + _json_size(planned.env) + sum(len(json.dumps(word)) for word in words)
        )
        objects[unit] = objects.get(unit, 0) + size
    if target.elsewhere:
        for unit, size in objects.items():
            yield from _near(
                size,
                OBJECT,
                "the object with its arguments and environment",
                ("processes", unit),
                unit,
            )


def _strings(experiment: Experiment, process: Process) -> Iterator[Finding]:
    """Single arguments and variables."""
    for text in texts(experiment, process):
        if text.key == "env":
            size, what = len(f"{text.option}={text.words}".encode()) + 1, f"variable {text.option}"
        elif text.key in ("command", "args"):
            size, what = len(text.words.encode()) + 1, f"element {text.place[-1]} of {text.key}"
        else:
            continue
        yield from _near(size, STRING, what, text.place, process.path)


def _near(size: int, limit: int, what: str, place: Place, path: str) -> Iterator[Finding]:
    if size < NEAR * limit:
        return
    over = size > limit
    yield Finding(
        rule="size",
        level=ERROR if over else WARNING,
        what=f"{what} takes {_kib(size)}, {'more than' if over else 'near'} the {_kib(limit)} that there may be",
        mend="put the bulk into a file, and mount it (mount_config, mount_secret) or name it",
        place=place,
        processes=(path,),
    )


def _kib(size: int) -> str:
    return f"{size / 1024:.0f} KiB"


def _bytes_of(env: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) + 2 + POINTER for key, value in env.items())


def _json_size(env: Mapping[str, str]) -> int:
    return sum(
        len(json.dumps(key)) + len(json.dumps(value)) - 4 + _AROUND for key, value in env.items()
    )
