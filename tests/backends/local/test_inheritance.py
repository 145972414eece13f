"""What a supervisor inherits from its launcher, and what it must not inherit."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from symphony import Cluster, State
from symphony.host.cluster import HostCluster
from symphony.testing import until

# A server without SO_REUSEADDR cannot bind its port while another process holds it.
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


def is_unused(port: int) -> bool:
    """Return whether no process uses a port and no closed connection is left on it."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_server_can_bind_while_other_processes_are_still_being_started(
    cluster: HostCluster,
) -> None:
    port = next(port for port in range(7300, 8900) if is_unused(port))
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


def test_experiment_launched_by_a_process_outlives_it(tmp_path: Path) -> None:
    state = tmp_path / "nested"
    cluster = Cluster.new("local", state_dir=state)
    outer = cluster.new_experiment("outer")
    outer.new_process("launcher", command=[sys.executable, "-c", LAUNCH, str(state)])
    try:
        cluster.launch(outer)
        assert cluster.wait("outer", timeout=60).exit_code == 0
        # This returns after the supervisor has searched for processes that it must stop.
        cluster.delete("outer")
        until(cluster, "inner", lambda status: status.processes[0].state is State.RUNNING)
    finally:
        cluster.delete_batch(["outer", "inner"])
