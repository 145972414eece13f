"""The behaviour contract on real processes."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from symphony.testing import BackendContract


class TestContract(BackendContract):
    backend = "local"

    @pytest.fixture
    def options(self, tmp_path):
        return {"state_dir": str(tmp_path / "state")}

    @contextlib.contextmanager
    def foreign(self, cluster):
        """A process with an environment like ours, and a hidden folder in the state folder."""
        folder = Path(cluster._root) / ".mine"
        folder.mkdir(parents=True)
        process = subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            env={"SYMPHONY_RUN": "another", "PATH": "/bin"},
        )
        try:
            yield lambda: process.poll() is None and folder.is_dir()
        finally:
            process.communicate(b"\n")
