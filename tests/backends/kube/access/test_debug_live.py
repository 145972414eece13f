"""The command debug with a real Pod, whose debugpy belongs to its snapshot of code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import debugpy

from symphony import Cluster, Experiment
from tests.dap import DebugClient

MAIN = """
import time
def train(rate):
    loss = rate * 21
    return loss
while True:
    print("loss", train(2), flush=True)
    time.sleep(0.1)
"""
LINE = 5


def test_a_debugger_stops_the_program_in_a_pod(kube_cluster: Any, tmp_path: Path) -> None:
    # Without its compiled modules and their sources, debugpy fits in a Secret.
    unused = shutil.ignore_patterns("*.so", "*.c", "*.pyx", "__pycache__")
    shutil.copytree(Path(debugpy.__file__).parent, tmp_path / "debugpy", ignore=unused)
    (tmp_path / "main.py").write_text(MAIN)
    cluster = Cluster.new(
        "kube", kubeconfig=kube_cluster.kubeconfig, namespace=kube_cluster.namespace
    )
    experiment = Experiment("debugged", code=tmp_path)
    image = kube_cluster.image
    learner = experiment.new_process("learner", container_image=image, command=["python3"])
    learner.args = ["-u", "main.py"]
    learner.ready(log="^loss").termination_grace_period(0).restart_policy("OnFailure")
    experiment.new_process("other", container_image=image, command=["sleep", "1000"])
    options = ["--kubeconfig", kube_cluster.kubeconfig, "--namespace", kube_cluster.namespace]
    command = [sys.executable, "-m", "symphony", "debug", "-b", "kube", *map(str, options)]
    try:
        cluster.launch(experiment)
        cluster.wait("debugged", until="started", timeout=60)
        other = cluster.describe_process("debugged", "other")
        # The process keeps its code, and no other process restarts because of an edit.
        (tmp_path / "main.py").write_text("edited")
        with subprocess.Popen(
            [*command, "debugged", "learner", "--json"], stdout=subprocess.PIPE, text=True
        ) as run:
            assert run.stdout is not None
            shown = json.loads(run.stdout.readline())
            (mapping,) = shown["configuration"]["pathMappings"]
            assert mapping == {"localRoot": str(tmp_path), "remoteRoot": "/symphony/code"}
            client = DebugClient(shown["configuration"]["connect"], [mapping])
            frame = client.stop_at(str(tmp_path / "main.py"), LINE)
            assert client.evaluate("loss", frame) == "42"
            client.disconnect()
            assert run.wait(timeout=60) == 0
        assert cluster.debugged_processes("debugged") == {}
        cluster.wait("debugged", until="ready", timeout=60)
        assert cluster.describe_process("debugged", "learner").ready
        assert cluster.describe_process("debugged", "other") == other
        restored = cluster.described_experiment("debugged")
        assert cluster.diff(restored).is_empty
        assert restored.dump_dict()["processes"]["learner"]["args"] == ["-u", "main.py"]
    finally:
        cluster.delete("debugged")
