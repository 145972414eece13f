"""How far `wait` waits, on a real Kubernetes."""

import itertools

import pytest

from symphony.errors import SpecError
from symphony.status import State
from symphony.testing.contract import until as reached

from .conftest import FOREVER, python, unplaced
from .held import HELD, let_go

pytestmark = pytest.mark.client

LATE_SERVER = f"""{HELD}
import socket
server = socket.create_server((os.environ["SYMPH_ECHO_BIND_HOST"], int(os.environ["SYMPH_ECHO_PORT"])))
time.sleep(1000)
"""


def test_until_started_and_until_ready(shared, name):
    experiment = shared.new_experiment(name)
    python(experiment, "server", LATE_SERVER).binds("echo").ready(tcp="echo")
    python(experiment, "bad", "raise SystemExit(3)")
    shared.launch(experiment)
    started = shared.wait(name, until="started", timeout=60)
    assert all(item.started for item in started)
    assert not started.processes[0].ready
    reached(shared, name, lambda status: status.processes[1].state is State.FAILED)
    let_go(shared, name, "server")
    ready = shared.wait(name, until="ready", timeout=60)
    assert ready.processes[0].ready
    assert ready.processes[1].state is State.FAILED
    with pytest.raises(TimeoutError, match=f"experiment '{name}' is still running after 0.1 s: server"):
        shared.wait(name, timeout=0.1)


def test_who_is_waited_for_is_told_when_the_time_is_up(shared, name):
    experiment = shared.new_experiment(name)
    unplaced(experiment, "nowhere")
    python(experiment, "there", FOREVER)
    shared.launch(experiment)
    reached(shared, name, lambda status: status.processes[1].ready)
    for until in ("started", "ready"):
        with pytest.raises(
            TimeoutError, match=f"experiment '{name}' is not {until} after 0.1 s: nowhere$"
        ):
            shared.wait(name, until=until, timeout=0.1)
    with pytest.raises(
        SpecError, match="until must be started, ready, ended, not 'redy'; did you mean 'ready'"
    ):
        shared.wait(name, until="redy")


def test_each_change_is_told_once_and_in_order(shared, name):
    experiment = shared.new_experiment(name)
    python(experiment, "p", "import time; time.sleep(1)")
    shared.launch(experiment)
    seen = []
    status = shared.wait(name, timeout=60, on_change=seen.append)
    assert seen[-1] == status
    assert all(before != after for before, after in itertools.pairwise(seen))
    states = [now.processes[0].state for now in seen]
    assert states == sorted(states, key=[State.PENDING, State.RUNNING, State.SUCCEEDED].index)
    assert shared.wait(name, timeout=1) == status
