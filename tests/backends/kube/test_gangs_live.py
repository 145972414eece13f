"""Native gangs of Kubernetes (the feature gate ``GenericWorkload``), which `pod_yml` selects."""

import pytest

from symphony.status import State
from symphony.testing.contract import all_running, until

from .conftest import FOREVER, python

GROUP = "scheduling.k8s.io"
VERSION = f"{GROUP}/v1beta1"


@pytest.fixture
def gang(kube_cluster):
    """The name of a group of Pods that are only scheduled if there are two of them."""
    served = kube_cluster.raw.find(f"/apis/{VERSION}") or {"resources": []}
    if all(item["name"] != "podgroups" for item in served["resources"]):
        pytest.skip("the cluster has no native gangs")
    body = {
        "apiVersion": VERSION,
        "kind": "PodGroup",
        "metadata": {"name": "gang"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    path = f"/apis/{VERSION}/namespaces/{kube_cluster.namespace}/podgroups"
    kube_cluster.raw.call("POST", path, body)
    yield "gang"
    kube_cluster.raw.call("DELETE", f"{path}/gang")


def test_processes_of_a_gang_start_together(shared, name, gang):
    def describe(*names):
        exp = shared.new_experiment(name)
        for each in names:
            process = python(exp, each, FOREVER)
            process.pod_yml = {"spec": {"schedulingGroup": {"podGroupName": gang}}}
        return exp

    shared.launch(describe("first"))
    # No condition and no event of the Pod shows that it waits for another one.
    process = shared.describe_process(name, "first")
    assert (process.state, process.node) == (State.PENDING, "")
    assert shared.up(describe("first", "second")).names("added") == ["second"]
    status = until(shared, name, all_running)
    assert all(process.node for process in status)
    shared.delete(name)
