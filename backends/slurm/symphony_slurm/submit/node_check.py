"""Check on idle nodes whether a job could work there, before it is submitted.

A job checks its own nodes again before it starts processes. The first launch is checked in advance,
because its job could wait in the queue for hours only to report the same problem.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.errors import BackendError, LaunchFailed
from symphony.supervised.record.directory import full_disk_errors
from symphony.support.directories import private as private_directories
from symphony.support.directories.state_home import state_root
from symphony.support.import_path import own_import_path
from symphony_slurm import slurm
from symphony_slurm.batch import START_PYTHON

if TYPE_CHECKING:
    from symphony_slurm.render import JobOptions, SlurmManifest

# The program that runs on each node; see `symphony_slurm.agent`.
AGENT = Path(__file__).parents[1] / "agent.py"
# How many seconds `symphony check` and the first launch wait for idle nodes.
CHECK_IDLE_WAIT_SECONDS, LAUNCH_IDLE_WAIT_SECONDS = 5, 2
# How many seconds a launch relies on an earlier check, and on the fact that no node was idle.
CHECKED_SECONDS, UNCHECKED_SECONDS = 7 * 24 * 3600, 3600


class NodesNotChecked(BackendError):
    """The nodes cannot be checked now, for example because none is idle."""


def check_nodes(
    root: Path, manifest: SlurmManifest, options: JobOptions, *, at_least: int, idle_wait: int
) -> list[str]:
    """Run a short job on the nodes that an experiment needs, and return the problems of nodes.

    ``root`` is the directory of the runs. ``at_least`` is the number of nodes that must be idle for
    a check, and ``idle_wait`` how many seconds the job may wait for them. A problem is one line
    with the name of the node and the fix. Raises NodesNotChecked if the nodes are not idle.
    """
    parent = _existing(root)
    with (
        full_disk_errors(parent, len(manifest.processes)),
        tempfile.TemporaryDirectory(prefix=".check-", dir=parent) as directory,
    ):
        Path(directory, "job.json").write_text(json.dumps({"path": own_import_path()}))
        program = [*START_PYTHON, sys.executable, "-I", "-S", str(AGENT), directory]
        selection = _selection(manifest, options, at_least)
        messages = slurm.run_on_idle_nodes(selection, program, idle_wait)
    problems = [line for line in messages if line.startswith("node ")]
    if messages and not problems:
        raise NodesNotChecked(messages[0])
    return sorted(problems)


def check_before_first_launch(root: Path, manifest: SlurmManifest, options: JobOptions) -> None:
    """Check at least one node, unless this was done for the same directory and Python before.

    Raises LaunchFailed with the problem of a node. If no node is idle, only the job checks its
    nodes.
    """
    record = _record_of_check(root, options)
    if _was_checked_recently(record):
        return
    try:
        problems = check_nodes(
            root, manifest, options, at_least=1, idle_wait=LAUNCH_IDLE_WAIT_SECONDS
        )
    except NodesNotChecked:
        remembered_seconds = UNCHECKED_SECONDS
    else:
        remembered_seconds = CHECKED_SECONDS
        if problems:
            raise LaunchFailed(problems[0])
    expiry = time.time() + remembered_seconds
    # Without the file, the next launch checks a node again.
    with contextlib.suppress(OSError):
        private_directories.create(record.parent)
        record.touch()
        os.utime(record, (expiry, expiry))


def _was_checked_recently(record: Path) -> bool:
    try:
        return record.stat().st_mtime > time.time()
    except OSError:
        return False


def _record_of_check(root: Path, options: JobOptions) -> Path:
    """Return the file whose time is when the result of a check expires.

    Its name contains everything on which the result depends.
    """
    checked = [
        _existing(root).stat().st_dev,
        sys.executable,
        own_import_path(),
        (options.partition, options.account, options.qos),
        os.environ.get("SLURM_CONF"),
    ]
    digest = hashlib.sha256(json.dumps(checked).encode()).hexdigest()
    return state_root("slurm") / ".checked" / digest[:16]


def _existing(root: Path) -> Path:
    """Return the directory of the runs, or else the directory in which a launch creates it."""
    return next(path for path in (root, *root.parents) if path.is_dir())


def _selection(manifest: SlurmManifest, options: JobOptions, at_least: int) -> list[str]:
    """Return the options of srun that select the nodes of the experiment, with one CPU on each."""
    named = {
        "nodes": f"{at_least}-{manifest.shape.nodes}",
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": "&".join(manifest.shape.features) or None,
    }
    return [f"--{key}={value}" for key, value in named.items() if value is not None]
