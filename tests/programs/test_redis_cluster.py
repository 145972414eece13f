"""Six nodes of Redis form a cluster from the addresses of the replicas."""

from __future__ import annotations

import time

PROGRAM = "redis-cluster"
JOIN_SECONDS = 30


def test_the_nodes_form_a_cluster_that_stores_values(running, example):
    service = running(example, wait="started")
    created = service.cluster.wait(service.name, processes=["create"], timeout=60)
    assert {process.name: process.exit_code for process in created}["create"] == 0

    def client(node: str, *words: str) -> str:
        port = service.address(node).rpartition(":")[2]
        done = service.exec(node, ["redis-cli", "-c", "-p", port, *words])
        return done.stdout.strip()

    # The nodes tell one another about the cluster after it was created.
    deadline = time.monotonic() + JOIN_SECONDS
    while client("node-0", "set", "key", "value") != "OK":
        assert time.monotonic() < deadline, client("node-0", "cluster", "info")
    assert client("node-3", "get", "key") == "value"
