"""Wait until a program listens on a port, and print the directories of this process as JSON.

The arguments are the port, and the number of seconds after which the exit code is 1. No connection
is made, because debugpy would take it for a debugger.
"""

import json
import os
import sys
import time

LISTEN = "0A"
INTERVAL_SECONDS = 0.05


def is_listening(port: int) -> bool:
    """Return whether a program in this network namespace listens on a port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:  # noqa: PTH123
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False


def main(port: int, seconds: float) -> int:
    """Wait, print the directories, and return the exit code."""
    deadline = time.monotonic() + seconds
    while not is_listening(port):
        if time.monotonic() > deadline:
            return 1
        time.sleep(INTERVAL_SECONDS)
    places = {"code": os.environ.get("SYMPHONY_CODE_DIR"), "directory": os.getcwd()}  # noqa: PTH109
    sys.stdout.write(json.dumps(places))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
