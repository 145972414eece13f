"""Ranks on a real cluster, as far as the contract does not test them."""

import os
import select
import signal

from symphony.status import ReasonCode
from symphony.testing import programs
from symphony.testing.contract import all_running
from symphony_kube.lifecycle.supervisor.detached import directory_of

from .conftest import FOREVER, wait_until


def test_ranks_that_share_pods(shared, name):
    """All ranks meet, and the failure of one restarts all of them and then stops them."""
    exp = shared.new_experiment(name)
    command = ["python3", "-u", "-c", programs.RANK]
    for process in exp.new_ranks("unit", 4, command=command):
        process.per_pod(2).restart_policy("OnFailure", max_restarts=1)
        process.termination_grace_period(1)
    shared.launch(exp)
    first, second = shared.wait(name, timeout=60)
    assert [first.name, second.name] == ["unit-0", "unit-2"]
    assert (first.exit_code, first.restarts, second.restarts) == (3, 1, 1)
    assert second.reason_code is ReasonCode.UNIT_FAILED
    numbers = {first.name: (0, 1), second.name: (2, 3)}
    for process, ranks in numbers.items():
        expected = [f"rank {rank} of 4" for rank in ranks] * 2
        if process == first.name:
            expected += ["rank 1 exited with 3"] * 2
        lines = shared.get_log(name, process).splitlines()
        assert sorted(lines) == sorted(expected)
    shared.delete(name)


def kill_supervisor(cluster, name):
    """Kill the supervisor of an experiment. The next command starts another one."""
    pid = directory_of(cluster.api, cluster.scope(name)).holder()
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([process], [], [])
    os.close(process)


def test_killed_supervisors_complete_the_restart_of_a_unit(
    kube_cluster, kube_faults, open_cluster, name
):
    """A unit restarts because the Pod of a rank is deleted. Its supervisors are killed when the
    restart was recorded in only one of the other ranks, and before the new Pods are created.
    """
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    for process in exp.new_ranks("unit", 3, command=["python3", "-u", "-c", FOREVER]):
        process.restart_policy("OnFailure", max_restarts=1).termination_grace_period(1)
    cluster.launch(exp)
    wait_until(lambda: all_running(cluster.describe_experiment(name)))
    kube_faults.drop(method="PATCH", path="/pods/.*unit-2")
    deleted = kube_cluster.path(f"pods/{name}-unit-1")
    kube_cluster.raw.call("DELETE", deleted, {"gracePeriodSeconds": 0})
    wait_until(lambda: kube_faults.count(method="PATCH", path="/pods/.*unit-2"))
    kill_supervisor(cluster, name)
    kube_faults.clear()
    created = kube_faults.count(method="POST", path="/pods")
    kube_faults.drop(method="POST", path="/pods")
    # The next command starts another supervisor.
    cluster.describe_experiment(name)
    wait_until(lambda: kube_faults.count(method="POST", path="/pods") > created)
    reason = "the unit restarts: unit-1 failed (exit status unknown: its Pod was deleted)"
    assert reason in [process.reason for process in cluster.describe_experiment(name)]
    kill_supervisor(cluster, name)
    kube_faults.clear()

    def has_restarted():
        status = cluster.describe_experiment(name)
        return all_running(status) and all(process.restarts == 1 for process in status)

    wait_until(has_restarted)
    cluster.delete(name)
