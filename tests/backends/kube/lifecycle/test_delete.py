"""Deletion, with an API server in memory: nothing else is deleted. `test_delete_live.py` tests
deletions on a real server.
"""

import os
import select

import pytest

from kubetest.rawapi import MERGE_PATCH
from symphony_kube.api import labels as names
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import Scope
from symphony_kube.lifecycle.supervisor.detached import directory_of
from symphony_kube.render.stop_script import scripts_name
from tests.backends.kube.conftest import managed_objects, unschedulable


@pytest.fixture
def kube_cluster(memory_cluster):
    return memory_cluster


@pytest.fixture
def experiment(shared, name):
    """Launch an experiment with a Pod, a Job and Services in the shared namespace."""
    exp = shared.new_experiment(name)
    unschedulable(exp, "db").binds(["store", "index"])
    unschedulable(exp, "batch").job(backoff_limit=0)
    shared.launch(exp)
    return exp


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


def test_delete_stops_the_supervisor(kube_cluster, shared, name):
    exp = shared.new_experiment(name)
    unschedulable(exp, "first")
    unschedulable(exp, "second").starts_after("first")
    shared.launch(exp)
    directory = directory_of(KubeExperiment(shared.api, shared.scope(name)))
    supervisor = os.pidfd_open(directory.holder())
    shared.delete(name)
    exited, _, _ = select.select([supervisor], [], [], 10)
    os.close(supervisor)
    assert exited
    assert not directory.path.exists()
    assert managed_objects(kube_cluster) == {}
