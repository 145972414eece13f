"""Ranks on a real cluster, as far as the contract does not test them."""

import pytest

from symphony.status import ReasonCode, State
from symphony.testing import programs

from .conftest import FOREVER, python, wait_until
from .held import HELD, release


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


# --- placement ---


@pytest.fixture
def priority_class(kube_cluster, name):
    """The name of a PriorityClass with the value 7, which exists during the test."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    kube_cluster.raw.call("POST", classes, {"metadata": {"name": name}, "value": 7})
    yield name
    kube_cluster.raw.call("DELETE", f"{classes}/{name}")


@pytest.fixture
def two_nodes(kube_cluster):
    """The nodes without taints, which are in different zones."""
    if kube_cluster.session.cluster.kind != "devcluster":
        pytest.skip("only the devcluster has several nodes")
    return ("node1", "node2")


def specs_of(kube_cluster, name):
    """Return the specs of the Pods of an experiment by process."""
    pods = kube_cluster.raw.call("GET", kube_cluster.path("pods"))["items"]
    found = {pod["metadata"]["name"].removeprefix(f"{name}-"): pod["spec"] for pod in pods}
    return dict(sorted(found.items()))


def test_placement_of_ranks(kube_cluster, shared, name, priority_class, two_nodes):
    exp = shared.new_experiment(name)
    command = ["python3", "-u", "-c", FOREVER]
    for process in exp.new_ranks("apart", 3, command=command):
        process.spread()
    for process in exp.new_ranks("joined", 2, command=command):
        process.together().priority_class(priority_class)
    for process in exp.new_ranks("even", 2, command=command):
        process.add_topology_spread(key="topology.kubernetes.io/zone")
    for process in exp.list_all_processes():
        process.termination_grace_period(1)
    shared.launch(exp)

    def all_assigned():
        status = shared.describe_experiment(name)
        waiting = [item for item in status if item.state is not State.RUNNING]
        return len(waiting) == 1 and "Unschedulable" in waiting[0].reason and waiting[0]

    waiting = wait_until(all_assigned)
    assert waiting.name.startswith("apart-")
    assert waiting.reason_code is ReasonCode.UNSCHEDULABLE
    assert "anti-affinity" in waiting.reason
    specs = specs_of(kube_cluster, name)
    nodes = {process: spec.get("nodeName") for process, spec in specs.items()}
    assert {nodes[f"apart-{rank}"] for rank in range(3)} == {*two_nodes, None}
    assert nodes["joined-0"] == nodes["joined-1"]
    assert {nodes["even-0"], nodes["even-1"]} == set(two_nodes)
    assert [specs[f"joined-{rank}"]["priority"] for rank in (0, 1)] == [7, 7]
    shared.delete(name)


# A rank that exits when it has met the other one.
MEETS = """
import os, socket, time
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    socket.create_server(("", address[1])).accept()
while os.environ["RANK"] == "1":
    try:
        socket.create_connection(address, timeout=5).close()
        break
    except OSError:
        time.sleep(0.05)
"""


def test_units_that_do_not_fit_do_not_block_each_other(shared, name, two_nodes):
    """Each rank needs a port of its node, so two ranks run at the same time, and only one until the
    process ``holder`` exits.
    """
    exp = shared.new_experiment(name)
    needs_port = {"ports": [{"containerPort": 20777, "hostPort": 20777}]}
    holder = python(exp, "holder", HELD).node_selector("kubernetes.io/hostname", two_nodes[0])
    holder.container_yml = needs_port
    for unit in ("first", "second"):
        for process in exp.new_ranks(unit, 2, command=["python3", "-u", "-c", MEETS]):
            process.together_or_not("4s").termination_grace_period(1).starts_after(
                "holder", "started"
            )
            process.container_yml = needs_port
    shared.launch(exp)

    def was_released():
        status = shared.describe_experiment(name)
        return any("ranks could be scheduled within 4 s" in item.reason for item in status)

    wait_until(was_released)
    release(shared, name, "holder")
    status = shared.wait(name, timeout=100)
    assert {item.state for item in status} == {State.SUCCEEDED}
    shared.delete(name)
