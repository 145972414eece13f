"""Whether Slurm would accept a job, and whether its nodes can run it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.errors import SymphonyError, Unreachable
from symphony.plan.findings import ERROR, NOTE, WARNING, Finding
from symphony_slurm import slurm
from symphony_slurm.submit.node_check import (
    CHECK_IDLE_WAIT_SECONDS,
    NodesNotChecked,
    check_nodes,
)
from symphony_slurm.submit.partition_limits import check_fits
from symphony_slurm.submit.sbatch_options import changes_request

if TYPE_CHECKING:
    from symphony_slurm.render import JobOptions, SlurmManifest


def check_submission(manifest: SlurmManifest, partition: str | None) -> str:
    """Let Slurm check the job of a manifest without submitting it, and return when and where Slurm
    would start it.

    ``partition`` is the partition of the job, or None for the default one.
    """
    check_fits_partition(manifest, partition)
    return slurm.check_submission(
        ["--output=/dev/null"], manifest.script, slurm.submission_environment()
    )


def check_fits_partition(manifest: SlurmManifest, chosen: str | None) -> None:
    """Check that the job fits the partition ``chosen``, or the default one. This is one request.

    The job is not checked if other options of sbatch can change what it requests.
    """
    if changes_request(manifest.further):
        return
    check_fits(manifest.shape, slurm.partitions(chosen), chosen, manifest.time_limit)


def find_node_problems(
    root: Path, manifest: SlurmManifest, options: JobOptions, *, thorough: bool
) -> Iterator[Finding]:
    """Check the job of a manifest; see `symphony.lint.targets.ChecksNodes`.

    A thorough check runs a short job on idle nodes. ``root`` is the directory with the run
    directories.
    """
    if manifest.note:
        problem, _, hint = manifest.note.partition("; ")
        yield Finding(rule="nodes", level=WARNING, problem=problem, hint=hint)
    try:
        slurm.check_installed()
        check_submission(manifest, options.partition)
        problems = []
        if thorough:
            problems = check_nodes(
                root,
                manifest,
                options,
                at_least=manifest.shape.nodes,
                idle_wait=CHECK_IDLE_WAIT_SECONDS,
            )
    except (Unreachable, NodesNotChecked) as exc:
        if thorough:
            problem = f"the nodes were not checked: {exc}"
            yield Finding(rule="nodes", level=NOTE, problem=problem)
        return
    except SymphonyError as exc:
        problems = [str(exc)]
    for text in problems:
        problem, _, hint = text.partition("; ")
        yield Finding(rule="nodes", level=ERROR, problem=problem, hint=hint)
