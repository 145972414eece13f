"""Queues of Kueue on a real cluster."""

import time

import pytest

from symphony.errors import LaunchFailed
from symphony.status import ReasonCode, State
from symphony.testing.contract import all_running

from .conftest import FOREVER, managed_objects, wait_until

GROUP = "kueue.x-k8s.io"
VERSION = f"{GROUP}/v1beta2"
API = f"/apis/{VERSION}"
# Enough for one of the experiments, and not for two of them.
QUOTA = {"cpu": "0.2", "memory": "512Mi"}
REQUEST = {"cpu": 0.1, "memory": "64Mi"}
# The time within which experiments that wait for quota are deleted, in seconds. A Pod of a group
# that Kueue holds back remains for about 20 s if its Workload is not deleted.
DELETION_SECONDS = 10


def create(raw, path, kind, name, **content):
    body = {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, **content}
    raw.call("POST", path, body)


@pytest.fixture
def queue(kube_cluster, shared, name):
    """A queue in the namespace of the test, with a quota of its own and with preemption."""
    raw = kube_cluster.raw
    if raw.find(f"/apis/{GROUP}") is None:
        if kube_cluster.session.cluster.kind == "devcluster":
            pytest.fail("the devcluster has no Kueue")
        pytest.skip("the cluster has no Kueue")
    flavors, queues = f"{API}/resourceflavors", f"{API}/clusterqueues"
    create(raw, flavors, "ResourceFlavor", name)
    resources = [{"name": kind, "nominalQuota": amount} for kind, amount in QUOTA.items()]
    spec = {
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": kube_cluster.namespace}
        },
        "resourceGroups": [
            {
                "coveredResources": list(QUOTA),
                "flavors": [{"name": name, "resources": resources}],
            }
        ],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    create(raw, queues, "ClusterQueue", name, spec=spec)
    local = f"{API}/namespaces/{kube_cluster.namespace}/localqueues"
    create(raw, local, "LocalQueue", "team-a", spec={"clusterQueue": name})
    yield "team-a"
    # After a failed test, Kueue would keep the Pods, and with them their namespace, for ever.
    for experiment in shared.list_experiments():
        shared.delete(experiment)
    raw.call("DELETE", f"{local}/team-a")
    raw.call("DELETE", f"{queues}/{name}")
    raw.call("DELETE", f"{flavors}/{name}")


def ranks(cluster, name, queue, program=FOREVER, **options):
    """Return an experiment with two ranks, which wait in a queue for all the quota."""
    exp = cluster.new_experiment(name)
    for process in exp.new_ranks("trainer", 2, command=["python3", "-u", "-c", program], **options):
        process.queue(queue).resource_request(**REQUEST).termination_grace_period(1)
    return exp


def test_kueue_limits_the_pods_of_a_job_set(shared, kube_cluster, name, queue):
    """The limit is that of the schema, as `kubectl explain` shows it."""
    schemas = kube_cluster.raw.call("GET", f"/openapi/v3{API}")["components"]["schemas"]
    (workload,) = [item for key, item in schemas.items() if key.endswith(".Workload")]
    limit = workload["properties"]["spec"]["properties"]["podSets"]["maxItems"]
    exp = shared.new_experiment(name)
    command = ["python3", "-c", FOREVER]
    for process in exp.new_ranks("trainer", limit + 1, command=command, jobset=True):
        process.queue(queue)
    message = f"has {limit + 1} Pods, and Kueue admits at most {limit} in a JobSet: set per_pod"
    with pytest.raises(LaunchFailed, match=message):
        shared.launch(exp)
    assert shared.list_experiments() == []


def has_reason(cluster, name, text):
    return all(text in process.reason for process in cluster.describe_experiment(name))


def test_a_queue_admits_holds_back_and_releases(shared, kube_cluster, name, queue):
    first, second, third = f"{name}-1", f"{name}-2", f"{name}-3"
    shared.launch(ranks(shared, first, queue))
    wait_until(lambda: all_running(shared.describe_experiment(first)))
    for waiting in (second, third):
        shared.launch(ranks(shared, waiting, queue, program="print('done')"))
    wait_until(lambda: has_reason(shared, second, "waiting for quota in queue team-a"))
    # The reason is that of the Workload.
    wait_until(lambda: has_reason(shared, second, "insufficient unused quota"))
    process = shared.describe_experiment(second).processes[0]
    assert (process.state, process.reason_code) == (State.PENDING, ReasonCode.SCHEDULING)
    start = time.monotonic()
    shared.delete(third)
    assert time.monotonic() - start < DELETION_SECONDS
    assert not [pod for pod in managed_objects(kube_cluster)["pods"] if third in pod]
    shared.delete(first)
    status = shared.wait(second, timeout=60)
    assert [process.exit_code for process in status] == [0, 0]
    shared.delete(second)


@pytest.fixture
def important(kube_cluster, name):
    """The name of a PriorityClass that preempts others."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    kube_cluster.raw.call("POST", classes, {"metadata": {"name": name}, "value": 7})
    yield name
    kube_cluster.raw.call("DELETE", f"{classes}/{name}")


def test_an_important_experiment_preempts_another(shared, name, queue, important):
    usual, urgent = f"{name}-1", f"{name}-2"
    exp = ranks(shared, usual, queue, jobset=True)
    shared.launch(exp)
    wait_until(lambda: all_running(shared.describe_experiment(usual)))
    exp = ranks(shared, urgent, queue)
    for process in exp.list_all_processes():
        process.priority_class(important)
    shared.launch(exp)
    wait_until(lambda: all_running(shared.describe_experiment(urgent)))
    wait_until(lambda: has_reason(shared, usual, "waiting for quota in queue team-a"))
    shared.delete(urgent)
    wait_until(lambda: all_running(shared.describe_experiment(usual)))
    shared.delete(usual)
