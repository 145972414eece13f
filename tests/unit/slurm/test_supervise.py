"""The supervisor in the batch step."""

import pytest

from symphony_slurm.batch import AgentStep
from symphony_slurm.supervise import _missing_agents_message


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (
            "srun: error: Unable to confirm allocation for job 5: Socket timed out on send/recv "
            "operation\nsrun: Check SLURM_JOB_ID environment variable. Expired or invalid job 5\n",
            "Slurm could not start the agents: Unable to confirm allocation for job 5: Socket "
            "timed out on send/recv operation; try again when slurmctld is running ('scontrol "
            "ping')",
        ),
        (
            "srun: error: n2: task 1: Exited with exit code 1\n"
            "node n2: cannot read /run/x: No such file or directory; set state_dir\n",
            "node n2: cannot read /run/x: No such file or directory; set state_dir",
        ),
        ("", "only 0 of 2 nodes (none) have started their agents; see "),
    ],
)
def test_reason_for_missing_agents_is_that_of_a_node_or_of_slurm(tmp_path, log, message):
    file = tmp_path / "agents.log"
    file.write_text(f"before the job was requeued\n{log}")
    start = len("before the job was requeued\n")
    step = AgentStep(0, None, str(file), start)
    assert _missing_agents_message(step, [], 2).startswith(message)
