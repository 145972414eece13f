"""The agent of a node: the parent of the processes that run there.

``python -I -S agent.py RUN-DIRECTORY HOST PORT``. One srun starts one agent on each node. The agent
connects to the supervisor and carries out its orders. It reports what happens to its processes.
If the supervisor is killed, the agent waits for the next one; see
`symphony_slurm.job.supervisor_link`. When there is none any more, it stops all of its processes and
exits.

With ``RUN-DIRECTORY`` alone, the program only checks whether it could work on this node.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> str | None:
    """Adopt the import path of the launcher, connect to the supervisor, and work until the end.

    Return an error message, or None.
    """
    directory, *server = sys.argv[1:]
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    try:
        with open(f"{directory}/job.json", "rb") as file:  # noqa: PTH123
            job = json.load(file)
    except OSError as exc:
        return (
            f"node {node}: cannot read {directory}: {exc.strerror}; set state_dir to a directory "
            "that all nodes share"
        )
    sys.path[:] = job["path"]
    channel = None
    try:
        if server:
            from symphony_slurm.job.agent_connection import connect_to_supervisor

            host, port = server
            channel = connect_to_supervisor(directory, node, host, int(port))
        from symphony_slurm.job.node import run_agent
    except ImportError as exc:
        return (
            f"node {node}: {sys.executable} cannot import symphony: {exc}; install symphony in a "
            "directory that all nodes share"
        )
    except ConnectionError as exc:
        return f"node {node}: {exc}"
    if channel is not None:
        run_agent(directory, node, channel)
    return None


if __name__ == "__main__":
    sys.exit(main())
