"""Programs that wait for the test, so that it sees what it has to see before they go on."""

# It comes first in a program.
HELD = """
import os, time
while not os.path.exists("/tmp/go"):
    time.sleep(0.02)
"""


def let_go(cluster, experiment, process):
    """Let a held program go on, which runs: a member of a group for itself, as each has its own files."""
    cluster.exec_command(experiment, process, ["touch", "/tmp/go"])
