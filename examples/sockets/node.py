"""One node of a ring: accepts a connection from the previous node, connects to the next node, and
forwards the message with its own name added.
"""

import os
import socket
import sys
import time

ROUNDS = 3
PATIENCE = 60  # The longest wait for another node, in seconds.
# The timeout of one attempt to connect, in seconds. A connection to a Service that does not know
# its Pod yet can remain unanswered.
TRY = 1
BEGINS = "first"


def listen(service: str) -> socket.socket:
    """Return a server socket at the address of a service that this process binds."""
    host, port = (
        os.environ[f"SYMPH_{service.upper()}_BIND_HOST"],
        int(os.environ[f"SYMPH_{service.upper()}_PORT"]),
    )
    server = socket.create_server((host, port))
    server.settimeout(PATIENCE)
    return server


def connect(service: str) -> socket.socket:
    """Return a connection to another process, which can start later."""
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
