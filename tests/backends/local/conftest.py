"""What the tests of the local backend share."""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from symphony import Cluster
from symphony.host.run.directory import RunDirectory


@pytest.fixture
def state(tmp_path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def cluster(state):
    cluster = Cluster.new("local", state_dir=str(state))
    yield cluster
    for name in cluster.list_experiments():
        cluster.delete(name)


@pytest.fixture
def experiment(cluster):
    return cluster.new_experiment("exp")


def python(to, name, program, *args, **options):
    """A process that runs a Python program, unbuffered."""
    return to.new_process(
        name, command=[sys.executable, "-u", "-c", program], args=list(args), **options
    )


def supervisor_of(cluster, name="exp"):
    """The id of the process that supervises an experiment."""
    return RunDirectory(cluster._root / name).supervisor().pid


def run_id_of(cluster, name="exp"):
    """The mark of an experiment's processes."""
    return RunDirectory(cluster._root / name).load_manifest()["run_id"]


def marked(run_id):
    """Ids of all processes that carry a mark, found without the code under test."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get("SYMPHONY_RUN") == run_id
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def kill(pid):
    """End a process that a test started, and wait until it has gone."""
    handle = os.pidfd_open(pid)
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    wait_pid(handle)


def wait_pid(handle, timeout=20):
    import select

    poll = select.poll()
    poll.register(handle, select.POLLIN)
    assert poll.poll(timeout * 1000), "the process did not end"
    os.close(handle)


def eventually(holds, timeout=20):
    """Wait for something of the operating system that tells nobody when it changes."""
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)
