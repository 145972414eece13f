"""The program that deletes an experiment when the program that has launched it was killed.

It reads one JSON object per line from standard input: first the order, then the time at which the
experiment was created, then that the experiment is done. The program waits for the end of its owner
with a pidfd, because a process that the owner has forked can keep the pipe open.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import sys
import time
from typing import Any

# The launch that the owner has begun can be completed by another process.
_LAUNCH_SECONDS = 10.0
_POLL_SECONDS = 0.2


def main() -> None:
    """Wait until the owner has ended, and delete its experiment unless the owner has done so."""
    order: dict[str, Any] = json.loads(sys.stdin.readline() or "{}")
    if not order:
        return
    owner = os.pidfd_open(order["pid"])
    os.write(1, b"watching\n")
    created: float | None = None
    buffered = b""
    while True:
        ready, _, _ = select.select([owner, 0], [], [])
        if 0 in ready:
            received = os.read(0, 65536)
            buffered += received
            *lines, buffered = buffered.split(b"\n")
            for line in lines:
                message = json.loads(line)
                if message.get("done"):
                    return
                created = message.get("created", created)
            if not received:
                # The owner cannot say any more what it has done. Its end is what counts.
                select.select([owner], [], [])
                break
        elif owner in ready:
            break
    _delete(order, created)


def _delete(order: dict[str, Any], created: float | None) -> None:
    """Delete the experiment if it is the one that the owner has launched."""
    sys.path[:0] = order["path"]
    from symphony.cluster import Cluster
    from symphony.errors import NotFound, SymphonyError

    # The options come from the owner, which is a process of the same user.
    options = pickle.loads(bytes.fromhex(order["options"]))
    cluster = Cluster.new(order["backend"], **options)
    name = order["experiment"]
    give_up = time.monotonic() + _LAUNCH_SECONDS
    while created is not None or order["is_new"]:
        try:
            status = cluster.describe_experiment(name)
            if created is None or status.created == created:
                cluster.delete(name)
            return
        except NotFound:
            if created is not None or time.monotonic() > give_up:
                return
        except SymphonyError:
            if time.monotonic() > give_up:
                raise
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    main()
