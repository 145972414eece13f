"""The supervisor as a program: ``python -I -S supervise.py EXPERIMENT``, with its orders on standard input.

It leaves the launcher's session and family, takes the run directory's name, launches, reports on a pipe, and
supervises. Run by path and without ``site``, it begins with nothing but the launcher's own import path.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Read the orders, leave the launcher, supervise."""
    orders = json.loads(sys.stdin.buffer.read())
    if os.fork():
        os._exit(0)
    sys.path[:] = orders["path"]
    from symphony.host.detach import obey

    obey(orders)


if __name__ == "__main__":
    main()
