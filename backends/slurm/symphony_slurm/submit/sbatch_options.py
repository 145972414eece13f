"""Further options of sbatch that users give. All functions are pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from symphony.errors import SpecError, error_path, shown

# The options that symphony must set itself, and the fix for a user who gives one of them.
_JOB_NAME = "symphony finds its jobs by this option: remove it"
_OWN_PROGRAM = "the job runs symphony's own program: remove it"
_NODES = "set the number of nodes with nodes"
_LOGS = "symphony keeps the output of the processes: use symphony logs"
_REFUSED = {
    "--job-name": _JOB_NAME,
    "--comment": _JOB_NAME,
    "--wrap": _OWN_PROGRAM,
    "--array": "use replicas",
    "--nodes": _NODES,
    "--ntasks": _NODES,
    "--ntasks-per-node": _NODES,
    "--output": _LOGS,
    "--open-mode": _LOGS,
    "--signal": "the time of the signal depends on the grace periods: set termination_grace_period",
    "--parsable": "it is no property of the job: remove it",
    "--test-only": "use symphony launch --dry-run=server",
    "--wait": "use symphony launch --wait",
}
# The options that change what the job requests, or of whom.
_REQUESTS = frozenset(
    {
        "--clusters",
        "--constraint",
        "--cpus-per-gpu",
        "--cpus-per-task",
        "--exclude",
        "--gpus",
        "--gpus-per-node",
        "--gpus-per-task",
        "--gres",
        "--mem",
        "--mem-per-cpu",
        "--mem-per-gpu",
        "--nodelist",
        "--partition",
        "--reservation",
        "--time",
    }
)
_LONG_NAMES = {
    "-a": "--array",
    "-C": "--constraint",
    "-c": "--cpus-per-task",
    "-G": "--gpus",
    "-J": "--job-name",
    "-M": "--clusters",
    "-N": "--nodes",
    "-n": "--ntasks",
    "-o": "--output",
    "-p": "--partition",
    "-t": "--time",
    "-W": "--wait",
    "-w": "--nodelist",
    "-x": "--exclude",
}
_NAME = re.compile(r"--[a-z][-a-z0-9]*|-[A-Za-z]")


def check_options(options: Sequence[str], subject: str) -> None:
    """Raise SpecError if an element is not an option, or is one that symphony must set itself."""
    for index, option in enumerate(options):
        with error_path(index):
            name = _name(option)
            if name is None or "\n" in option:
                raise SpecError(
                    f"{subject} must contain options of sbatch, such as '--mail-type=END', not "
                    f"{shown(option)}"
                )
            if name in _REFUSED:
                raise SpecError(f"{subject} must not contain {name}; {_REFUSED[name]}")


def changes_request(options: Sequence[str]) -> bool:
    """Return whether options change the resources or the nodes that a job requests."""
    return not _REQUESTS.isdisjoint(_name(option) for option in options)


def _name(option: str) -> str | None:
    """Return the long name of an option, such as ``--nodes`` for ``-N4``, or None."""
    matched = _NAME.match(option)
    if matched is None:
        return None
    return _LONG_NAMES.get(matched.group(), matched.group())
