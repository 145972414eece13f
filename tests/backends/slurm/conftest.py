"""Fixtures for tests that need a Slurm: `scripts/test --with-slurm`, or the site's own.

With SYMPHONY_TEST_SLURM=1, the tests submit jobs to the Slurm whose programs are on the PATH.
SYMPHONY_TEST_SLURM_DIRECTORY is a directory that its nodes share.
"""

import os
import shutil
import uuid
from pathlib import Path

import pytest

from symphony.cluster import Cluster

VARIABLE = "SYMPHONY_TEST_SLURM"
MISSING = "NOT TESTED AGAINST A SLURM: run scripts/test --with-slurm, or set SYMPHONY_TEST_SLURM=1"


@pytest.fixture(autouse=True)
def slurm(monkeypatch):
    if os.environ.get(VARIABLE) != "1":
        if "CI" in os.environ:
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    # All tests use the same directory, so that only the first launch checks the nodes.
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(shared_directory() / "state"))


def shared_directory():
    default = Path.home() / ".cache" / "symphony-test"
    return Path(os.environ.get("SYMPHONY_TEST_SLURM_DIRECTORY", default))


@pytest.fixture
def tmp_path():
    """A directory that all nodes share."""
    path = shared_directory() / uuid.uuid4().hex[:12]
    path.mkdir(parents=True, mode=0o700)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def new_cluster(tmp_path):
    """A function that returns a cluster. Its experiments are deleted at the end."""
    clusters = []

    def new(**options):
        cluster = Cluster.new("slurm", **{"state_dir": str(tmp_path / "state"), **options})
        clusters.append(cluster)
        return cluster

    yield new
    for cluster in clusters:
        for name in cluster.list_experiments():
            cluster.delete(name)
