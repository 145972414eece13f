"""What a supervisor inherits from its launcher, and what it must not."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from symphony import Cluster, State
from symphony.host.cluster import HostCluster
from symphony.testing import until

# A server that does not set SO_REUSEADDR: it cannot bind while anybody holds its port.
PLAIN_SERVER = """
import os, socket
socket.socket().bind((os.environ["SYMPH_ECHO_BIND_HOST"], int(os.environ["SYMPH_ECHO_PORT"])))
"""
LAUNCH = """
import sys
from symphony import Cluster
cluster = Cluster.new("local", state_dir=sys.argv[1])
inner = cluster.new_experiment("inner")
inner.new_process("worker", cmd="sleep 600")
cluster.launch(inner)
"""


def unused(port: int) -> bool:
    """Whether nobody uses a port, and no connection of a minute ago is left on it."""
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_a_server_can_bind_while_the_others_are_still_being_started(cluster: HostCluster) -> None:
    port = next(port for port in range(7300, 8900) if unused(port))
    experiment = cluster.new_experiment("holds", port_range=(port, port))
    experiment.new_process("server", command=[sys.executable, "-S", "-c", PLAIN_SERVER]).binds(
        "echo"
    )
    for number in range(200):
        experiment.new_process(f"other-{number}", command="true")
    cluster.launch(experiment)
    cluster.wait("holds", timeout=60)
    assert cluster.get_log("holds", "server") == ""
    assert cluster.describe_process("holds", "server").exit_code == 0


def test_an_experiment_that_a_process_launches_outlives_it(tmp_path: Path) -> None:
    state = tmp_path / "nested"
    cluster = Cluster.new("local", state_dir=state)
    outer = cluster.new_experiment("outer")
    outer.new_process("launcher", command=[sys.executable, "-c", LAUNCH, str(state)])
    try:
        cluster.launch(outer)
        assert cluster.wait("outer", timeout=60).exit_code == 0
        cluster.delete(
            "outer"
        )  # returns when its supervisor has had its last look for what it must stop
        until(cluster, "inner", lambda status: status.processes[0].state is State.RUNNING)
    finally:
        cluster.delete_batch(["outer", "inner"])
