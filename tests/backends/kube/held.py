"""Programs that wait until the test lets them continue."""

# The first lines of such a program.
HELD = """
import os, time
while not os.path.exists("/tmp/go"):
    time.sleep(0.02)
"""

# The first argument is a file that lets the program continue.
HELD_BY_FILE = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


def release(cluster, experiment, process):
    """Let a running program continue. Members of a group are released one by one."""
    cluster.exec_command(experiment, process, ["touch", "/tmp/go"])


# A program that waits for the exit code that the test chooses.
EXITS = """
import os, time
while not os.path.exists("/tmp/code"):
    time.sleep(0.02)
code = open("/tmp/code").read()
print("exits with", code)
raise SystemExit(int(code))
"""


def exit_with(cluster, experiment, process, code):
    """Let a running program exit with a code."""
    script = f"printf {code} > /tmp/new && mv /tmp/new /tmp/code"
    cluster.exec_command(experiment, process, ["sh", "-c", script])
