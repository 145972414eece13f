"""A program that srun runs on a node, for a command that uses an experiment.

``python -I -S relay.py RUN-DIRECTORY KIND ...``. The kinds are:

* ``control``: relay the standard streams to the control socket of the supervisor.
* ``exec NAME PID ARGUMENT...``: run a command in the environment of a process, and print the
  result. With ``exec-here``, the command uses the standard streams. PID is 0 if the process is not
  running.
* ``identify PATH`` and ``copy JSON``: see `symphony_slurm.job.node_copy`.
* ``forward HOST PORT``: relay the standard streams to a TCP connection.
"""

from __future__ import annotations

import json
import sys


def main() -> int:
    """Adopt the import path of the launcher, do the work, and return the exit code."""
    directory, kind, *arguments = sys.argv[1:]
    with open(f"{directory}/job.json", "rb") as file:  # noqa: PTH123
        sys.path[:] = json.load(file)["path"]
    from symphony_slurm.job import relay_work

    return relay_work.run(directory, kind, arguments)


if __name__ == "__main__":
    sys.exit(main())
