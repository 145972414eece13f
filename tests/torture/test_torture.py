"""The short form of `scripts/torture`, and its report of a violation."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torture.trials import TRIALS
from torture.workspace import KUBE

ROOT = Path(__file__).parents[2]
SEED = 200
# With this seed, the Pods need no node, and the experiment uses a shared namespace.
CUT_SEED = 202
# The rounds spend most of their time waiting.
JOBS = 6

# A process leaves its session, its parent and its variables, so `delete` does not find it. The
# trial has recorded it.
BROKEN = """
import sys
from torture import cli
from torture.trial import trial
from torture.workspace import NAME

@trial("broken")
def leave_process(workspace):
    '''A process escapes.'''
    experiment = workspace.cluster().new_experiment(NAME)
    program = (
        "import os, pathlib, sys, time;"
        "fields = open('/proc/self/stat').read().rpartition(') ')[2].split();"
        "pathlib.Path(sys.argv[1], f'{os.getpid()}-{fields[19]}').touch(); time.sleep(1000)"
    )
    line = '(setsid env -i A=b "$@" &); exec sleep 1000'
    escape = [sys.executable, "-I", "-S", "-c", program, str(workspace.recorded)]
    experiment.new_process("p-0", command=["sh", "-c", line, "sh"], args=escape)
    workspace.launch(experiment)
    workspace.wait_for(lambda: list(workspace.recorded.iterdir()), lambda: ["not started"])

sys.exit(cli.main(sys.argv[1:]))
"""


def torture(*arguments, code=None):
    """Run the tool, and return its exit code, its JSON and its messages."""
    program = ["-m", "torture"] if code is None else ["-c", code]
    # A path entry also makes the modules available from which the tests import symphony.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["tools", *sys.path[1:]])}
    done = subprocess.run(
        [sys.executable, *program, "--json", "--quick", *arguments],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


# Most rounds on Kubernetes take too long for CI.
PAIRS = [
    (trial, backend) for trial in TRIALS.values() for backend in trial.backends if backend != KUBE
]


def test_one_round_of_each_trial():
    code, results, messages = torture("--rounds", "1", "--seed", str(SEED), "--jobs", str(JOBS))
    assert code == 0, messages
    possible = {trial.name for trial, backend in PAIRS if not trial.obstacle_on(backend)}
    assert {tally["trial"] for tally in results["trials"]} == possible
    moments = {item["verb"]: sum(item["counts"].values()) for item in results["moments"]}
    assert moments["first up"] == moments["delete"] == 1


@pytest.mark.long
def test_launch_on_kubernetes_is_cut(kube_session, monkeypatch):
    cluster = kube_session.cluster
    monkeypatch.setenv("SYMPHONY_TEST_KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.setenv("SYMPHONY_TEST_IMAGE", cluster.image)
    trial = ["--only", "cut-launch", "--backend", KUBE, "--rounds", "1"]
    code, results, messages = torture(*trial, "--seed", str(CUT_SEED))
    assert code == 0, messages
    (tally,) = results["trials"]
    assert tally["rounds"] == 1


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].name}-{pair[1]}")
def test_trial_can_run_on_this_machine(pair):
    trial, backend = pair
    obstacle = trial.obstacle_on(backend)
    if obstacle:
        pytest.skip(f"NOT TESTED: the trial {trial.name} on {backend}: {obstacle}")


def test_violation_is_reported_and_its_state_is_kept():
    code, results, messages = torture(
        "--only", "broken", "--backend", "local", "--seed", "5", "--rounds", "1", code=BROKEN
    )
    assert code == 1
    (failure,) = results["failures"]
    assert failure["violation"].startswith("process ")
    assert failure["violation"].endswith(" is left")
    expected = "scripts/torture --only broken --backend local --seed 5 --rounds 1 --quick"
    assert failure["command"] == expected
    assert expected in messages
    directory = Path(failure["directory"])
    # The output of the launch and of the delete is among the files.
    assert {path.suffix for path in (directory / "commands").iterdir()} == {".json", ".out", ".err"}
    shutil.rmtree(directory.parent)
