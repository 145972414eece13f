"""Rendering a plan as a batch script and the processes of its job. All functions are pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.host.render import HONOURED as HOST_HONOURED
from symphony.host.render import HostManifest
from symphony_slurm.shape import Shape
from symphony_slurm.slurm import JOB_NAME_PREFIX

# The settings that Slurm implements in addition to those of one machine.
HONOURED = HOST_HONOURED | {
    "resource_request",
    "resource_limit",
    "node_selector",
}
# The time in seconds before the end of a job at which the batch step receives SIGTERM, so that the
# experiment is stopped in order. Slurm's timers can be early or late by a minute.
WARNING_SECONDS = 60
# The job waits for this long for the agents of its nodes.
AGENT_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options of the cluster that concern the job.

    ``sbatch`` contains further options of sbatch, which override the others. ``modules`` are loaded
    before the experiment, and ``prologue`` contains further lines of the batch script.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str | None = None
    sbatch: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmManifest(HostManifest):
    """The job of an experiment, and the processes that run in it.

    ``script`` is the batch script, and ``sbatch`` contains the options of sbatch in it. The
    addresses contain placeholders, because Slurm chooses the nodes later. ``shape`` is what the job
    requests, and the node of each process.
    """

    script: str
    sbatch: tuple[str, ...]
    shape: Shape

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of the manifest file as a dictionary of JSON-serializable values."""
        return {**HostManifest.to_dict(self), "slots": self.shape.slots}

    def __str__(self) -> str:
        lines = "".join(f"# {line}\n" for line in self.script.splitlines())
        return f"# The batch script:\n{lines}{HostManifest.__str__(self)}"


def sbatch_options(
    name: str,
    run_id: str,
    directory: Path,
    shape: Sequence[str],
    options: JobOptions,
    *,
    constraints: Sequence[str] = (),
    deadline: float | None = None,
) -> list[str]:
    """Return the options of the job, in the order of their precedence.

    ``shape`` requests the nodes. ``deadline`` is the maximum duration of the experiment in seconds.
    """
    comment = json.dumps({"symphony": name, "run": run_id[:12]}, separators=(",", ":"))
    result = [
        f"--job-name={JOB_NAME_PREFIX}{name}",
        f"--comment={comment}",
        f"--output={directory / 'supervisor.log'}",
        "--open-mode=append",
        "--no-requeue",
        f"--signal=B:TERM@{WARNING_SECONDS}",
        *shape,
    ]
    named = {
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "time": options.time or _time_limit(deadline),
    }
    result += [f"--{key}={value}" for key, value in named.items() if value is not None]
    if constraints:
        result.append(f"--constraint={'&'.join(constraints)}")
    return [*result, *options.sbatch]


def _time_limit(deadline: float | None) -> str | None:
    """Return the time limit for a deadline, with the time that the job needs around it."""
    if deadline is None:
        return None
    minutes = int(deadline + 2 * WARNING_SECONDS + AGENT_TIMEOUT_SECONDS) // 60 + 1
    return str(minutes)


def batch_script(sbatch: Sequence[str], program: Sequence[str], options: JobOptions) -> str:
    """Return the batch script that runs the command ``program``."""
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH {_directive(option)}" for option in sbatch]
    if options.modules:
        lines.append(f"module load {shlex.join(options.modules)}")
    lines += options.prologue
    lines.append(f"exec {shlex.join(program)}")
    return "\n".join(lines) + "\n"


def _directive(option: str) -> str:
    """Return an option as it is written in a line ``#SBATCH``, which sbatch splits like a shell."""
    name, separator, value = option.partition("=")
    if not separator or value.isalnum():
        return option
    return f"{name}={shlex.quote(value)}"


def constraints(selectors: Mapping[str, str]) -> list[str]:
    """Return the features of nodes for the setting ``node_selector``.

    Slurm's features are words. The word is the value of the selector, or its key if the value is
    ``true``.
    """
    return [key if value == "true" else value for key, value in selectors.items()]
