"""Run the behaviour contract on a real tmux server."""

import contextlib
import os
import signal

import pytest

from symphony.host.processes.control import wait_for_exit
from symphony.host.run.directory import RunDirectory
from symphony.testing import BackendContract
from tests.backends.tmux.conftest import new_session, tmux


class TestContract(BackendContract):
    backend = "tmux"

    @pytest.fixture
    def options(self, tmp_path, sockets):
        return {"state_dir": str(tmp_path / "state"), "server_name": "test"}

    def kill_supervisor(self, cluster, experiment):
        supervisor = RunDirectory(cluster._root / experiment).supervisor()
        os.kill(supervisor.pid, signal.SIGKILL)
        assert wait_for_exit(supervisor, 20)

    @contextlib.contextmanager
    def foreign(self, cluster):
        """Create a session of the user on the default server and on that of the cluster."""
        for server in ("default", "test"):
            new_session("contract-mine", server=server)
        yield lambda: all(
            tmux("list-windows", "-t", "=contract-mine:", server=name)
            for name in ("default", "test")
        )
