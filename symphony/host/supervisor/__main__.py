"""The supervisor program: ``python -I -S __main__.py EXPERIMENT``.

Its standard input is a socket that is connected to the launcher. The first line from the socket
contains the launcher's import path and the name of the class that starts processes. The program
detaches itself from the launcher and imports its modules while the launcher is still preparing the
launch. Then the program receives its orders, renames the run directory to its final name, starts
the processes, reports the result of the launch through a pipe, and supervises the processes.

The program is started by path and without ``site``, so that it uses exactly the launcher's import
path.
"""

from __future__ import annotations

import atexit
import json
import os
import sys


def main() -> None:
    """Detach from the launcher, adopt its import path, and run the supervisor."""
    # The launcher sends file descriptors after the first line. Unbuffered reading leaves these
    # descriptors in the socket.
    with os.fdopen(0, "rb", buffering=0, closefd=False) as channel:
        preparation = json.loads(channel.readline())
    if os.fork():
        os._exit(0)
    sys.path[:] = preparation["path"]
    # This function is called after all others. Without it, Python would remove each object before
    # it exits, which takes time in proportion to the number of processes.
    atexit.register(os._exit, 0)
    from symphony.signals import reset_signals

    # The launcher may have been started with blocked or ignored signals. The supervisor must
    # receive its signals, and so must the processes that it starts.
    reset_signals()
    from symphony.host.supervisor.handover import run_supervisor

    run_supervisor(preparation)


if __name__ == "__main__":
    main()
