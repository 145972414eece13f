"""What the tests of the tmux backend share: a tmux server on a socket of its own for every test."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from symphony import Cluster


@pytest.fixture(autouse=True)
def tmux_is_here():
    """Without tmux nothing of this is tested: said loudly, and a failure in CI."""
    if shutil.which("tmux") is None:
        say = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        say("NOT TESTED IN TMUX: there is no tmux; install it (Debian: apt install tmux)")


@pytest.fixture
def sockets(monkeypatch):
    """A folder for the sockets of tmux, with a short path: a socket's path may have some 100 characters."""
    folder = tempfile.mkdtemp(prefix="sy-", dir="/tmp")
    monkeypatch.setenv("TMUX_TMPDIR", folder)
    monkeypatch.delenv("TMUX", raising=False)
    yield Path(folder)
    for socket in Path(folder).glob("tmux-*/*"):
        subprocess.run(["tmux", "-S", str(socket), "kill-server"], check=False, capture_output=True)
    shutil.rmtree(folder)


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
    return to.new_process(name, command=[sys.executable, "-u", "-c", program], args=list(args), **options)


def eventually(holds, timeout=20):
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def tmux(*words, server="test", check=True):
    """What tmux answers, asked without the code under test."""
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["tmux", "-L", server, *words], capture_output=True, text=True, check=False, env=env)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def windows(session="exp", what="#I #W"):
    """The windows of a session."""
    return tmux("list-windows", "-t", f"={session}:", "-F", what).splitlines()


def server_pid():
    return int(tmux("display-message", "-p", "#{pid}"))
