"""One of a ring: listens for the one before, connects to the one after, and passes on what comes, with its name."""

import os
import socket
import sys
import time

ROUNDS = 3
PATIENCE = 60  # seconds
TRY = 1  # seconds: what is sent to a Service before it knows its Pod may get no answer, not even a refusal
BEGINS = "first"


def listen(service: str) -> socket.socket:
    """A server where this process is to listen."""
    host, port = (
        os.environ[f"SYMPH_{service.upper()}_BIND_HOST"],
        int(os.environ[f"SYMPH_{service.upper()}_PORT"]),
    )
    server = socket.create_server((host, port))
    server.settimeout(PATIENCE)
    return server


def connect(service: str) -> socket.socket:
    """A connection to another process, which may start later."""
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
