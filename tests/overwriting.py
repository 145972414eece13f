"""Programs that overwrite the environment that /proc shows, as redis-server and gunicorn do.

They print ``up`` and their pid, and then run until they receive SIGTERM.
"""

import contextlib
import os
import select
from collections.abc import Iterator

OVERWRITE = """
import ctypes, os, time
fields = open("/proc/self/stat").read().rpartition(") ")[2].split()
start, end = int(fields[47]), int(fields[48])
ctypes.memset(start, 0, end - start)
"""
SERVE = """
print("up", os.getpid(), flush=True)
while True:
    time.sleep(100)
"""
OVERWRITING = OVERWRITE + SERVE
# The first process waits until the daemon is complete, and then exits.
LEAVING_A_DAEMON = f"""
import os, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {OVERWRITE.strip().replace(chr(10), chr(10) + " " * 8)}
        print("up", os.getpid(), flush=True)
        os.write(write, b"x")
        time.sleep(1000)
    os._exit(0)
os.wait()
os.read(read, 1)
"""
# The first process runs, too.
DAEMONIZING = LEAVING_A_DAEMON + SERVE


@contextlib.contextmanager
def watched(pids: list[int]) -> Iterator[dict[int, int]]:
    """Open pidfds, so that the exits of these processes are noticed even if pids are reused."""
    handles = {pid: os.pidfd_open(pid) for pid in pids}
    try:
        yield handles
    finally:
        for handle in handles.values():
            os.close(handle)


def running(handles: dict[int, int]) -> list[int]:
    """Return the pids of the processes that have not exited."""
    return [pid for pid, handle in handles.items() if not select.select([handle], [], [], 0)[0]]
