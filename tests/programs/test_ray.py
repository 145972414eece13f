"""The head of a Ray cluster stops without being killed."""

from __future__ import annotations

import time

PROGRAM = "ray"
MAX_STOP_SECONDS = 15


def test_a_job_uses_all_nodes_and_the_head_stops(running, example, wait_for_line):
    service = running(example, wait="started", timeout=300)
    line = wait_for_line(service, "job", "count")
    assert line == "nodes 3 alive 4 count 5"
    begin = time.monotonic()
    service.cluster.stop_processes(service.name, ["head"])
    assert time.monotonic() - begin < MAX_STOP_SECONDS
    (head,) = [item for item in service.status if item.name == "head"]
    assert head.exit_code != 137
