"""Connecting from the login node to the processes of a job."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from symphony.errors import BackendError, NotFound
from symphony.status import State
from symphony.testing import programs
from tests.backends.slurm.jobs import PYTHON, forever, job_of, squeue
from tests.cli.terminal import Terminal

# The question of a debugger, which reads the answer from the terminal.
DEBUGGED = """
import os, sys
print("answer:", flush=True)
answer = input()
print(f"{answer} {tuple(os.get_terminal_size())} {os.uname().nodename}", flush=True)
sys.exit(3 if input() == "end" else 1)
"""
WRITE = "open(os.environ['OUT'], 'w').write('weights')"
LOGIN = """
import sys
from symphony import Cluster
Cluster.new("slurm", state_dir=sys.argv[1]).login("faults", "two")
"""


@pytest.fixture
def attach(new_cluster, tmp_path):
    """A function that attaches a new terminal to the process two of the experiment."""
    terminals = []

    def new(cluster, width=80):
        argv = [PYTHON, "-c", LOGIN, str(cluster._root)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"}
        terminal = Terminal(argv, env=env, cwd=tmp_path, width=width)
        terminals.append(terminal)
        terminal.expect("attached to two; leave with Ctrl-P Ctrl-Q")
        return terminal

    yield new
    for terminal in terminals:
        terminal.close()


@pytest.fixture
def closed_ports():
    """Close the ports of services on the nodes for the login node, as some sites do."""
    rule = ["ipproto", "tcp", "dport", "7000-8999", "prohibit"]
    done = subprocess.run(["ip", "rule", "add", *rule], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the ports cannot be closed: {done.stderr.strip()}")
    yield
    subprocess.run(["ip", "rule", "del", *rule], check=True)


def test_terminals_join_and_leave_a_process_on_another_node(new_cluster, attach):
    cluster = new_cluster(nodes=2)
    experiment = forever(cluster, "one")
    experiment.new_process("two", command=[PYTHON, "-c", DEBUGGED]).tty()
    cluster.launch(experiment)
    cluster.wait("faults", until="started", timeout=60)
    first = attach(cluster, width=90)
    first.press("forty-two\r")
    first.expect("forty-two (90, 24) n")
    first.press("\x10\x11")
    assert first.finish() == 0
    assert cluster.describe_process("faults", "two").state is State.RUNNING
    second, third = attach(cluster), attach(cluster)
    second.press("end\r")
    assert (second.finish(), third.finish()) == (0, 0)
    assert cluster.wait("faults", timeout=60, processes=["two"]).processes[1].exit_code == 3
    first_node = cluster.exec_command("faults", "one", ["uname", "-n"]).stdout.strip()
    assert f"(90, 24) {first_node}" not in cluster.get_log("faults", "two")


def test_services_are_visited_directly_or_through_the_job(new_cluster, request):
    cluster = new_cluster(nodes=2)
    experiment = forever(cluster, "one")
    server = experiment.new_process("two", command=[PYTHON, "-u", "-c", programs.SERVER])
    server.exposes("echo").ready(tcp="echo", timeout=60).set_env("CLIENTS", "1000")
    cluster.launch(experiment)
    cluster.wait("faults", until="ready", timeout=60)
    address = cluster.exposed_services("faults")["echo"]
    with cluster.visit("faults", "echo") as tunnel:
        assert (tunnel.address, tunnel.forwarded) == (address, False)
        assert answer(tunnel, b"direct") == b"DIRECT"
    with cluster.port_forward("faults", "two", int(address.rpartition(":")[2])) as tunnel:
        assert answer(tunnel, b"forwarded") == b"FORWARDED"
    request.getfixturevalue("closed_ports")
    with cluster.visit("faults", "echo") as tunnel:
        assert tunnel.forwarded
        assert answer(tunnel, b"through the job") == b"THROUGH THE JOB"


def answer(tunnel, data):
    host, _, port = tunnel.address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(data)
        return connection.recv(100)


def test_services_of_a_job_in_the_queue_have_no_addresses(new_cluster):
    cluster = new_cluster(sbatch=["--begin=now+1hour"])
    experiment = forever(cluster, "one")
    experiment.get_process("one").exposes("echo")
    cluster.launch(experiment)
    assert cluster.exposed_services("faults") == {"echo": None}
    for connect in (cluster.visit, cluster.port_forward):
        with pytest.raises(BackendError, match="the job of experiment 'faults' has not started"):
            connect("faults", "echo")
    assert squeue("-j", job_of(cluster), "-o", "%T") == "PENDING"


def test_files_on_the_disk_of_a_node_are_copied_through_the_job(new_cluster, tmp_path):
    cluster = new_cluster(nodes=2)
    # Each machine has its own /run.
    directory = f"/run/symphony-copy-{os.getpid()}"
    experiment = forever(cluster, "one")
    program = f"import os; os.makedirs('{directory}/out/deep'); {WRITE}\n{programs.FOREVER}"
    two = experiment.new_process("two", command=[PYTHON, "-u", "-c", program])
    two.set_env("OUT", f"{directory}/out/deep/model").ready(log="^up", timeout=60)
    cluster.launch(experiment)
    cluster.wait("faults", until="ready", timeout=60)
    # The login node has another file with the same path.
    other = Path(directory)
    (other / "out").mkdir(parents=True)
    try:
        cluster.transfer_file("faults", f"two:{directory}/out", str(tmp_path / "back"))
        assert (tmp_path / "back" / "deep" / "model").read_text() == "weights"
        cluster.transfer_file("faults", f"two:{directory}/out/.", str(tmp_path / "back"))
        cluster.transfer_file("faults", str(tmp_path / "back"), f"two:{directory}/new")
        shown = cluster.exec_command("faults", "two", ["cat", f"{directory}/new/deep/model"])
        assert shown.stdout == "weights"
        with pytest.raises(NotFound, match="no such file or directory: /run/"):
            cluster.transfer_file("faults", f"two:{directory}/nothing", str(tmp_path))
        with pytest.raises(NotFound, match="no such directory: /run/.*/nothing"):
            cluster.transfer_file("faults", str(tmp_path / "back"), f"two:{directory}/nothing/x")
        assert [path.name for path in other.rglob("*")] == ["out"]
        run = cluster.implementation.runs.find("faults").path
        assert not list(run.glob("copy-*"))
    finally:
        shutil.rmtree(directory)
        cluster.exec_command("faults", "two", ["rm", "-r", directory])
