"""The details of one process, from its Pod and the events of that Pod."""

import pytest

from symphony.errors import NotFound
from symphony.status import ProcessStatus
from symphony_kube.render.container_scripts import shell_command, with_first_process
from symphony_kube.render.sync import with_restarts_in_place
from symphony_kube.status.details import process_details
from tests.backends.kube.conftest import FOREVER, python, wait_until

RESOURCES = {
    "requests": {"cpu": "1", "memory": "1Gi"},
    "limits": {"memory": "1Gi", "cpu": "2", "nvidia.com/gpu": "1"},
}


def test_details_of_a_pod():
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


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"command": shell_command(["a | b"])}, "sh -c 'a | b'"),
        ({"command": with_first_process(shell_command(["a; b"]))}, "sh -c 'a; b'"),
        ({"command": with_first_process(["npm", "start"])}, "npm start"),
        (with_restarts_in_place({"command": ["a"], "args": ["b"]}), "a b"),
        ({"command": ["/bin/sh", "-c", "own"], "args": ["c"]}, "/bin/sh -c own c"),
        ({}, None),
    ],
)
def test_the_command_is_shown_without_the_scripts_that_start_it(fields, expected):
    spec = {"containers": [{"name": "p", **fields}]}
    pod = {"metadata": {"name": "g", "namespace": "rl"}, "spec": spec}
    assert process_details(ProcessStatus(name="p"), pod).facts.get("command") == expected


def if_scheduled(found):
    """Return the details if they have the event of the scheduler, which may arrive late."""
    events = [event for event in found.events if event.text.startswith("Scheduled: ")]
    return found if events and events[0].at else None


def if_unschedulable(found):
    return found if "Unschedulable" in found.status.reason else None


def test_details_with_events(kube_cluster, open_cluster, shared, name):
    experiment = shared.new_experiment(name)
    python(experiment, "server", FOREVER).binds("db")
    python(experiment, "lost", FOREVER).node_selector("symphony.test/pool", "on-the-moon")
    shared.launch(experiment)
    kube_cluster.wait_for_pod(f"{name}-server")
    server = wait_until(lambda: if_scheduled(shared.explain_process(name, "server")))
    assert server.facts["node"]
    assert server.addresses["db"].endswith(":7000")
    lost = wait_until(lambda: if_unschedulable(shared.explain_process(name, "lost")))
    assert "node" not in lost.facts
    with pytest.raises(NotFound, match="no process 'zzz'"):
        shared.explain_process(name, "zzz")

    # A user who may not list events gets the other details.
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    config = str(kube_cluster.user("reader", rules))
    reader = open_cluster(kubeconfig=config, namespace=kube_cluster.namespace)
    found = reader.explain_process(name, "server")
    assert (found.status.name, found.events) == ("server", ())
    assert found.facts["image"] == kube_cluster.image
