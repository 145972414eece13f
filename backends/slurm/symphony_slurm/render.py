"""Rendering a plan as a batch script and the processes of its job. All functions are pure."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.errors import SpecError
from symphony.plan.stop_order import longest_stop
from symphony.supervised.render import HONOURED as HOST_HONOURED
from symphony.supervised.render import HostManifest, grace_seconds
from symphony_slurm.run_files import AGENT_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from symphony.plan.plan import Plan
    from symphony_slurm.submit.resource_request import Shape

# The settings that Slurm implements in addition to those of one machine.
HONOURED = (HOST_HONOURED - {"resume"}) | {
    "resource_request",
    "resource_limit.cpu",
    "resource_limit.memory",
    "resource_limit.gpu",
    "node_selector",
    "sbatch_options",
}
# The shortest time before the end of a job at which the batch step receives SIGTERM, so that the
# experiment is stopped in order.
WARNING_SECONDS = 60
# A stop needs this time in addition to the grace periods.
STOP_SECONDS = 30
# Slurm's timers can be early or late by this time.
TIMER_ERROR_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options of the cluster that concern the job.

    ``time`` is the time limit in seconds, or 0 for no limit. ``gpu_type`` is Slurm's name for a
    type of GPUs. ``exclusive`` requests nodes that no other job uses. ``sbatch`` contains further
    options of sbatch, which override the others. ``modules`` are loaded before the experiment, and
    ``prologue`` contains further lines of the batch script. ``requeue`` is how often the experiment
    starts again after Slurm has stopped its job.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: int | None = None
    gpu_type: str | None = None
    exclusive: bool = False
    sbatch: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()
    requeue: int = 0

    @property
    def checks_commands(self) -> bool:
        """True if every command of a process must exist where the job is submitted.

        Modules and a prologue can provide commands that do not exist there.
        """
        return not self.modules and not self.prologue


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmManifest(HostManifest):
    """The job of an experiment, and the processes that run in it.

    ``script`` is the batch script, and ``sbatch`` contains the options of sbatch in it. ``further``
    contains those of them that the user has set, which symphony does not interpret. The
    addresses contain placeholders, because Slurm chooses the nodes later. ``shape`` is what the job
    requests, and the node of each process. ``time_limit`` is in seconds, and None if the site
    chooses it. ``warning`` is the time in seconds before the end of the job at which the experiment
    is stopped. ``note`` is a message about a time limit that is short, or ``""``. ``requested`` is
    what a change of the running experiment must not exceed; see
    `symphony_slurm.job_changes`.
    """

    script: str
    sbatch: tuple[str, ...]
    further: tuple[str, ...]
    shape: Shape
    time_limit: int | None
    warning: int
    note: str
    requested: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of the manifest file as a dictionary of JSON-serializable values."""
        return {**HostManifest.to_dict(self), "slots": self.shape.slots}

    def __str__(self) -> str:
        lines = "".join(f"# {line}\n" for line in self.script.splitlines())
        note = f"# Note: {self.note}\n" if self.note else ""
        return f"{note}# The batch script:\n{lines}{HostManifest.__str__(self)}"


def warning_seconds(plan: Plan, time_limit: int | None) -> int:
    """Return the time before the end of the job at which the experiment is stopped.

    It is long enough for the grace periods of all processes in the order in which they are stopped.
    Any additional time is used only up to half of the time limit.
    """
    longest = _longest_stop(plan)
    warning = max(WARNING_SECONDS, longest + STOP_SECONDS)
    return min(warning, max(time_limit // 2, longest)) if time_limit else warning


def _longest_stop(plan: Plan) -> int:
    """Return the longest time that a stop of all processes can take, in whole seconds."""
    graces = {process.name: grace_seconds(process.pod) for process in plan}
    starts_after = {process.name: process.starts_after for process in plan}
    return math.ceil(longest_stop(graces, starts_after))


def check_time_limit(plan: Plan, time_limit: int | None) -> None:
    """Raise SpecError if the processes cannot be stopped within the time limit of the job."""
    longest = _longest_stop(plan)
    if time_limit and time_limit <= longest:
        raise SpecError(
            f"the time limit of the job is {time_text(time_limit)}, but a stop of its processes "
            f"can take {time_text(longest)}, because of their termination_grace_period; set a "
            "longer time limit, or shorter grace periods"
        )


def short_limit_note(plan: Plan, time_limit: int | None) -> str:
    """Return what a short time limit means for the processes, or ``""`` if it is long enough."""
    needed = warning_seconds(plan, None) + TIMER_ERROR_SECONDS
    if not time_limit or time_limit > needed:
        return ""
    earlier = warning_seconds(plan, time_limit) + TIMER_ERROR_SECONDS
    first = max(0, time_limit - earlier)
    return (
        f"the time limit of the job is {time_text(time_limit)}, but Slurm can announce its end "
        f"{earlier} s earlier, so the processes can be stopped after {first} s; set a time limit "
        f"of more than {time_text(needed)}"
    )


def time_limit_seconds(plan: Plan, chosen: int | None) -> int | None:
    """Return the time limit of the job, or None if the site chooses it.

    ``chosen`` is the option ``time`` in seconds, or None. Otherwise, the time limit is the maximum
    duration of the experiment with the time that the job needs around it.
    """
    if chosen is not None:
        return chosen
    duration = _longest_duration(plan)
    if duration is None:
        return None
    margin = warning_seconds(plan, None) + TIMER_ERROR_SECONDS + AGENT_TIMEOUT_SECONDS
    return (int(duration + margin) // 60 + 1) * 60


def _longest_duration(plan: Plan) -> float | None:
    """Return the maximum duration of the experiment in seconds, or None if there is none."""
    if plan.policies.deadline is not None:
        return plan.policies.deadline
    limits: list[float] = []
    for process in plan:
        limit = (process.pod.job or {}).get("active_deadline")
        if limit is None or process.starts_after:
            return None
        limits.append(float(limit))
    return max(limits)


def time_text(seconds: int) -> str:
    """Return a time limit in the format of sbatch.

    >>> time_text(5400), time_text(100 * 3600)
    ('1:30:00', '4-4:00:00')
    """
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{hours}:{minutes:02}:{rest:02}"
    return f"{days}-{text}" if days else text


def sbatch_options(
    name: str,
    run_id: str,
    directory: Path,
    shape: Shape,
    options: JobOptions,
    *,
    further: Sequence[str] = (),
    time_limit: int | None,
    warning: int,
) -> list[str]:
    """Return the options of the job, in the order of their precedence.

    ``further`` contains the options that the experiment sets, which those of the cluster override.
    ``time_limit`` is in seconds. ``warning`` is the time in seconds before the end of the job at
    which Slurm sends SIGTERM.
    """
    from symphony_slurm.slurm import JOB_NAME_PREFIX

    comment = json.dumps({"symphony": name, "run": run_id[:12]}, separators=(",", ":"))
    result = [
        f"--job-name={JOB_NAME_PREFIX}{name}",
        f"--comment={comment}",
        f"--output={directory / 'supervisor.log'}",
        "--open-mode=append",
        "--requeue" if options.requeue else "--no-requeue",
        f"--signal=B:TERM@{warning}",
        *shape.arguments(),
    ]
    named = {
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        # The time limit 0 is no limit, as in sbatch.
        "time": None if time_limit is None else time_text(time_limit),
    }
    result += [f"--{key}={value}" for key, value in named.items() if value is not None]
    return [*result, *further, *options.sbatch]


def batch_script(sbatch: Sequence[str], program: Sequence[str], options: JobOptions) -> str:
    """Return the batch script that runs the command ``program``."""
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH {_directive(option)}" for option in sbatch]
    if options.modules:
        lines.append(_load_modules(shlex.join(options.modules)))
    lines += options.prologue
    lines.append(f"exec {shlex.join(program)}")
    return "\n".join(lines) + "\n"


def _load_modules(names: str) -> str:
    """Return the line that loads modules, or ends the job with a message that the status shows."""
    message = shlex.quote(
        f": cannot load the modules {names}; 'module avail' lists the modules: set modules"
    )
    return f'module load {names} || {{ echo "node $(uname -n)"{message} >&2; exit 1; }}'


def _directive(option: str) -> str:
    """Return an option as it is written in a line ``#SBATCH``, which sbatch splits like a shell."""
    name, separator, value = option.partition("=")
    if not separator or value.isalnum():
        return option
    return f"{name}={shlex.quote(value)}"
