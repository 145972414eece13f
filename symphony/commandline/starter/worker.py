"""Throw darts at a square, and report the number of hits in a quarter circle to the collector."""

import argparse
import json
import os
import random
import socket
import time

CONNECT_TIMEOUT_SECONDS = 60
ATTEMPT_TIMEOUT_SECONDS = 5


def throw(darts: int, generator: random.Random) -> int:
    """Throw ``darts`` darts, and return the number of hits."""
    hits = 0
    for _ in range(darts):
        x = generator.random()
        y = generator.random()
        if x * x + y * y < 1:
            hits += 1
    return hits


def connect(address: tuple[str, int]) -> socket.socket:
    """Connect to the collector.

    On Kubernetes, a service's address may not work until shortly after the process that binds the
    service is ready. Failed attempts are therefore repeated.
    """
    deadline = time.monotonic() + CONNECT_TIMEOUT_SECONDS
    while True:
        try:
            connection = socket.create_connection(address, timeout=ATTEMPT_TIMEOUT_SECONDS)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            connection.settimeout(CONNECT_TIMEOUT_SECONDS)
            return connection


def main() -> None:
    """Send reports to the collector, whose address is in the environment variables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=20, help="number of reports to send")
    parser.add_argument("--darts", type=int, default=20_000, help="number of darts per report")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers")
    args = parser.parse_args()
    generator = random.Random(args.seed)
    host = os.environ["SYMPH_REPORTS_HOST"]
    port = int(os.environ["SYMPH_REPORTS_PORT"])
    with connect((host, port)) as connection:
        for _ in range(args.reports):
            report = {"darts": args.darts, "hits": throw(args.darts, generator)}
            connection.sendall(json.dumps(report).encode() + b"\n")
    print(f"reported {args.reports} times to {host}:{port}")


if __name__ == "__main__":
    main()
