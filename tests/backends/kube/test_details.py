"""What is told of one process: from its Pod, its events, and without the right to list those."""

import pytest

from symphony.errors import NotFound
from symphony.status import ProcessStatus
from symphony_kube.status.details import process_details

from .conftest import FOREVER, python, until

pytestmark = pytest.mark.client

RESOURCES = {
    "requests": {"cpu": "1", "memory": "1Gi"},
    "limits": {"memory": "1Gi", "cpu": "2", "nvidia.com/gpu": "1"},
}


def test_a_pod_as_details():
    container = {
        "name": "p",
        "image": "i:1",
        "command": ["python"],
        "args": ["a b.py"],
        "resources": RESOURCES,
        "env": [
            {"name": "SYMPH_REPLAY_SERVER_ADDR", "value": "replay-server:7000"},
            {"name": "SYMPH_REPLAY_SERVER_HOST", "value": "replay-server"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {}}},
        ],
    }
    pod = {
        "metadata": {"name": "g", "namespace": "rl"},
        "spec": {"nodeName": "n", "containers": [{"name": "other"}, container]},
    }
    found = process_details(ProcessStatus(name="p", group="g"), pod)
    assert found.facts == {"command": "python 'a b.py'", "image": "i:1", "pod": "rl/g", "node": "n"}
    assert found.resources == {"cpu": "1, at most 2", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert found.addresses == {"replay-server": "replay-server:7000"}


def scheduled(found):
    """What is told once the event is there: events come when they come."""
    return (
        found
        if any(event.text.startswith("Scheduled: ") and event.at for event in found.events)
        else None
    )


def unschedulable(found):
    return found if "Unschedulable" in found.status.reason else None


def test_what_kubernetes_noted_of_a_process(shared, name, kube_cluster):
    experiment = shared.new_experiment(name)
    python(experiment, "server", FOREVER).binds("db")
    python(experiment, "lost", FOREVER).node_selector("symphony.test/pool", "on-the-moon")
    shared.launch(experiment)
    kube_cluster.wait_for_pod(f"{name}-server")
    server = until(lambda: scheduled(shared.explain_process(name, "server")))
    assert server.facts["node"]
    assert server.addresses["db"].endswith(":7000")
    lost = until(lambda: unschedulable(shared.explain_process(name, "lost")))
    assert "node" not in lost.facts
    with pytest.raises(NotFound, match="no process 'zzz'"):
        shared.explain_process(name, "zzz")


def test_without_the_right_to_list_events_there_are_none(kube_cluster, open_cluster, name, shared):
    experiment = shared.new_experiment(name)
    python(experiment, "p", "pass")
    shared.launch(experiment)
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    reader = open_cluster(
        kubeconfig=str(kube_cluster.user("reader", rules)), namespace=kube_cluster.namespace
    )
    found = reader.explain_process(name, "p")
    assert (found.status.name, found.events) == ("p", ())
    assert found.facts["image"] == kube_cluster.image
