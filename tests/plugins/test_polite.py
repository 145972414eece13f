"""A third party's backend that is derived from `symphony.supervised` meets the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symphony import Cluster
from symphony.testing import BackendContract


class TestContract(BackendContract):
    backend = "polite"

    @pytest.fixture
    def options(self, example: Path, tmp_path: Path) -> dict[str, Any]:
        return {"state_dir": str(tmp_path / "state")}


def test_processes_have_a_low_priority(example: Path, tmp_path: Path) -> None:
    cluster = Cluster.new("polite", state_dir=tmp_path / "state")
    experiment = cluster.new_experiment("example")
    experiment.new_process("first", cmd="nice")
    cluster.launch(experiment)
    try:
        assert cluster.wait("example", timeout=30).exit_code == 0
        assert cluster.get_log("example", "first") == "10\n"
    finally:
        cluster.delete("example")
