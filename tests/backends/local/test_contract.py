"""The behaviour contract on real processes."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from symphony.testing import BackendContract

from .conftest import kill_supervision


class TestContract(BackendContract):
    backend = "local"

    @pytest.fixture
    def options(self, tmp_path):
        return {"state_dir": str(tmp_path / "state")}

    @pytest.fixture
    def kill_supervisor(self, cluster):
        return lambda experiment: kill_supervision(cluster, experiment)

    @contextlib.contextmanager
    def foreign(self, cluster):
        """A process of another run, and a hidden directory in the state directory."""
        directory = Path(cluster._root) / ".mine"
        directory.mkdir(parents=True)
        process = subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            env={"SYMPHONY_RUN": "another", "PATH": "/bin"},
        )
        try:
            yield lambda: process.poll() is None and directory.is_dir()
        finally:
            process.communicate(b"\n")
