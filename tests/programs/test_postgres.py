"""PostgreSQL closes its database when it is stopped."""

from __future__ import annotations

import os
import pwd

import pytest

PROGRAM = "postgres"


@pytest.fixture
def parameters(example):
    """PostgreSQL refuses to run as root, so root runs it as the user of the package."""
    if os.getuid() != 0:
        return {}
    owner = pwd.getpwnam("postgres")
    data = example.parent / "database"
    data.mkdir()
    os.chown(data, owner.pw_uid, owner.pw_gid)
    # The user must be able to reach the directory of the test.
    for directory in example.parents:
        if directory.owner() == "root" and directory.stat().st_mode & 0o077 == 0:
            directory.chmod(0o711)
    run_as = f"setpriv --reuid={owner.pw_uid} --regid={owner.pw_gid} --clear-groups"
    return {"data": str(data / "data"), "run_as": run_as}


def test_a_restart_closes_the_database_and_keeps_its_rows(
    running, example, parameters, wait_for_line
):
    service = running(example, parameters=parameters)
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
