"""JobSets with their real controller (https://github.com/kubernetes-sigs/jobset)."""

import contextlib
import signal
import threading

import pytest

from kubetest.rawapi import JSON_PATCH, MERGE_PATCH
from symphony.errors import BackendError
from symphony.status import ReasonCode, State
from symphony.testing import programs
from symphony.testing.contract import all_running, until
from symphony_kube.render import experiment as rendering

from .conftest import FOREVER, managed_objects, wait_until
from .held import EXITS, HELD, exit_with, release

ROOT = "/apis/jobset.x-k8s.io/v1alpha2"
# All ranks meet before they wait.
MEETS = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("", address[1]))
    connections = [server.accept()[0] for _ in range(size - 1)]
while rank:
    try:
        socket.create_connection(address, timeout=5).close()
        break
    except OSError:
        time.sleep(0.05)
print("met", flush=True)
"""
CANNOT_BE_STARTED = "cannot be started by symphony, because only the controller of a JobSet starts"


@pytest.fixture
def cluster(kube_cluster, shared):
    """A cluster that uses the namespace of the test, and knows JobSets."""
    if kube_cluster.raw.find(ROOT) is None:
        pytest.skip("the cluster has no controller of JobSets")
    return shared


def job_sets(kube):
    """Return the names of the JobSets in the namespace of the test."""
    listed = kube.raw.call("GET", kube.path("jobsets", group=ROOT.removeprefix("/")))
    return [item["metadata"]["name"] for item in listed["items"]]


@contextlib.contextmanager
def pods_remain(kube, unit):
    """Keep the Pods of a unit. The controller creates a Job again when its Pods are gone."""
    listed = kube.raw.call("GET", kube.path(f"pods?labelSelector=symphony/rank-of={unit}"))
    pods = [kube.path(f"pods/{item['metadata']['name']}") for item in listed["items"]]
    add = [{"op": "add", "path": "/metadata/finalizers/-", "value": "symphony.test/remain"}]
    for pod in pods:
        kube.raw.call("PATCH", pod, add, JSON_PATCH)
    try:
        yield
    finally:
        for pod in pods:
            kube.raw.call("PATCH", pod, {"metadata": {"finalizers": None}}, MERGE_PATCH)


def new_job_set(exp, name, program, count=2, **policy):
    """Add ranks that form a JobSet."""
    for rank in exp.new_ranks(name, count, command=["python3", "-u", "-c", program]):
        rank.jobset().termination_grace_period(1)
        if policy:
            rank.restart_policy(**policy)


def test_the_controller_restarts_a_unit(kube_cluster, cluster, name):
    """All ranks meet, one of them is killed, all of them meet again, and succeed."""
    exp = cluster.new_experiment(name)
    new_job_set(exp, "unit", MEETS + HELD, 3, policy="OnFailure", max_restarts=1)
    cluster.check(cluster.manifest(exp))
    cluster.launch(exp)
    lines = []
    follower = threading.Thread(
        target=lambda: lines.extend(line.text for line in cluster.iter_logs(name, follow=True))
    )
    follower.start()
    processes = ["unit-0", "unit-1", "unit-2"]

    def have_met():
        return all(cluster.get_log(name, process) == "met\n" for process in processes)

    wait_until(lambda: all_running(cluster.describe_experiment(name)) and have_met())

    def between_attempts():
        status = cluster.describe_experiment(name)
        return {process.state for process in status} == {State.PENDING} and status

    with pods_remain(kube_cluster, "unit"):
        cluster.signal_processes(name, ["unit-1"], signal.SIGKILL)
        for process in wait_until(between_attempts):
            assert process.reason.startswith("the unit restarts")
            assert (process.restarts, process.restart_number, process.max_restarts) == (1, 1, 1)
            assert process.reason_code is ReasonCode.BACKING_OFF
    wait_until(lambda: all_running(cluster.describe_experiment(name)) and have_met())
    for process in processes:
        release(cluster, name, process)
    status = cluster.wait(name, timeout=60)
    assert [process.state for process in status] == [State.SUCCEEDED] * 3
    assert {process.restarts for process in status} == {1}
    assert status.exit_code == 0
    follower.join(60)
    assert lines == ["met"] * 6
    assert job_sets(kube_cluster) == [f"{name}-unit"]
    cluster.delete(name)
    assert managed_objects(kube_cluster) == {}
    assert job_sets(kube_cluster) == []


@pytest.mark.long
def test_the_leader_of_a_unit_ends_it_by_the_success_policy(
    kube_cluster, cluster, name, monkeypatch
):
    """A cluster can give JobSets another success policy. The controller then deletes the others."""
    render = rendering.job_set

    def led(ranks, context):
        body = render(ranks, context)
        policy = {"operator": "Any", "targetReplicatedJobs": ["rank-0"]}
        return {**body, "spec": {**body["spec"], "successPolicy": policy}}

    monkeypatch.setattr(rendering, "job_set", led)
    exp = cluster.new_experiment(name)
    new_job_set(exp, "unit", EXITS, 3)
    cluster.launch(exp)
    until(cluster, name, all_running)

    def ends_without_a_failure(status):
        assert not any(process.failed for process in status)
        return status.ended

    exit_with(cluster, name, "unit-0", 0)
    until(cluster, name, ends_without_a_failure)
    status = cluster.describe_experiment(name)
    assert [(item.state, item.exit_code) for item in status] == [
        (State.SUCCEEDED, 0),
        (State.SUCCEEDED, None),
        (State.SUCCEEDED, None),
    ]
    assert {item.reason for item in status.processes[1:]} == {"the unit has succeeded without it"}
    assert status.exit_code == 0
    cluster.delete(name)
    assert job_sets(kube_cluster) == []


def check_stop_between_attempts(kube_cluster, cluster, name):
    """Stop the unit "quiet" while the controller restarts it. It must not start again.

    The user cannot start it while it is stopping.
    """
    stopped = []
    stop = threading.Thread(
        target=lambda: stopped.extend(cluster.stop_processes(name, ["quiet-1"], timeout=60))
    )

    def is_stopping():
        quiet = cluster.describe_experiment(name).processes[:2]
        return [process.reason for process in quiet] == ["stopping"] * 2

    with pods_remain(kube_cluster, "quiet"):
        cluster.signal_processes(name, ["quiet-0"], signal.SIGKILL)
        wait_until(lambda: cluster.describe_experiment(name).processes[1].restarts == 1)
        stop.start()
        wait_until(is_stopping)
        with pytest.raises(BackendError, match=f"quiet-0, quiet-1 {CANNOT_BE_STARTED}"):
            cluster.start_processes(name, ["quiet-0"], timeout=60)
    stop.join(60)
    assert [process.name for process in stopped] == ["quiet-0", "quiet-1"]
    assert [process.displayed_state for process in stopped] == ["stopped"] * 2


def test_units_that_fail_and_are_stopped(kube_cluster, cluster, name):
    """A user stops a unit. Another one fails, so the supervisor stops the third one."""
    exp = cluster.new_experiment(name, ends_with=["bad-0", "bad-1"])
    new_job_set(exp, "quiet", FOREVER, policy="OnFailure")
    new_job_set(exp, "other", FOREVER, 1)
    new_job_set(exp, "bad", HELD + programs.RANK)
    cluster.launch(exp)
    wait_until(lambda: all_running(cluster.describe_experiment(name)))
    changed = cluster.new_experiment(name)
    new_job_set(changed, "quiet", FOREVER, 3)
    obstacles = cluster.diff(changed).relaunch
    assert "the ranks of bad, other, quiet are in JobSets, which cannot be changed" in obstacles
    check_stop_between_attempts(kube_cluster, cluster, name)
    with pytest.raises(BackendError, match=f"other-0 {CANNOT_BE_STARTED}"):
        cluster.restart_processes(name, ["other-0"])
    for rank in (0, 1):
        release(cluster, name, f"bad-{rank}")
    quiet_0, quiet_1, other, failed_too, failed = cluster.wait(name, timeout=60)
    assert (failed.state, failed.exit_code) == (State.FAILED, 3)
    assert failed_too.reason == "the unit failed: bad-1 exited with 3"
    assert failed_too.reason_code is ReasonCode.UNIT_FAILED
    stopped = (quiet_0, quiet_1, other)
    assert {process.displayed_state for process in stopped} == {"stopped"}
    assert cluster.describe_experiment(name).exit_code == 3
    assert cluster.get_log(name, "bad-1") == "rank 1 of 2\n"
    cluster.delete(name)
    assert managed_objects(kube_cluster) == {}
    assert job_sets(kube_cluster) == []
