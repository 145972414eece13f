"""The program of the batch step: ``python -I -S batch.py RUN-DIRECTORY``.

It is started by path and without ``site``, so that it uses exactly the launcher's import path.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Adopt the import path of the launcher, and supervise the experiment."""
    directory = sys.argv[1]
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    try:
        with open(f"{directory}/job.json", "rb") as file:  # noqa: PTH123
            job = json.load(file)
    except OSError as exc:
        sys.exit(f"node {node}: cannot read {directory}: {exc.strerror}; is it on a shared disk?")
    sys.path[:] = job["path"]
    try:
        from symphony_slurm.supervise import run_job
    except ImportError as exc:
        sys.exit(f"node {node}: {sys.executable} cannot import symphony: {exc}")
    sys.exit(run_job(directory, job))


if __name__ == "__main__":
    main()
