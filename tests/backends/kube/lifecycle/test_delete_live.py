"""Deletion on a real server: all objects, in reverse start order, and until they are gone."""

import threading

import pytest

from kubetest.rawapi import MERGE_PATCH
from symphony.errors import BackendError
from tests.backends.kube.conftest import (
    find_namespace,
    managed_objects,
    python,
    unschedulable,
    wait_until,
)


@pytest.fixture
def experiment(kube_cluster, shared, name):
    """Launch an experiment with a Pod, a Job and Services in the shared namespace."""
    exp = shared.new_experiment(name)
    unschedulable(exp, "db").binds(["store", "index"])
    unschedulable(exp, "batch").job(backoff_limit=0)
    shared.launch(exp)
    # Kubernetes creates the Pod of the Job later, perhaps when the Job is already being deleted.
    wait_until(lambda: len(managed_objects(kube_cluster)["pods"]) == 2)
    return exp


def test_delete_removes_an_own_namespace(kube_cluster, own_namespaces, name):
    exp = own_namespaces.new_experiment(name)
    unschedulable(exp, "db").binds("store")
    unschedulable(exp, "batch").job()
    own_namespaces.launch(exp)
    own_namespaces.delete(name)
    assert find_namespace(kube_cluster, name) is None
    own_namespaces.delete(name)


def test_delete_waits_for_the_grace_period(shared, kube_cluster, name):
    program = """
import signal, time
def save(*_):
    time.sleep(1.5)
    print("saved", flush=True)
    raise SystemExit
signal.signal(15, save)
print("up", flush=True)
time.sleep(99)
"""
    exp = shared.new_experiment(name)
    python(exp, "slow", program).termination_grace_period(20)
    shared.launch(exp)
    lines = shared.iter_logs(name, ["slow"], follow=True)
    assert next(lines).text == "up"  # the signal handler is set
    rest = []
    follower = threading.Thread(target=lambda: rest.extend(line.text for line in lines))
    follower.start()
    shared.delete(name)
    assert managed_objects(kube_cluster) == {}
    follower.join(60)
    # A kubelet before Kubernetes 1.22 can delete a Pod before it has reported the exit code.
    assert rest == ["saved"]


def test_stuck_object_is_reported_with_its_finalizer(
    kube_cluster, shared, experiment, name, monkeypatch
):
    monkeypatch.setattr("symphony_kube.lifecycle.wait_deleted.STUCK_SECONDS", 1.0)
    path = kube_cluster.path(f"services/{name}-store")
    held = {"metadata": {"finalizers": ["symphony.test/held"]}}
    kube_cluster.raw.call("PATCH", path, held, MERGE_PATCH)
    try:
        message = rf"services are still there: '{name}-store' \(held by symphony.test/held\)"
        with pytest.raises(BackendError, match=message):
            shared.delete(name)
    finally:
        free = {"metadata": {"finalizers": None}}
        kube_cluster.raw.call("PATCH", path, free, MERGE_PATCH)
    wait_until(lambda: "services" not in managed_objects(kube_cluster))
