"""The program of the supervisor: ``python -I -S __main__.py EXPERIMENT``.

Its standard input is a socket that is connected to the launcher. The first line from the socket
contains the import path. The program detaches itself from the launcher and imports its modules
while the launcher is still preparing the launch. Then the program receives its orders, claims the
name of the run directory, starts the processes, reports the result through a pipe, and supervises
the processes.

The program is started by path and without ``site``, so that it uses exactly the import path of the
launcher.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Detach from the launcher, use its import path, and run the supervisor."""
    # The descriptors from the launcher follow the first line. Reading without a buffer leaves the
    # descriptors in the socket.
    with os.fdopen(0, "rb", buffering=0, closefd=False) as channel:
        preparation = json.loads(channel.readline())
    if os.fork():
        os._exit(0)
    sys.path[:] = preparation["path"]
    from symphony.host.supervisor.handover import run_supervisor

    run_supervisor(preparation)


if __name__ == "__main__":
    main()
