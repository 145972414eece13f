"""Run the behaviour contract on a real tmux server."""

import contextlib

import pytest

from symphony.testing import BackendContract
from tests.backends.tmux.conftest import new_session, tmux


class TestContract(BackendContract):
    backend = "tmux"

    @pytest.fixture
    def options(self, tmp_path, sockets):
        return {"state_dir": str(tmp_path / "state"), "server_name": "test"}

    @contextlib.contextmanager
    def foreign(self, cluster):
        """Create a session of the user on the default server and on that of the cluster."""
        for server in ("default", "test"):
            new_session("contract-mine", server=server)
        yield lambda: all(
            tmux("list-windows", "-t", "=contract-mine:", server=name)
            for name in ("default", "test")
        )
