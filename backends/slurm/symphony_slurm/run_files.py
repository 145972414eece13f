"""The files that this backend adds to a run directory.

The launcher writes ``job.json`` (what the batch step needs), ``token`` and ``remote``, and
``job``, which contains the number of the job. The supervisor changes the time of ``alive`` at
intervals, and writes ``nodes.json``; see `symphony_slurm.job.placement.Placement`. ``lost-agents``
contains the ranks of the agents that have exited or whose nodes have failed. If the experiment
could not be started, ``failure`` contains the reason. ``stop`` exists if the user stops the
experiment. Without it, SIGTERM comes from Slurm.
"""

from __future__ import annotations

# The directories of the runs, which never have the same path twice.
JOBS_NAME = ".jobs"
JOB_FILE = "job"
ALIVE_FILE = "alive"
NODES_FILE = "nodes.json"
LOST_AGENTS_FILE = "lost-agents"
FAILURE_FILE = "failure"
STOP_FILE = "stop"

# The job waits for this long for the agents of its nodes.
AGENT_TIMEOUT_SECONDS = 120.0
