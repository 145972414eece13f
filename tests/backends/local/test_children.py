"""Plain children: the environment that each inherits, and how their ends are learned of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony import Cluster, Experiment, State
from symphony.host.cluster import HostCluster
from symphony.host.processes.tree import read_environment
from symphony.host.supervisor.restart_policy import Backoff
from symphony.status import ENDED
from symphony.testing import until
from symphony_local.environment import InheritedEnvironment

COMMON = {"PATH": os.environ["PATH"], "HOME": "/", "EMPTY": ""}
READLINES = {"LINES", "COLUMNS"}  # readline, which pytest imports, sets them behind Python's back


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """This process's environment, put back as it was."""
    before = dict(os.environ)
    yield
    InheritedEnvironment().set(before, {})


def inherited() -> dict[str, str]:
    """What a child is given that is told nothing."""
    said = subprocess.run(["env", "-0"], capture_output=True, check=True).stdout
    pairs = [os.fsdecode(line).partition("=") for line in said.split(b"\0") if line]
    return {name: value for name, _, value in pairs if name not in READLINES}


# --- the environment ---


def test_each_child_has_the_common_variables_with_its_own_above_and_nothing_of_the_last() -> None:
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
def test_a_variable_that_cannot_be_set_leaves_nothing_to_the_next_child(
    name: str, error: type[Exception]
) -> None:
    env = InheritedEnvironment()
    env.set(COMMON, {"HOME": "/one"})
    with pytest.raises(error):
        env.set(COMMON, {"OWN": "1", "HOME": "/two", name: "x", "LATER": "2"})
    env.set(COMMON, {"NEXT": "n"})
    assert inherited() == {**COMMON, "NEXT": "n"}


def test_common_variables_that_cannot_be_set_are_tried_again() -> None:
    env = InheritedEnvironment()
    env.set(COMMON, {"OWN": "1"})
    broken = {"A": "1", "": "x", **COMMON}
    for _ in range(2):
        with pytest.raises(OSError, match="Invalid argument"):
            env.set(broken, {})
    env.set(COMMON, {})
    assert inherited() == COMMON


def test_a_variable_without_a_name_is_inherited_as_it_came() -> None:
    """Nobody can set one, but a program may begin with one."""
    code = (
        "import os, subprocess; from symphony_local.environment import InheritedEnvironment;"
        "InheritedEnvironment().set(dict(os.environ), {'OWN': '1'});"
        "subprocess.run(['env', '-0'])"
    )
    begun = ["env", "-i", "=x", f"PATH={COMMON['PATH']}", f"PYTHONPATH={os.pathsep.join(sys.path)}"]
    said = subprocess.run(
        [*begun, sys.executable, "-c", code], capture_output=True, check=True
    ).stdout
    assert {b"=x", b"OWN=1"} < set(said.split(b"\0"))


REPORT = "import json, os; print(json.dumps({k: os.environ.get(k) for k in ('OWN', 'COLOUR', 'OTHERS')}))"


def test_restarts_and_probes_have_the_environment_of_their_process_and_not_of_the_last_that_started(
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
    probe = f"test $OWN$COLOUR = 2green && test -z $OTHERS && echo $OWN$COLOUR$OTHERS > {tmp_path}/probed"
    second = experiment.new_process("second", command=["sleep", "1000"]).set_envs(
        {"OWN": "2", "COLOUR": "green"}
    )
    second.ready(command=["sh", "-c", probe])
    experiment.new_process("third", command=["sleep", "1000"]).set_env("OTHERS", "3")
    try:
        cluster.launch(experiment)
        until(cluster, "exp", lambda now: now.processes[0].restarts >= 3 and now.processes[1].ready)
        said = cluster.get_log("exp", "first").splitlines()
        assert len(said) >= 3
        assert {json.dumps(json.loads(line)) for line in said} == {
            json.dumps({"OWN": "1", "COLOUR": "red", "OTHERS": None})
        }
        assert (tmp_path / "probed").read_text() == "2green\n"
        assert (
            cluster.exec_command("exp", "third", ["sh", "-c", "echo $OWN-$COLOUR-$OTHERS"]).stdout
            == "-all-3\n"
        )
    finally:
        cluster.delete("exp")


def test_an_environment_is_seen_of_who_has_not_quite_become_its_program() -> None:
    """`Popen` returns when there is no way back for its child, which may be before its environment is in place."""
    for _ in range(200):
        with subprocess.Popen(["sleep", "1000"], env=COMMON) as child:
            seen = read_environment(child.pid)
            child.kill()
        assert seen == COMMON


# --- their ends ---

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
experiment.new_process("again", cmd="test -e again && exit 0; touch again; exit 7", start_dir=sys.argv[1])
experiment.get_process("again").restart_policy("OnFailure")
experiment.new_process("lives", command=["sleep", "1000"])
"""
ONE_ENDS = """
experiment.new_process("p", cmd="exit 3")
for number in range(20):
    experiment.new_process(f"lives-{number}", command=["sleep", "1000"])
"""


@pytest.mark.parametrize("limit", [40, 100])  # too few for any pidfd, and for some only
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


def test_an_end_that_came_before_signals_were_heeded_is_seen(
    cluster: HostCluster, state: Path
) -> None:
    subprocess.run(
        [sys.executable, "-c", FEW_DESCRIPTORS.replace("{}", ONE_ENDS), str(state), "40"],
        check=True,
    )
    assert (
        until(cluster, "exp", lambda now: now.processes[0].state in ENDED).processes[0].exit_code
        == 3
    )


def test_an_end_that_came_before_it_was_watched_for_is_seen(
    cluster: HostCluster, experiment: Experiment
) -> None:
    """The first of many has ended long before the last has started, and pidfds are opened after that."""
    for number in range(100):
        experiment.new_process(f"p-{number}", command=["sh", "-c", f"exit {number % 5}"])
    cluster.launch(experiment)
    status = cluster.wait("exp", timeout=60)
    assert [process.exit_code for process in status] == [number % 5 for number in range(100)]
