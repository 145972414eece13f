"""Programs that overwrite their environment are stopped, on every backend of this machine."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from symphony import Cluster, State
from symphony.supervised.cluster import HostCluster
from symphony.supervised.processes.process_groups import wait_for_exit
from symphony.supervised.record.directory import RunDirectory
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
