"""The example of a third party's backend, installed from its own package, meets the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symphony import Cluster, LaunchFailed
from symphony.testing import BackendContract


class TestContract(BackendContract):
    backend = "detached"

    @pytest.fixture
    def options(self, detached: Path, tmp_path: Path) -> dict[str, Any]:
        return {"state_dir": str(tmp_path / "state")}


def test_a_launch_without_a_supervisor_leaves_nothing(
    detached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster.new("detached", state_dir=tmp_path / "state")
    experiment = cluster.new_experiment("example")
    experiment.new_process("first", cmd="echo first")
    with monkeypatch.context() as without_package:
        without_package.delenv("PYTHONPATH")
        with pytest.raises(LaunchFailed, match="No module named 'symphony_detached'"):
            cluster.launch(experiment)
    assert cluster.list_experiments() == []
    cluster.launch(experiment)
    try:
        assert cluster.wait("example", timeout=30).exit_code == 0
        assert cluster.get_log("example", "first") == "first\n"
    finally:
        cluster.delete("example")
