"""What the tests of the tmux backend share: a tmux server on a socket of its own for every test."""

import os
import subprocess
import sys
import time

import pytest

from symphony import Cluster


@pytest.fixture(autouse=True)
def sockets(tmux_sockets):
    """The folder of the servers' sockets; without tmux nothing of this is tested."""
    return tmux_sockets


@pytest.fixture
def options(tmp_path, sockets):
    return {"state_dir": str(tmp_path / "state"), "server_name": "test"}


@pytest.fixture
def cluster(options):
    cluster = Cluster.new("tmux", **options)
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


def eventually(holds, timeout=20):
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def tmux(*words, server="test", check=True):
    """What tmux answers, asked without the code under test."""
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["tmux", "-L", server, *words], capture_output=True, text=True, check=False, env=env
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def windows(session="exp", what="#I #W"):
    """The windows of a session."""
    return tmux("list-windows", "-t", f"={session}:", "-F", what).splitlines()


def server_pid():
    return int(tmux("display-message", "-p", "#{pid}"))
