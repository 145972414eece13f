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
from tests.overwriting import DAEMONIZING, OVERWRITING, running, watched

READY = 2


def pids_of(cluster: Cluster) -> list[int]:
    logs = [cluster.get_log("exp", name) for name in ("overwrites", "daemonizes")]
    lines = [line for log in logs for line in log.splitlines()]
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
