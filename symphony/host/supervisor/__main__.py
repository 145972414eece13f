"""The supervisor as a program: ``python -I -S __main__.py EXPERIMENT``, with a socket of the launcher as its input.

What it needs to begin with is the first line there. It leaves the launcher's session and family, imports what it needs
while the launcher still decides, gets its orders, takes the run directory's name, launches, reports on a pipe, and
supervises. Run by path and without ``site``, it begins with nothing but the launcher's own import path.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Leave the launcher's family, take over its import path, and do the rest from there."""
    with os.fdopen(
        0, "rb", buffering=0, closefd=False
    ) as said:  # unbuffered: what follows comes with descriptors
        preparation = json.loads(said.readline())
    if os.fork():
        os._exit(0)
    sys.path[:] = preparation["path"]
    from symphony.host.supervisor.handover import obey

    obey(preparation)


if __name__ == "__main__":
    main()
