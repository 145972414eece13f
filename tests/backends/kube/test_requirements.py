"""What a cluster must have, so that the objects of an experiment work on it."""

from __future__ import annotations

from typing import Any

import pytest

from symphony.errors import LaunchFailed
from symphony_kube.api.labels import QUEUE
from symphony_kube.lifecycle.requirements import check_requirements

WAITING_POD = {"kind": "Pod", "metadata": {"name": "unit-0", "labels": {QUEUE: "team-a"}}}


class OfVersion:
    """An API server that reports a version and does nothing else."""

    def __init__(self, minor: str) -> None:
        self._minor = minor

    def call(self, method: str, path: str) -> dict[str, Any]:
        assert (method, path) == ("GET", "/version")
        return {"major": "1", "minor": self._minor}


def test_a_cluster_without_scheduling_gates_refuses_a_queue() -> None:
    message = r"pod 'unit-0' would not wait for queue 'team-a', because the cluster has Kub.* 1\.26"
    with pytest.raises(LaunchFailed, match=message):
        check_requirements(OfVersion("26+"), [WAITING_POD])
    check_requirements(OfVersion("27"), [WAITING_POD])
