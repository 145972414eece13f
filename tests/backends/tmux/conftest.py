"""Fixtures of the tests of the tmux backend: each test has its own tmux server."""

import json
import os
import subprocess
import sys
import time

import pytest

from symphony import Cluster


@pytest.fixture(autouse=True)
def sockets(tmux_sockets):
    """Return the directory of the sockets of the servers. Without tmux, the tests are skipped."""
    return tmux_sockets


@pytest.fixture
def options(tmp_path, sockets):
    return {"state_dir": str(tmp_path / "state"), "server_name": "test"}


@pytest.fixture
def cluster(options):
    cluster = Cluster.new("tmux", **options)
    yield cluster
    for name in cluster.list_experiments():
        cluster.delete(name, at_once=True)


@pytest.fixture
def experiment(cluster):
    return cluster.new_experiment("exp")


def python(parent, name, program, *args, **options):
    """Add a process that runs an unbuffered Python program to an experiment or a group."""
    command = [sys.executable, "-u", "-c", program]
    return parent.new_process(name, command=command, args=list(args), **options)


def eventually(condition, timeout=20):
    """Wait until ``condition`` returns a true value, at most ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.01)


def tmux(*arguments, server="test", check=True):
    """Run a tmux command without the code under test, and return its output."""
    command = ["tmux", "-L", server, *arguments]
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def new_session(name, server="test"):
    """Create a session that does not belong to symphony."""
    tmux("-f", "/dev/null", "new-session", "-d", "-s", name, "sleep", "1000", server=server)


def windows(session="exp", format="#I #W"):
    """Return a line for each window of a session."""
    return tmux("list-windows", "-t", f"={session}:", "-F", format).splitlines()


def server_pid():
    return int(tmux("display-message", "-p", "#{pid}"))


def first_process(cluster):
    return cluster.describe_experiment("exp").processes[0]


def run_directory(cluster, name="exp"):
    return cluster._root / name


def run_id(cluster, name="exp"):
    manifest = json.loads((run_directory(cluster, name) / "manifest.json").read_text())
    return manifest["run_id"]


def supervisor_pid(cluster):
    return json.loads((run_directory(cluster) / "supervisor.json").read_text())["pid"]
