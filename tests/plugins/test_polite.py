"""A third party's backend that stands on `symphony.host` inherits the behaviour contract, and keeps it."""

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


def test_its_processes_give_way(example: Path, tmp_path: Path) -> None:
    cluster = Cluster.new("polite", state_dir=tmp_path / "state")
    exp = cluster.new_experiment("story")
    exp.new_process("first", cmd="nice")
    cluster.launch(exp)
    try:
        assert cluster.wait("story", timeout=30).exit_code == 0
        assert cluster.get_log("story", "first") == "10\n"
    finally:
        cluster.delete("story")
