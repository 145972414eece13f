"""Fixtures for tests that need a Slurm: `scripts/test --with-slurm`, or the site's own.

With SYMPHONY_TEST_SLURM=1, the tests submit jobs to the Slurm whose programs are on the PATH.
SYMPHONY_TEST_SLURM_DIRECTORY is a directory that its nodes share.
"""

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from symphony.cluster import Cluster
from symphony.testing import BackendContract

VARIABLE = "SYMPHONY_TEST_SLURM"
MISSING = "NOT TESTED AGAINST A SLURM: run scripts/test --with-slurm, or set SYMPHONY_TEST_SLURM=1"


# The tests of the contract that together call the programs of Slurm in each way that the contract
# does. Only these can fail with one version of Slurm alone, because what symphony does without
# Slurm is the same with every version.
_TESTS_OF_EVERY_VERSION = (
    BackendContract.test_a_launched_experiment_is_listed_described_and_found_by_its_names,
    BackendContract.test_force_replaces_a_running_experiment,
    BackendContract.test_every_process_has_the_address_of_every_service,
    BackendContract.test_exit_codes_and_logs_are_kept_after_the_launcher_exits_and_until_the_next_launch,
    BackendContract.test_a_command_runs_in_the_environment_of_a_process,
    BackendContract.test_delete_is_complete_and_idempotent_and_spares_other_programs,
)


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by their markers
def pytest_collection_modifyitems(items):
    for item in items:
        is_slurm = item.path.parent == Path(__file__).parent
        if is_slurm and item.function in _TESTS_OF_EVERY_VERSION:
            item.add_marker("every_slurm")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add to the report of a failed test why nodes are out of service.

    This stays so until somebody resumes them, so all later tests that need these nodes fail too.
    """
    report = yield
    if report.failed and os.environ.get(VARIABLE) == "1":
        reasons = subprocess.run(
            ["sinfo", "--list-reasons", "--noheader"], capture_output=True, text=True, check=False
        )
        nodes = (reasons.stdout + reasons.stderr).strip()
        if nodes:
            report.sections.append(("nodes that are out of service", nodes))
    return report


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
            cluster.delete(name, at_once=True)
