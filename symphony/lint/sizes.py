"""Rules about the sizes of arguments and environments.

* On Linux, the size of an argument or an environment variable (``NAME=value`` with a terminating
  NUL) is limited to 32 pages, or 128 KiB. The total size of all arguments and variables is limited
  to a quarter of the stack limit, or 2 MiB for the usual stack limit of 8 MiB. See execve(2),
  "Limits on size of arguments and environment".
* Kubernetes stores objects in etcd, which limits requests to 1.5 MiB by default. See
  ``--max-request-bytes`` in https://etcd.io/docs/latest/dev-guide/limit/.

Warnings begin at 80% of a limit, because the launcher adds variables of its own, and Kubernetes
adds fields to each object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from symphony.errors import SpecError
from symphony.lint.repaired_copies import repaired
from symphony.lint.texts import texts
from symphony.plan.findings import ERROR, WARNING, Finding
from symphony.plan.resolution.addresses import AddressScheme
from symphony.plan.resolve import resolve
from symphony.plan.shell import argv

if TYPE_CHECKING:
    from symphony.lint.targets import Target
    from symphony.model import Experiment, Process
    from symphony.model.document_path import DocumentPath

MAX_STRING_BYTES = 32 * 4096
MAX_TOTAL_BYTES = 8 * 1024 * 1024 // 4
MAX_OBJECT_BYTES = 3 * 512 * 1024
WARNING_FRACTION = 0.8
POINTER_BYTES = 8
SHELL = "/bin/sh"
# The number of characters that JSON adds to a variable's name and value, including a comma:
# {"name":"","value":""},
_JSON_BYTES_PER_VARIABLE = 23


def rules(experiment: Experiment, valid: Experiment, target: Target) -> Iterator[Finding]:
    """Yield a finding for each argument, variable or total size that is near or above a limit.

    The limits apply to each process and, on a remote backend, to the object that contains the
    process. ``valid`` is the result of `without_reported_errors`.
    """
    scheme = AddressScheme(backend=target.name, host=lambda name: name, bind_host="0.0.0.0")
    try:
        plan = resolve(repaired(valid), scheme, target.cluster.defaults)
    except SpecError:
        # Other rules report the error in the experiment.
        return
    processes = {process.name: process for process in experiment.list_all_processes()}
    shared_bytes = _env_bytes(plan.shared_env)
    object_bytes: dict[str, int] = {}
    for planned in plan:
        process = processes[planned.name]
        words = argv(planned, SHELL)
        yield from _large_strings(experiment, process)
        if planned.cmds is not None:
            # The shell receives all lines as one argument.
            path = (*process.document_path, "cmds")
            longest = max(len(word.encode()) + 1 for word in words)
            yield from _near_limit(
                longest, MAX_STRING_BYTES, "the shell lines take", path, planned.path
            )
        total = shared_bytes + _env_bytes(planned.env) + _argument_bytes(words)
        yield from _near_limit(
            total,
            MAX_TOTAL_BYTES,
            "all arguments and variables take",
            process.document_path,
            planned.path,
        )
        unit = planned.group or planned.name
        # On Kubernetes, the variables of all processes are in an object of their own if they are
        # large.
        size = _env_json_bytes(planned.env)
        size += sum(len(json.dumps(word)) for word in words)
        object_bytes[unit] = object_bytes.get(unit, 0) + size
    if target.is_remote:
        for unit, size in object_bytes.items():
            yield from _near_limit(
                size,
                MAX_OBJECT_BYTES,
                "the object with its arguments and variables takes",
                ("processes", unit),
                unit,
            )


def _large_strings(experiment: Experiment, process: Process) -> Iterator[Finding]:
    for text in texts(experiment, process):
        if text.key == "env":
            size = len(f"{text.option}={text.content}".encode()) + 1
            subject = f"variable {text.option} takes"
        elif text.key in ("command", "args"):
            size = len(text.content.encode()) + 1
            subject = f"element {text.path[-1]} of {text.key} takes"
        else:
            continue
        yield from _near_limit(size, MAX_STRING_BYTES, subject, text.path, process.path)


def _near_limit(
    size: int, limit: int, subject: str, path: DocumentPath, process: str
) -> Iterator[Finding]:
    if size < WARNING_FRACTION * limit:
        return
    if size > limit:
        level, relation = ERROR, "more than"
    else:
        level, relation = WARNING, "close to"
    yield Finding(
        rule="size",
        level=level,
        problem=f"{subject} {_kibibytes(size)}, {relation} the limit of {_kibibytes(limit)}",
        hint="move large values to a file, and mount it (mount_config, mount_secret)",
        path=path,
        processes=(process,),
    )


def _kibibytes(size: int) -> str:
    return f"{size / 1024:.0f} KiB"


def _argument_bytes(words: Iterable[str]) -> int:
    return sum(len(word.encode()) + 1 + POINTER_BYTES for word in words)


def _env_bytes(env: Mapping[str, str]) -> int:
    """Return the number of bytes that environment variables occupy in memory.

    Each variable needs an equals sign, a NUL and a pointer in addition to its name and value.
    """
    return sum(
        len(name.encode()) + len(value.encode()) + 2 + POINTER_BYTES for name, value in env.items()
    )


def _env_json_bytes(env: Mapping[str, str]) -> int:
    quotes = 4
    return sum(
        len(json.dumps(name)) + len(json.dumps(value)) - quotes + _JSON_BYTES_PER_VARIABLE
        for name, value in env.items()
    )
