"""A third party's backend that is derived from `symphony.supervised`.

It adds only how processes are started. The tests of `local` run the contract for the rest.
"""

from __future__ import annotations

from pathlib import Path

from symphony import Cluster


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
