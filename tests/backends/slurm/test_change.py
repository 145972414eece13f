"""Changing an experiment in its job."""

import json

import pytest

from symphony.errors import AlreadyExists
from symphony.testing import programs
from symphony.testing.contract import all_running, until
from tests.backends.slurm.jobs import PYTHON, forever, job_of

# The server uses the port that symphony would choose next, if no lower port was avoided before, and
# leaves a closed connection at the following one.
SERVER = f"""
import os, socket
names = [name for name in os.environ if name.startswith("SYMPH_") and name.endswith("_PORT")]
next_port = max(int(os.environ[name]) for name in names) + 1
blocked = socket.create_server(("", next_port))
with socket.create_server(("", next_port + 1)) as server:
    with socket.create_connection(("127.0.0.1", next_port + 1)) as client:
        server.accept()[0].close()
        client.recv(1)
print("blocks", next_port, next_port + 1)
{programs.FOREVER}
"""
REPORT = f"{programs.REPORT}\n{programs.FOREVER}"


def describe(cluster, secret, *names):
    """Return an experiment with a server and processes that report their environment."""
    experiment = cluster.new_experiment("faults", secrets={"token": str(secret)})
    server = experiment.new_process("server", command=[PYTHON, "-u", "-c", SERVER])
    server.binds("echo").resource_request(cpu=0.2)
    for name in names:
        process = experiment.new_process(name, command=[PYTHON, "-u", "-c", REPORT])
        process.binds(f"of-{name}").resource_request(cpu=0.1)
    for process in experiment.list_processes():
        process.resource_limit(gpu=1).ready(log="^up", timeout=60)
    return experiment


def report(cluster, name):
    lines = cluster.get_log("faults", name).splitlines()
    return json.loads(lines[0])["env"]


def test_changed_experiment_uses_free_ports_and_gpus_of_its_nodes(new_cluster, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("old")
    cluster = new_cluster(nodes=2)
    cluster.launch(describe(cluster, secret, "one", "two"))
    before = cluster.wait("faults", until="ready", timeout=60)
    env = report(cluster, "two")
    # The processes one and two use the GPUs of the second node.
    assert env["SYMPH_ECHO_HOST"] != env["SYMPH_OF_ONE_HOST"] == env["SYMPH_OF_TWO_HOST"]
    secret.write_text("new")
    changed = describe(cluster, secret, "one", "two", "three")
    changed.get_process("three").set_env_secret("TOKEN", "token")
    assert cluster.diff(changed).summary == "1 added, 3 unchanged"
    cluster.up(changed)
    after = cluster.wait("faults", until="ready", timeout=60)
    assert after.processes[:3] == before.processes
    assert cluster.diff(changed).is_empty
    new = report(cluster, "three")
    assert new["SYMPH_OF_THREE_HOST"] == env["SYMPH_ECHO_HOST"]
    services = ("ECHO", "OF_ONE", "OF_TWO")
    used = {new[f"SYMPH_{service}_PORT"] for service in services}
    used.update(cluster.get_log("faults", "server").split()[1:3])
    assert len(used) == 5
    assert new["SYMPH_OF_THREE_PORT"] not in used
    assert new["CUDA_VISIBLE_DEVICES"] == "1"
    assert new["TOKEN"] == "new"
    # Both processes have the first GPU of their node.
    restarted = cluster.restart_processes("faults", ["server", "one"])
    assert all_running(restarted)


def test_change_that_needs_other_resources_needs_another_job(new_cluster):
    cluster = new_cluster()
    cluster.launch(forever(cluster, "one"))
    until(cluster, "faults", all_running)
    job = job_of(cluster)
    larger = forever(cluster, "one", "two")
    (reason,) = cluster.diff(larger).relaunch
    assert reason == ("the processes on its node would request 2 CPUs, but its job has 1 CPU there")
    with pytest.raises(AlreadyExists, match="its job has 1 CPU there; delete it, or use force"):
        cluster.up(larger)
    (reason,) = new_cluster(qos="high").diff(forever(cluster, "one")).relaunch
    assert reason == "the option qos of its job is not set, not 'high'"
    assert job_of(cluster) == job
    cluster.up(larger, force=True)
    until(cluster, "faults", all_running)
    assert job_of(cluster) != job
