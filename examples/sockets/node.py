"""One node in a ring. The node accepts a connection from the previous node and connects to the next
node. It appends its own name to each message that it receives, and forwards the message.
"""

import os
import socket
import sys
import time

ROUNDS = 3
PATIENCE = 60  # The longest wait for another node, in seconds.
# The timeout for one connection attempt, in seconds. An attempt can remain unanswered if the
# Service does not have the address of its Pod yet.
TRY = 1
BEGINS = "first"


def listen(service: str) -> socket.socket:
    """Return a listening socket at the address of ``service``, which this process binds."""
    host, port = (
        os.environ[f"SYMPH_{service.upper()}_BIND_HOST"],
        int(os.environ[f"SYMPH_{service.upper()}_PORT"]),
    )
    server = socket.create_server((host, port))
    server.settimeout(PATIENCE)
    return server


def connect(service: str) -> socket.socket:
    """Return a connection to the process that binds ``service``. Retry for up to `PATIENCE`
    seconds, because that process can start later than this one.
    """
    host, port = (
        os.environ[f"SYMPH_{service.upper()}_HOST"],
        int(os.environ[f"SYMPH_{service.upper()}_PORT"]),
    )
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=TRY)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            connection.settimeout(PATIENCE)
            return connection


def main() -> None:
    me, following = sys.argv[1:]
    with listen(me) as server, connect(following) as after:
        before, _ = server.accept()
        with before, before.makefile("r") as lines, after.makefile("w") as on:
            if me == BEGINS:
                print(me, file=on, flush=True)
            for turn in range(1, ROUNDS + 1):
                path = lines.readline().strip()
                if me == BEGINS:
                    print(f"round {turn}: {path}", flush=True)
                if me != BEGINS or turn < ROUNDS:
                    print(f"{path} {me}", file=on, flush=True)
    print(f"{me}: done", flush=True)


if __name__ == "__main__":
    main()
