"""Experiments on several nodes."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from symphony.cluster import Cluster
from symphony.model import Experiment
from symphony.testing import programs, until
from tests.examples import messaging

PYTHON = [sys.executable, "-u", "-c"]
EXAMPLES = Path(__file__).parents[3] / "examples"
# A Python that has PyTorch; see docs/testing.md.
TORCH = os.environ.get("SYMPHONY_TEST_TORCH", "")


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster.new("slurm", state_dir=str(tmp_path / "state"), nodes=2)
    yield cluster
    for name in cluster.list_experiments():
        cluster.delete(name)


def test_services_gpus_and_groups_on_two_nodes(cluster):
    experiment = cluster.new_experiment("nodes")
    server = experiment.new_process("server", command=[*PYTHON, programs.SERVER]).binds("echo")
    # The command of the test runs on the node of the process.
    server.ready(command=["sh", "-c", "hostname > ready; grep -q n ready"], timeout=60)
    server.resource_limit(gpu=1)
    team = experiment.new_process_group("team")
    team.new_process("client", command=[*PYTHON, programs.CLIENT]).connects("echo")
    team.starts_after("server", "ready")
    report = f"import os; print(os.uname().nodename); {programs.REPORT.strip()}"
    for name in ("one", "two"):
        team.new_process(name, command=[*PYTHON, report]).resource_limit(gpu=1)
    experiment.start_dir = str(cluster._root.parent)
    cluster.launch(experiment)
    status = cluster.wait("nodes", timeout=60)
    assert status.exit_code == 0
    assert cluster.get_log("nodes", "client") == "HELLO\n"
    outputs = [cluster.get_log("nodes", name).splitlines() for name in ("one", "two")]
    nodes = {output[0] for output in outputs}
    reports = [json.loads(output[1])["env"] for output in outputs]
    assert len(nodes) == 1
    # The processes of a node have different GPUs.
    assert sorted(env["CUDA_VISIBLE_DEVICES"] for env in reports) == ["0", "1"]
    server_node = (cluster._root.parent / "ready").read_text().strip()
    assert nodes != {server_node}
    assert reports[0]["SYMPH_ECHO_HOST"] == server_node
    assert reports[0]["SLURM_JOB_NUM_NODES"] == "2"
    # The processes do not inherit the task of their agent.
    assert not {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"} & reports[0].keys()
    assert [process.node for process in status] == [server_node, *[*nodes] * 3]


def test_ranks_on_two_nodes_find_each_other(cluster):
    experiment = cluster.new_experiment("nodes")
    for rank in experiment.new_ranks("unit", 4, command=[*PYTHON, programs.RANK]):
        rank.resource_limit(gpu=1)
    cluster.launch(experiment)
    status = cluster.wait("nodes", timeout=60)
    assert [process.exit_code for process in status if process.exit_code == 3] == [3]
    assert all(process.failed for process in status)
    slots = cluster.implementation.runs.find("nodes").load_manifest()["slots"]
    assert set(slots.values()) == {0, 1}
    for number in range(4):
        assert cluster.get_log("nodes", f"unit-{number}") == f"rank {number} of 4\n"


def test_messaging_example_on_four_nodes(new_cluster, monkeypatch):
    pytest.importorskip("zmq")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    example = EXAMPLES / "zmq" / "patterns.py"
    patterns = Experiment("nodes")
    runpy.run_path(str(example))["build"](patterns)
    description = patterns.dump_dict()
    groups = description["processes"].values()
    # On four nodes, the members of a group must be able to run on different nodes.
    description["processes"] = {
        name: process for group in groups for name, process in group["processes"].items()
    }
    experiment = Experiment.load_dict(description)
    experiment.base_dir = example.parent
    cluster = new_cluster(nodes=4)
    cluster.launch(experiment)
    status = cluster.wait("nodes", timeout=60)
    logs = {process.name: cluster.get_log("nodes", process.name) for process in status}
    assert status.exit_code == 0, logs
    messaging.check(example, logs)
    assert nodes_of(cluster, "nodes") == 4


def test_torch_example_trains_on_four_nodes(new_cluster, tmp_path):
    if not os.access(TORCH, os.X_OK):
        pytest.skip("no Python with PyTorch: set SYMPHONY_TEST_TORCH")
    parameters = {"python": TORCH, "checkpoint": str(tmp_path / "training.pt")}
    experiment = Experiment.load_file(EXAMPLES / "torch" / "torch.yml", parameters=parameters)
    cluster = new_cluster(nodes=4)
    cluster.launch(experiment)
    status = cluster.wait("torch", timeout=100)
    logs = [cluster.get_log("torch", process.name) for process in status]
    assert status.exit_code == 0, logs
    learned = [f"rank {rank} of 4 has learned 3.000" for rank in range(4)]
    assert [log.splitlines()[-1] for log in logs] == learned
    assert nodes_of(cluster, "torch") == 4


def nodes_of(cluster, name):
    """Return the number of nodes on which the processes of an experiment run."""
    return len(set(cluster.implementation.runs.find(name).load_manifest()["slots"].values()))


@pytest.fixture
def symphony(tmp_path, monkeypatch):
    """A function that runs a command of symphony, whose experiments are in ``tmp_path``."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path))

    def run(command, *arguments):
        argv = [sys.executable, "-m", "symphony", command, "-b", "slurm", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120)

    return run


def test_replicas_of_a_submitted_command_run_on_two_nodes(symphony):
    command = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES of $SLURM_JOB_NUM_NODES; exit ${index}"]
    options = ["--name=sweep", "--replicas=2", "--gpu=1", "--time=5m", "--nodes=2", "--follow"]
    done = symphony("submit", *options, "--", *command)
    symphony("delete", "--force", "sweep")
    assert done.returncode == 1, done.stderr
    assert sorted(done.stdout.splitlines()) == ["main-0 | 0 of 2", "main-1 | 0 of 2"]
    assert "process main-1 exited with 1" in done.stderr


def test_reinforcement_learning_example_runs_on_four_nodes(symphony, tmp_path, monkeypatch):
    """The page of the example shows that it learns."""
    pytest.importorskip("zmq")
    config = tmp_path / "short.yml"
    config.write_text("{agents: 4, evaluators: 1, run: {updates: 50}}")
    monkeypatch.setenv("RL_CONFIG", str(config))
    experiment = EXAMPLES / "rl" / "experiment.py"
    done = symphony("launch", str(experiment), "--nodes=4", "--follow")
    assert done.returncode == 0, done.stderr
    assert re.search(r"mean return -100.0 at first, \S+ at last", done.stdout)
    nodes = json.loads((tmp_path / "slurm" / "rl" / "nodes.json").read_text())["nodes"]
    assert len({node["name"] for node in nodes}) == 4
    assert symphony("delete", "--force", "rl").returncode == 0


def test_processes_with_the_same_gpu_of_two_nodes_are_restarted(cluster):
    experiment = cluster.new_experiment("nodes")
    for name in ("one", "two"):
        process = experiment.new_process(name, command=[*PYTHON, programs.FOREVER])
        process.resource_limit(gpu=1).ready(log="^up", timeout=60)
    cluster.launch(experiment)
    cluster.wait("nodes", until="ready", timeout=60)
    restarted = cluster.restart_processes("nodes")
    assert [process.state.value for process in restarted] == ["running", "running"]


DAEMON = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
"""


def test_the_status_names_the_daemon_of_a_process_on_a_node(cluster, tmp_path):
    file = tmp_path / "end"
    experiment = cluster.new_experiment("exp")
    experiment.new_process("on", command=["sleep", "1000"])
    experiment.new_process("server", command=[*PYTHON, DAEMON, str(file)])
    cluster.launch(experiment)

    def reason(status):
        return {process.name: process.reason for process in status}["server"]

    until(cluster, "exp", lambda now: " is running; " in reason(now))
    file.touch()
    until(cluster, "exp", lambda now: " has exited; " in reason(now))
