"""What a supervisor inherits from its launcher, and what it must not inherit."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import psutil

from symphony import Cluster, State
from symphony.supervised.cluster import HostCluster
from symphony.testing import until

from .conftest import eventually, supervisor_of

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


UNUSUAL_SIGNALS = """
import os, signal, sys
signals = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
for number in signals:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signals - {signal.SIGCHLD})
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""
LAUNCH_AND_EXEC = """
import sys
from symphony import Cluster
cluster = Cluster.new("local", state_dir=sys.argv[1])
experiment = cluster.new_experiment("exp")
experiment.new_process("fails", cmd="exit 5")
experiment.new_process("reports", cmd="grep -E '^Sig(Blk|Ign)' /proc/self/status; sleep 1000")
cluster.launch(experiment)
print(cluster.exec_command("exp", "reports", ["sh", "-c", "exit 7"]).exit_code)
"""


def test_ignored_and_blocked_signals_of_the_launcher_have_no_effect(
    cluster: HostCluster, state: Path
) -> None:
    launcher = [sys.executable, "-c", UNUSUAL_SIGNALS, LAUNCH_AND_EXEC, str(state)]
    output = subprocess.run(launcher, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert output == "7\n"
    status = until(cluster, "exp", lambda now: now.processes[0].ended is not None)
    assert (status.processes[0].state, status.processes[0].exit_code) == (State.FAILED, 5)
    supervisor = psutil.Process(supervisor_of(cluster))
    eventually(lambda: cluster.get_log("exp", "reports").count("\n") == 2)
    masks = [line.split() for line in cluster.get_log("exp", "reports").splitlines()]
    # The launcher may ignore the internal signals of glibc, because posix_spawn makes it do so.
    internal = sum(1 << (number - 1) for number in (32, 33))
    remaining = {name: int(mask, 16) & ~internal for name, mask in masks}
    assert remaining == {"SigBlk:": 0, "SigIgn:": 0}
    supervisor.terminate()
    supervisor.wait(20)
    assert all(process.stopped for process in cluster.describe_experiment("exp").processes[1:])


def test_ranks_in_a_job_of_slurm_are_its_tasks(cluster, experiment, monkeypatch) -> None:
    """Libraries would otherwise take the task of the launching program for that of each rank."""
    inherited = {"JOB_ID": "7", "NTASKS": "1", "PROCID": "0", "LOCALID": "0", "NNODES": "3"}
    for name, value in inherited.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("SLURMD_NODENAME", "node5")
    names = "$SLURM_JOB_ID $SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID $SLURM_NNODES"
    line = f'echo "{names} $SLURM_STEP_NODELIST $JAX_COORDINATOR_ADDRESS"; echo $MASTER_PORT'
    experiment.new_ranks("rank", 2, cmd=line)
    experiment.new_process("other", cmd="echo $SLURM_PROCID/$SLURM_NTASKS")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60)
    for rank in range(2):
        first, port = cluster.get_log("exp", f"rank-{rank}").splitlines()
        assert first == f"7 {rank}/2 {rank} 1 node5 127.0.0.1:{port}"
    assert cluster.get_log("exp", "other") == "0/1\n"
