"""Fixtures and helpers of the tests of the local backend."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from symphony import Cluster
from symphony.supervised.record.directory import RunDirectory
from tests import supervision
from tests.supervision import kill as kill
from tests.supervision import wait_pid as wait_pid


@pytest.fixture
def state(tmp_path) -> Iterator[Path]:
    """The directory of the run directories. At the end, the experiments in it are deleted."""
    state = tmp_path / "state"
    yield state
    cluster = Cluster.new("local", state_dir=str(state))
    for name in cluster.list_experiments():
        cluster.delete(name, at_once=True)


@pytest.fixture
def cluster(state):
    return Cluster.new("local", state_dir=str(state))


@pytest.fixture
def experiment(cluster):
    return cluster.new_experiment("exp")


def python(to, name, program, *args, **options):
    """Add a process that runs a Python program with unbuffered output."""
    return to.new_process(
        name, command=[sys.executable, "-u", "-c", program], args=list(args), **options
    )


def supervisor_of(cluster, name="exp"):
    """Return the pid of the supervisor of an experiment."""
    return RunDirectory(cluster._root / name).supervisor().pid


def guardian_of(cluster, name="exp"):
    """Return the pid of the guardian of an experiment."""
    return RunDirectory(cluster._root / name).guardian()


def kill_supervision(cluster, name="exp"):
    """Kill the supervisor of an experiment and its guardian, so that neither replaces the other."""
    supervision.kill_supervision(RunDirectory(cluster._root / name))


def run_id_of(cluster, name="exp"):
    """Return the identifier of the run of an experiment."""
    return RunDirectory(cluster._root / name).load_manifest()["run_id"]


def marked(run_id):
    """Return the pids of all processes of a run, without using the code under test."""
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


def eventually(holds, timeout=20):
    """Wait for a condition of the operating system that cannot be observed as an event."""
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.01)
