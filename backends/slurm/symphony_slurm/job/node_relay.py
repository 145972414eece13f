"""The nodes of a job, and programs that run on them beside the processes."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony.supervised.record.directory import RunDirectory
from symphony_slurm import slurm

# `ls` and `ps` need none of the other modules.
if TYPE_CHECKING:
    from symphony.status import ProcessStatus
    from symphony.supervised.user_requests.requests import SupervisorLink
    from symphony_slurm.job.placement import Placement


def placement_of(run: RunDirectory) -> Placement:
    """Return the nodes of a run. Raises BackendError if its job has not started."""
    from symphony_slurm.job.placement import Placement

    try:
        return Placement.load(run)
    except (OSError, ValueError):
        raise BackendError(
            f"the job of experiment {run.name!r} has not started; 'symphony ps {run.name}' "
            "shows the reason"
        ) from None


def supervisor_link(run: RunDirectory) -> SupervisorLink:
    """Return the way in which this program reaches the supervisor of a pinned run."""
    from symphony_slurm.job.supervisor_connection import StepLink

    return StepLink(run, placement_of(run).batch)


def _relay_error(run: RunDirectory, done: subprocess.CompletedProcess[str]) -> BackendError:
    from symphony_slurm.job.supervisor_connection import nodes_unreachable

    return BackendError(nodes_unreachable(run, done.stderr or "srun has failed"))


def batch_node(run: RunDirectory) -> str:
    """Return the node on which the supervisor runs."""
    return placement_of(run).batch


def node_of(run: RunDirectory, process: str) -> str:
    """Return the node on which a process runs."""
    slot: int = run.load_manifest()["slots"][process]
    return placement_of(run).nodes[slot].name


def node_relay(run: RunDirectory, process: ProcessStatus) -> Callable[..., dict[str, Any]]:
    """Return a function that runs the relay on the node of a process."""
    return functools.partial(relay_result, run, node_of(run, process.name))


def relay_result(run: RunDirectory, node: str, *arguments: str) -> dict[str, Any]:
    """Run the relay on a node, and return the JSON that it prints."""
    done = _relay(run, node, *arguments)
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise _relay_error(run, done) from None
    return result


def _relay(run: RunDirectory, node: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the relay on a node, and return the result."""
    from symphony_slurm.job.supervisor_connection import relay_command

    return subprocess.run(
        relay_command(run, node, *arguments),
        input="",
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=slurm.submission_environment(),
    )
