"""Programs that wait until the test lets them continue."""

# The first lines of such a program.
HELD = """
import os, time
while not os.path.exists("/tmp/go"):
    time.sleep(0.02)
"""


def release(cluster, experiment, process):
    """Let a running program continue. Members of a group are released one by one."""
    cluster.exec_command(experiment, process, ["touch", "/tmp/go"])
