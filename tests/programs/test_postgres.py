"""PostgreSQL closes its database when it is stopped."""

from __future__ import annotations

import pytest

PROGRAM = "postgres"


@pytest.fixture
def reachable_example(example):
    """Root runs PostgreSQL as another user, who must be able to reach the directory of the test."""
    for directory in example.parents:
        if directory.owner() == "root" and directory.stat().st_mode & 0o077 == 0:
            directory.chmod(0o711)
    return example


def test_a_restart_closes_the_database_and_keeps_its_rows(
    running, reachable_example, wait_for_line
):
    service = running(reachable_example)
    wait_for_line(service, "app", "2")
    service.cluster.restart_processes(service.name, ["postgres"])
    service.cluster.wait(service.name, until="ready", timeout=60)
    log = service.log("postgres")
    assert "received fast shutdown request" in log
    assert "database system is shut down" in log
    assert "was not properly shut down" not in log
    assert int(service.exec("app", ["psql", "-XAtc", "select count(*) from numbers"]).stdout) >= 2
    # The migration has succeeded, and has not run again.
    assert service.log("migrate").count("CREATE TABLE") == 1
