"""The behaviour contract on a real tmux server."""

import contextlib

import pytest

from symphony.testing import BackendContract
from tests.backends.tmux.conftest import tmux


class TestContract(BackendContract):
    backend = "tmux"

    @pytest.fixture
    def options(self, tmp_path, sockets):
        return {"state_dir": str(tmp_path / "state"), "server_name": "test"}

    @contextlib.contextmanager
    def foreign(self, cluster):
        """A session of the user's on their own server, and one that they made by hand on ours."""
        for server in ("default", "test"):
            tmux(
                "-f",
                "/dev/null",
                "new-session",
                "-d",
                "-s",
                "contract-mine",
                "sleep",
                "1000",
                server=server,
            )
        yield lambda: all(
            tmux("list-windows", "-t", "=contract-mine:", server=name)
            for name in ("default", "test")
        )
