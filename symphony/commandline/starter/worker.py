"""Throws darts at a square, and reports to the collector how many hit the circle in it."""

import argparse
import json
import os
import random
import socket
import time

PATIENCE, TRY = 60, 5  # seconds


def throw(darts: int, chance: random.Random) -> int:
    """How many of so many darts hit."""
    return sum(chance.random() ** 2 + chance.random() ** 2 < 1 for _ in range(darts))


def connect(address: tuple[str, int]) -> socket.socket:
    """A connection to the collector: on Kubernetes the way there may open a little after it is ready."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection = socket.create_connection(address, timeout=TRY)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            connection.settimeout(PATIENCE)
            return connection


def main() -> None:
    """Connect to where symphony says that the collector is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=20)
    parser.add_argument("--darts", type=int, default=20_000, help="darts for each report")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    address = os.environ["SYMPH_REPORTS_HOST"], int(os.environ["SYMPH_REPORTS_PORT"])
    with connect(address) as connection:
        for _ in range(args.reports):
            report = {"darts": args.darts, "hits": throw(args.darts, chance)}
            connection.sendall(json.dumps(report).encode() + b"\n")
    print(f"reported {args.reports} times to {address[0]}:{address[1]}")


if __name__ == "__main__":
    main()
