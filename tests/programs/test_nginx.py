"""nginx distributes requests to replicas whose addresses are in its configuration file."""

from __future__ import annotations

import urllib.request

PROGRAM = "nginx"


def answers(service, count: int) -> set[str]:
    """Return the different answers to some requests."""
    found = set()
    for _ in range(count):
        with urllib.request.urlopen(service.url("web")) as response:
            found.add(response.read().decode().strip())
    return found


def test_requests_reach_all_backends_also_after_scaling(running, example):
    service = running(example)
    assert answers(service, 9) == {"0", "1", "2"}
    service.cluster.up(service.cluster.scaled_experiment(service.name, {"backend": 4}))
    service.cluster.wait(service.name, until="ready", timeout=60)
    assert answers(service, 12) == {"0", "1", "2", "3"}
