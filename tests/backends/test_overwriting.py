"""Programs that overwrite their environment are stopped, on every backend of this machine."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from symphony import Cluster, ExperimentStatus, State
from symphony.supervised.cluster import HostCluster
from symphony.supervised.processes.identity import program_name
from symphony.supervised.processes.process_groups import wait_for_exit
from symphony.supervised.record.directory import RunDirectory
from symphony.testing import until
from tests.overwriting import (
    DAEMONIZING,
    LEAVING_A_DAEMON,
    OVERWRITING,
    running,
    watched,
)

READY = 2


def pids_of(cluster: Cluster) -> list[int]:
    names = [process.name for process in cluster.describe_experiment("exp")]
    lines = [line for name in names for line in cluster.get_log("exp", name).splitlines()]
    return [int(line.split()[1]) for line in lines if line.startswith("up ")]


@pytest.mark.parametrize("supervisor", ["running", "killed"])
def test_delete_stops_programs_that_overwrite_their_environment(
    machine: HostCluster, supervisor: str
) -> None:
    experiment = machine.new_experiment("exp")
    for name, program in (("overwrites", OVERWRITING), ("daemonizes", DAEMONIZING)):
        process = experiment.new_process(name, command=[sys.executable, "-c", program])
        process.ready(log="up").termination_grace_period(1)
    machine.launch(experiment)
    machine.wait("exp", until="ready", timeout=60)
    with watched(pids_of(machine)) as handles:
        assert len(handles) == 3
        assert machine.exec_command("exp", "overwrites", ["printenv", "SYMPHONY_ROLE"]).stdout == (
            "overwrites\n"
        )
        if supervisor == "killed":
            killed = RunDirectory(machine._root / "exp").supervisor()
            assert killed is not None
            os.kill(killed.pid, signal.SIGKILL)
            assert wait_for_exit(killed, 20)
            status = machine.describe_experiment("exp")
            assert [process.state for process in status] == [State.RUNNING] * 2
            assert {process.pid for process in status} < handles.keys()
        machine.delete("exp")
        assert running(handles) == []


def test_restart_stops_the_daemon_that_the_process_has_left_behind(machine: HostCluster) -> None:
    experiment = machine.new_experiment("exp")
    for name, program in (("a", LEAVING_A_DAEMON), ("b", LEAVING_A_DAEMON), ("c", OVERWRITING)):
        process = experiment.new_process(name, command=[sys.executable, "-c", program])
        if name == "c":
            process.ready(log="up")
    machine.launch(experiment)
    machine.wait("exp", until="ready", processes=["c"], timeout=60)
    machine.wait("exp", processes=["a", "b"], timeout=60)
    of_a, of_b, of_c = pids_of(machine)
    with watched([of_a, of_b, of_c]) as handles:
        machine.restart_processes("exp", ["a"])
        assert running(handles) == [of_b, of_c]
        machine.delete("exp")
        assert running(handles) == []


def reasons(status: ExperimentStatus) -> dict[str, str]:
    return {process.name: process.reason for process in status}


def in_background(pid: int, state: str) -> str:
    program = f"{program_name(os.getpid())} (pid {pid})"
    return f"went to the background: {program} {state}; let it run in the foreground"


def test_the_status_names_what_a_process_has_left_in_the_background(machine: HostCluster) -> None:
    experiment = machine.new_experiment("exp")
    for name, code in (("a", 0), ("b", 0), ("failing", 3)):
        program = f"{LEAVING_A_DAEMON}\nraise SystemExit({code})"
        experiment.new_process(name, command=[sys.executable, "-c", program])
    experiment.new_process("on", command=["sleep", "1000"])
    machine.launch(experiment)
    machine.wait("exp", processes=["failing"], until="ended", timeout=60)
    status = until(machine, "exp", lambda now: {"a", "b"} <= set(filter(reasons(now).get, "ab")))
    of_a, of_b, _ = pids_of(machine)
    assert reasons(status) == {
        "a": in_background(of_a, "is running"),
        "b": in_background(of_b, "is running"),
        "failing": "",
        "on": "",
    }
    os.kill(of_b, signal.SIGKILL)
    until(machine, "exp", lambda now: reasons(now)["b"] == in_background(of_b, "has exited"))
    machine.stop("exp")
    assert reasons(machine.describe_experiment("exp"))["a"] == in_background(of_a, "has exited")


def test_the_status_names_the_daemon_of_the_only_process(machine: HostCluster) -> None:
    experiment = machine.new_experiment("exp")
    experiment.new_process("a", command=[sys.executable, "-c", LEAVING_A_DAEMON])
    machine.launch(experiment)
    machine.wait("exp", timeout=60)
    (pid,) = pids_of(machine)
    supervisor = RunDirectory(machine._root / "exp").supervisor()
    assert supervisor is None or wait_for_exit(supervisor, 20)
    assert reasons(machine.describe_experiment("exp")) == {"a": in_background(pid, "has exited")}
