"""Deletion: all objects of an experiment and no others, and it returns when they are gone."""

import os
import select
import threading

import pytest

from kubetest.rawapi import MERGE_PATCH
from symphony.errors import BackendError
from symphony_kube.api import labels as names
from symphony_kube.api.labels import Scope
from symphony_kube.lifecycle.supervisor.detached import directory_of
from symphony_kube.render.stop_script import scripts_name

from .conftest import find_namespace, managed_objects, python, unschedulable, wait_until


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


def test_delete_is_complete_and_idempotent(kube_cluster, shared, experiment, name):
    kinds = {"pods", "jobs", "services", "secrets", "configmaps"}
    assert set(managed_objects(kube_cluster)) == kinds
    shared.delete(name)
    assert managed_objects(kube_cluster) == {}
    shared.delete(name)


def test_delete_removes_an_own_namespace(kube_cluster, own_namespaces, name):
    exp = own_namespaces.new_experiment(name)
    unschedulable(exp, "db").binds("store")
    unschedulable(exp, "batch").job()
    own_namespaces.launch(exp)
    own_namespaces.delete(name)
    assert find_namespace(kube_cluster, name) is None
    own_namespaces.delete(name)


FOREIGN_LABELS = [
    {},
    {names.EXPERIMENT: "NAME"},
    {names.MANAGED_BY: "symphony"},
    {names.MANAGED_BY: "symphony", names.EXPERIMENT: "NAME-2"},
    {names.MANAGED_BY: "helm", names.EXPERIMENT: "NAME", names.UNIT: "db"},
]


def test_delete_leaves_foreign_objects_alone(kube_cluster, shared, experiment, name):
    specs = {
        "configmaps": {},
        "secrets": {},
        "services": {"spec": {"ports": [{"port": 80}]}},
        "pods": {
            "spec": {
                "containers": [{"name": "a", "image": "none"}],
                "nodeSelector": {"no": "node"},
            },
        },
    }
    uids = {}
    for index, template in enumerate(FOREIGN_LABELS):
        labels = {key: value.replace("NAME", name) for key, value in template.items()}
        metadata = {"name": f"{name}-other-{index}", "labels": labels}
        for kind, spec in specs.items():
            path = kube_cluster.path(kind)
            created = kube_cluster.raw.call("POST", path, {"metadata": metadata, **spec})
            uids[f"{path}/{metadata['name']}"] = created["metadata"]["uid"]
    shared.delete(name)
    for path, uid in uids.items():
        metadata = kube_cluster.raw.find(path)["metadata"]
        assert metadata["uid"] == uid
        assert "deletionTimestamp" not in metadata


def test_delete_leaves_a_foreign_namespace_alone(kube_cluster, own_namespaces, name):
    path = f"/api/v1/namespaces/{name}"
    kube_cluster.raw.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    for labels in (
        {},
        {names.MANAGED_BY: "symphony"},
        {names.MANAGED_BY: None, names.EXPERIMENT: "other"},
    ):
        kube_cluster.raw.call("PATCH", path, {"metadata": {"labels": labels}}, MERGE_PATCH)
        own_namespaces.delete(name)
        assert "deletionTimestamp" not in kube_cluster.raw.find(path)["metadata"]


def test_delete_leaves_other_experiments_alone(kube_cluster, shared, experiment, name):
    other = shared.new_experiment(f"{name}-b")
    unschedulable(other, "db").binds("store")
    shared.launch(other)
    shared.delete(name)
    scripts = scripts_name(Scope(experiment=f"{name}-b", namespace="", shared=True))
    assert managed_objects(kube_cluster) == {
        "configmaps": [scripts],
        "pods": [f"{name}-b-db"],
        "services": [f"{name}-b-store"],
        "secrets": [f"{name}-b-symphony-description"],
    }


LAST_WORD = """
import signal, time
def stop(*_):
    time.sleep(SECONDS)
    print(time.time(), flush=True)
    raise SystemExit
signal.signal(15, stop)
print("up", flush=True)
time.sleep(99)
"""


def test_delete_follows_the_reverse_of_the_start_order(shared, name):
    exp = shared.new_experiment(name)
    python(exp, "db", LAST_WORD.replace("SECONDS", "0")).ready(log="^up")
    app = python(exp, "app", LAST_WORD.replace("SECONDS", "1")).ready(log="^up")
    app.starts_after("db", "ready")
    shared.launch(exp)
    shared.wait(name, until="ready", timeout=90)
    shared.delete(name)
    run = next(run for run in shared.list_runs() if run.experiment == name)
    record = shared.at_run(run)
    _, app_exit = record.get_log(name, "app").splitlines()
    _, db_exit = record.get_log(name, "db").splitlines()
    assert float(app_exit) <= float(db_exit)


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


def test_delete_stops_the_supervisor(kube_cluster, shared, name):
    exp = shared.new_experiment(name)
    unschedulable(exp, "first")
    unschedulable(exp, "second").starts_after("first")
    shared.launch(exp)
    directory = directory_of(shared.api, shared.scope(name))
    supervisor = os.pidfd_open(directory.holder())
    shared.delete(name)
    exited, _, _ = select.select([supervisor], [], [], 10)
    os.close(supervisor)
    assert exited
    assert not directory.path.exists()
    assert managed_objects(kube_cluster) == {}
