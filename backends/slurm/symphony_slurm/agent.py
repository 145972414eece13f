"""The agent of a node: the parent of the processes that run there.

``python -I -S agent.py RUN-DIRECTORY HOST PORT``. One srun starts one agent on each node. The agent
connects to the supervisor and carries out its orders. It reports what happens to its processes.
If the supervisor is killed, the agent waits for the next one; see
`symphony_slurm.job.supervisor_link`. When there is none any more, it stops all of its processes and
exits.

The program that srun starts is the guardian of the agent, which it forks. Slurm ends the processes
of a node when this program exits. If the agent is killed, its guardian forks the next one, which
takes over the processes.

With ``RUN-DIRECTORY`` alone, the program only checks whether it could work on this node.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony.supervised.supervisor.guardian import Link


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
            from symphony_slurm.job.node_files import NodeFiles

            files = NodeFiles.create()
            link = _guard(directory, files.exits)
            from symphony_slurm.job.agent_connection import connect_to_supervisor

            host, port = server
            is_new = bool(link.path)
            channel = connect_to_supervisor(directory, node, host, int(port), replaces=is_new)
        from symphony_slurm.job.node import run_agent
    except ImportError as exc:
        return (
            f"node {node}: {sys.executable} cannot import symphony: {exc}; install symphony in a "
            "directory that all nodes share"
        )
    except ConnectionError as exc:
        return f"node {node}: {exc}"
    if channel is not None:
        run_agent(directory, node, channel, files, link)
    return None


def _guard(directory: str, exits: str) -> Link:
    """Become the guardian of the agent. Return in each agent.

    ``exits`` is the path of the file for the exits of processes.
    """
    from symphony.supervised.supervisor.guardian import guard_job
    from symphony.support.inherited_signals import reset_signals

    reset_signals()
    return guard_job(directory, exits)


if __name__ == "__main__":
    sys.exit(main())
