"""The programs that run on the nodes are found by their paths."""

from symphony_slurm.job.supervisor_connection import RELAY
from symphony_slurm.submit.node_check import AGENT


def test_the_programs_of_the_nodes_exist():
    assert RELAY.is_file()
    assert AGENT.is_file()
