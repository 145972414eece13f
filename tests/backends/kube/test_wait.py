"""Waiting for the processes of an experiment, on a real Kubernetes."""

import pytest

from symphony.status import State
from symphony.testing.contract import until as reached

from .conftest import python
from .held import HELD, release

LATE_SERVER = f"""{HELD}
import socket
host, port = os.environ["SYMPH_ECHO_BIND_HOST"], int(os.environ["SYMPH_ECHO_PORT"])
server = socket.create_server((host, port))
time.sleep(1000)
"""


def test_wait_until_started_and_ready(shared, name):
    experiment = shared.new_experiment(name)
    python(experiment, "server", LATE_SERVER).binds("echo").ready(tcp="echo")
    python(experiment, "bad", "raise SystemExit(3)")
    shared.launch(experiment)
    with pytest.raises(
        TimeoutError, match=f"experiment '{name}' is not ready after 0.1 s: .*server"
    ):
        shared.wait(name, until="ready", timeout=0.1)
    started = shared.wait(name, until="started", timeout=60)
    assert all(item.started for item in started)
    assert not started.processes[0].ready
    reached(shared, name, lambda status: status.processes[1].state is State.FAILED)
    release(shared, name, "server")
    ready = shared.wait(name, until="ready", timeout=60)
    assert ready.processes[0].ready
    assert ready.processes[1].state is State.FAILED
    with pytest.raises(
        TimeoutError, match=f"experiment '{name}' is still running after 0.1 s: server"
    ):
        shared.wait(name, timeout=0.1)
