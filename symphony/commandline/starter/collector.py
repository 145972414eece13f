"""Sums up what workers report, and prints the estimate of pi that follows, until there are enough reports."""

import argparse
import json
import os
import socketserver
import threading


class Reports(socketserver.StreamRequestHandler):
    """One connection: each line is a report, ``{"darts": 1000, "hits": 785}``."""

    server: "Collector"

    def handle(self) -> None:
        """Add up what comes, until the worker hangs up."""
        for line in self.rfile:
            self.server.add(json.loads(line))


class Collector(socketserver.ThreadingTCPServer):
    """Serves each worker in a thread of its own, and ends after ``wanted`` reports."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], wanted: int) -> None:
        super().__init__(address, Reports)
        self._lock = threading.Lock()
        self._wanted, self._reports, self._darts, self._hits = wanted, 0, 0, 0

    def add(self, report: dict[str, int]) -> None:
        """Add one report to the others; the last one ends the server."""
        with self._lock:
            self._reports += 1
            self._darts += report["darts"]
            self._hits += report["hits"]
            print(f"{self._darts} darts: pi is about {4 * self._hits / self._darts:.4f}")
            if self._reports == self._wanted:
                self.shutdown()


def main() -> None:
    """Listen where symphony says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=20)
    args = parser.parse_args()
    address = os.environ["SYMPH_REPORTS_BIND_HOST"], int(os.environ["SYMPH_REPORTS_PORT"])
    with Collector(address, args.reports) as collector:
        collector.serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    main()
