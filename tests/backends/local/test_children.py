"""Children of the supervisor: the environment that they inherit, and their observed exits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony import Cluster, Experiment, State
from symphony.plan.restart_policy import Backoff
from symphony.status import ENDED
from symphony.supervised.cluster import HostCluster
from symphony.supervised.processes.environment import read_environment
from symphony.supervised.processes.inherited_environment import InheritedEnvironment
from symphony.testing import until

COMMON = {"PATH": os.environ["PATH"], "HOME": "/", "EMPTY": ""}
# pytest imports readline, which sets these variables without Python.
READLINE_VARIABLES = {"LINES", "COLUMNS"}


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """Restore the environment of this process after each test."""
    before = dict(os.environ)
    yield
    InheritedEnvironment().set(before, {})


def inherited() -> dict[str, str]:
    """Return the environment that a child inherits."""
    output = subprocess.run(["env", "-0"], capture_output=True, check=True).stdout
    pairs = [os.fsdecode(line).partition("=") for line in output.split(b"\0") if line]
    return {name: value for name, _, value in pairs if name not in READLINE_VARIABLES}


# --- the environment ---


def test_child_has_common_and_own_variables_and_none_of_the_previous_child() -> None:
    env = InheritedEnvironment()
    env.set(COMMON, {"OWN": "1", "HOME": "/one", "SAME": "s"})
    assert inherited() == {**COMMON, "OWN": "1", "HOME": "/one", "SAME": "s"}
    env.set(COMMON, {"OTHER": "ü\n$x", "SAME": "s"})
    assert inherited() == {**COMMON, "OTHER": "ü\n$x", "SAME": "s"}
    env.set(COMMON, {})
    assert inherited() == COMMON
    other = {"PATH": COMMON["PATH"], "NEW": "n"}
    env.set(COMMON, {"OWN": "1"})
    env.set(other, {"NEW": "mine"})
    assert inherited() == {**other, "NEW": "mine"}
    env.set(other, {})
    assert inherited() == other


@pytest.mark.parametrize(
    ("name", "error"), [("", OSError), ("a=b", ValueError), ("a\0b", ValueError)]
)
def test_invalid_variable_does_not_affect_the_next_child(name: str, error: type[Exception]) -> None:
    env = InheritedEnvironment()
    env.set(COMMON, {"HOME": "/one"})
    with pytest.raises(error):
        env.set(COMMON, {"OWN": "1", "HOME": "/two", name: "x", "LATER": "2"})
    env.set(COMMON, {"NEXT": "n"})
    assert inherited() == {**COMMON, "NEXT": "n"}


def test_invalid_common_variables_are_set_again() -> None:
    env = InheritedEnvironment()
    env.set(COMMON, {"OWN": "1"})
    broken = {"A": "1", "": "x", **COMMON}
    for _ in range(2):
        with pytest.raises(OSError, match="Invalid argument"):
            env.set(broken, {})
    env.set(COMMON, {})
    assert inherited() == COMMON


def test_variable_without_a_name_is_inherited() -> None:
    """No program can set one, but a program may be started with one."""
    code = (
        "import os, subprocess;"
        "from symphony.supervised.processes.inherited_environment import InheritedEnvironment;"
        "InheritedEnvironment().set(dict(os.environ), {'OWN': '1'});"
        "subprocess.run(['env', '-0'])"
    )
    words = ["env", "-i", "=x", f"PATH={COMMON['PATH']}", f"PYTHONPATH={os.pathsep.join(sys.path)}"]
    output = subprocess.run(
        [*words, sys.executable, "-c", code], capture_output=True, check=True
    ).stdout
    assert {b"=x", b"OWN=1"} < set(output.split(b"\0"))


REPORT = """
import json, os
print(json.dumps({name: os.environ.get(name) for name in ("OWN", "COLOUR", "OTHERS")}))
"""


def test_restarts_and_probes_have_the_environment_of_their_process(
    state: Path, tmp_path: Path
) -> None:
    cluster = Cluster.new(
        "local", state_dir=state, backoff=Backoff(first=0.05, longest=0.1, reset=600)
    )
    experiment = cluster.new_experiment("exp")
    experiment.set_env("COLOUR", "all")
    report = [sys.executable, "-S", "-c", REPORT]
    first = experiment.new_process("first", command=report).set_envs({"OWN": "1", "COLOUR": "red"})
    first.restart_policy("Always")
    probe = (
        "test $OWN$COLOUR = 2green && test -z $OTHERS"
        f" && echo $OWN$COLOUR$OTHERS > {tmp_path}/probed"
    )
    second = experiment.new_process("second", command=["sleep", "1000"]).set_envs(
        {"OWN": "2", "COLOUR": "green"}
    )
    second.ready(command=["sh", "-c", probe])
    experiment.new_process("third", command=["sleep", "1000"]).set_env("OTHERS", "3")
    try:
        cluster.launch(experiment)
        until(cluster, "exp", lambda now: now.processes[0].restarts >= 3 and now.processes[1].ready)
        lines = cluster.get_log("exp", "first").splitlines()
        assert len(lines) >= 3
        assert {json.dumps(json.loads(line)) for line in lines} == {
            json.dumps({"OWN": "1", "COLOUR": "red", "OTHERS": None})
        }
        assert (tmp_path / "probed").read_text() == "2green\n"
        assert (
            cluster.exec_command("exp", "third", ["sh", "-c", "echo $OWN-$COLOUR-$OTHERS"]).stdout
            == "-all-3\n"
        )
    finally:
        cluster.delete("exp")


def test_environment_of_a_process_during_exec_can_be_read() -> None:
    """`Popen` may return before the kernel has set up the environment of the child."""
    for _ in range(200):
        with subprocess.Popen(["sleep", "1000"], env=COMMON) as child:
            found = read_environment(child.pid)
            child.kill()
        assert found is not None
        assert found.variables == COMMON


# --- exits ---

FEW_DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
from symphony import Cluster
cluster = Cluster.new("local", state_dir=sys.argv[1])
experiment = cluster.new_experiment("exp")
{}
cluster.launch(experiment)
"""
MANY = """
for number in range(120):
    experiment.new_process(f"p-{number}", cmd=f"exit {number % 3}")
fails_once = "test -e again && exit 0; touch again; exit 7"
experiment.new_process("again", cmd=fails_once, start_dir=sys.argv[1])
experiment.get_process("again").restart_policy("OnFailure")
experiment.new_process("lives", command=["sleep", "1000"])
"""
ONE_EXITS = """
experiment.new_process("p", cmd="exit 3")
for number in range(20):
    experiment.new_process(f"lives-{number}", command=["sleep", "1000"])
"""


@pytest.mark.parametrize("limit", [40, 100], ids=["no pidfds", "some pidfds"])
def test_more_processes_than_descriptors(cluster: HostCluster, state: Path, limit: int) -> None:
    code = FEW_DESCRIPTORS.replace("{}", MANY)
    subprocess.run([sys.executable, "-c", code, str(state), str(limit)], check=True)
    status = until(
        cluster, "exp", lambda now: all(process.state in ENDED for process in now.processes[:-1])
    )
    assert status.processes[-1].state is State.RUNNING
    assert [process.exit_code for process in status] == [number % 3 for number in range(120)] + [
        0,
        None,
    ]
    assert status.processes[120].restarts == 1
    assert status.note == ""


def test_exit_before_signals_are_handled_is_observed(cluster: HostCluster, state: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", FEW_DESCRIPTORS.replace("{}", ONE_EXITS), str(state), "40"],
        check=True,
    )
    assert (
        until(cluster, "exp", lambda now: now.processes[0].state in ENDED).processes[0].exit_code
        == 3
    )


def test_exit_before_the_pidfd_is_opened_is_observed(
    cluster: HostCluster, experiment: Experiment
) -> None:
    """The first process exits long before the last one starts. Pidfds are opened after that."""
    for number in range(100):
        experiment.new_process(f"p-{number}", command=["sh", "-c", f"exit {number % 5}"])
    cluster.launch(experiment)
    status = cluster.wait("exp", timeout=60)
    assert [process.exit_code for process in status] == [number % 5 for number in range(100)]
