"""Check on idle nodes whether a job could work there, before it is submitted."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.errors import BackendError
from symphony.host.run.directory import full_disk_errors
from symphony_slurm import slurm
from symphony_slurm.batch import START_PYTHON
from symphony_slurm.run_files import import_path

if TYPE_CHECKING:
    from symphony_slurm.render import JobOptions, SlurmManifest


class NodesNotChecked(BackendError):
    """The nodes cannot be checked now, for example because none is idle."""


def check_nodes(root: Path, manifest: SlurmManifest, options: JobOptions) -> list[str]:
    """Run a short job on as many nodes as an experiment needs, and return the problems of nodes.

    ``root`` is the directory of the runs. A problem is one line with the name of the node and the
    fix. Raises NodesNotChecked if the nodes are not idle.
    """
    # The first launch creates the directory.
    parent = next(path for path in (root, *root.parents) if path.is_dir())
    with (
        full_disk_errors(parent, len(manifest.processes)),
        tempfile.TemporaryDirectory(prefix=".check-", dir=parent) as directory,
    ):
        Path(directory, "job.json").write_text(json.dumps({"path": import_path()}))
        agent = Path(__file__).with_name("agent.py")
        program = [*START_PYTHON, sys.executable, "-I", "-S", str(agent), directory]
        messages = slurm.run_on_idle_nodes(_selection(manifest, options), program)
    problems = [line for line in messages if line.startswith("node ")]
    if messages and not problems:
        raise NodesNotChecked(messages[0])
    return sorted(problems)


def _selection(manifest: SlurmManifest, options: JobOptions) -> list[str]:
    """Return the options of srun that select the nodes of the experiment, with one CPU on each."""
    named = {
        "nodes": str(manifest.shape.nodes),
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": "&".join(manifest.shape.features) or None,
    }
    return [f"--{key}={value}" for key, value in named.items() if value is not None]
