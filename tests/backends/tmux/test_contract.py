"""Run the behaviour contract on a real tmux server."""

import contextlib

import pytest

from symphony.supervised.record.directory import RunDirectory
from symphony.testing import BackendContract
from tests.backends.tmux.conftest import eventually, new_session, tmux
from tests.supervision import kill_supervision


class TestContract(BackendContract):
    backend = "tmux"

    @pytest.fixture
    def options(self, tmp_path, sockets):
        return {"state_dir": str(tmp_path / "state"), "server_name": "test"}

    @pytest.fixture
    def kill_supervisor(self, cluster):
        def kill(experiment):
            run = RunDirectory(cluster._root / experiment)
            kill_supervision(run)
            # A tmux client that the supervisor is just starting holds the lock until it is
            # executed.
            eventually(lambda: not run.is_locked())

        return kill

    @contextlib.contextmanager
    def foreign(self, cluster):
        """Create a session of the user on the default server and on that of the cluster."""
        for server in ("default", "test"):
            new_session("contract-mine", server=server)
        yield lambda: all(
            tmux("list-windows", "-t", "=contract-mine:", server=name)
            for name in ("default", "test")
        )
