"""Run the messaging examples as local processes and in tmux, and check their output."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

from symphony import Cluster, Experiment
from tests.examples.messaging import EXAMPLES, check


@pytest.fixture
def cluster(machine: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return the cluster of ``machine``, with this interpreter on the PATH."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return machine


@pytest.mark.parametrize(
    "machine", ["local", pytest.param("tmux", marks=pytest.mark.long)], indirect=True
)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_example_succeeds(cluster: Cluster, path: Path) -> None:
    module = runpy.run_path(str(path))
    experiment = Experiment(module["NAME"])
    experiment.base_dir = path.parent
    module["build"](experiment)
    cluster.launch(experiment)
    status = cluster.wait(experiment.name, timeout=60)
    logs = {process.name: cluster.get_log(experiment.name, process.name) for process in status}
    assert status.exit_code == 0, logs
    check(path, logs)
