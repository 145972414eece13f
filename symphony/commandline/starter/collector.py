"""Collect reports from workers, and print the estimate of pi after each report."""

import argparse
import json
import os
import socketserver
import threading


class ReportHandler(socketserver.StreamRequestHandler):
    """A handler for one connection.

    Each received line is a report such as ``{"darts": 1000, "hits": 785}``.
    """

    server: "Collector"

    def handle(self) -> None:
        """Add up the reports until the worker closes the connection."""
        for line in self.rfile:
            self.server.add(json.loads(line))


class Collector(socketserver.ThreadingTCPServer):
    """A server that runs a thread for each worker. It shuts down after the last expected report."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], expected_reports: int) -> None:
        super().__init__(address, ReportHandler)
        self._lock = threading.Lock()
        self._expected_reports = expected_reports
        self._reports = 0
        self._darts = 0
        self._hits = 0

    def add(self, report: dict[str, int]) -> None:
        """Add a report to the totals. The last expected report shuts down the server."""
        with self._lock:
            self._reports += 1
            self._darts += report["darts"]
            self._hits += report["hits"]
            print(f"{self._darts} darts: pi is about {4 * self._hits / self._darts:.4f}")
            if self._reports == self._expected_reports:
                self.shutdown()


def main() -> None:
    """Listen on the address from the environment variables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=20, help="number of reports to wait for")
    args = parser.parse_args()
    host = os.environ["SYMPH_REPORTS_BIND_HOST"]
    port = int(os.environ["SYMPH_REPORTS_PORT"])
    with Collector((host, port), args.reports) as collector:
        collector.serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    main()
