"""Launches on a real server: refusals, ending namespaces, concurrent launches, and dry runs."""

import json

import pytest

from symphony.errors import LaunchFailed
from tests.backends.kube.conftest import find_namespace, managed_objects, unschedulable, wait_until
from tests.backends.kube.lifecycle.test_launch import with_all_kinds


def test_force_replaces_a_running_experiment_and_its_jobs(kube_cluster, shared, name):
    exp = shared.new_experiment(name)
    unschedulable(exp, "old").job()
    unschedulable(exp, "both").binds("old-service")
    shared.launch(exp)

    def all_objects():
        """Return the objects as soon as they include the Pod of the Job."""
        found = managed_objects(kube_cluster)
        return found if len(found["pods"]) == 2 else None

    before = wait_until(all_objects)
    invalid = shared.new_experiment(name)
    unschedulable(invalid, "new").pod_yml = {"spec": {"dnsPolicy": "Odd"}}
    with pytest.raises(LaunchFailed, match="dnsPolicy"):
        shared.launch(invalid, force=True)
    assert managed_objects(kube_cluster) == before
    other = shared.new_experiment(name)
    unschedulable(other, "new").job()
    unschedulable(other, "both")
    shared.launch(other, force=True)
    found = wait_until(all_objects)
    assert found["jobs"] == [f"{name}-new"]
    assert "services" not in found
    shared.delete(name)
    assert managed_objects(kube_cluster) == {}


def test_launch_waits_for_a_terminating_namespace(kube_cluster, own_namespaces, name):
    exp = own_namespaces.new_experiment(name)
    unschedulable(exp, "worker")
    own_namespaces.launch(exp)
    first = find_namespace(kube_cluster, name)["metadata"]["uid"]
    kube_cluster.raw.call("DELETE", f"/api/v1/namespaces/{name}")
    own_namespaces.launch(exp)
    second = find_namespace(kube_cluster, name)["metadata"]["uid"]
    assert second != first
    own_namespaces.launch(exp, force=True)
    assert find_namespace(kube_cluster, name)["metadata"]["uid"] not in (first, second)


def test_terminating_namespace_is_reported(kube_cluster, shared, name):
    held = {"metadata": {"name": "held", "finalizers": ["symphony.test/held"]}}
    maps = kube_cluster.path("configmaps")
    kube_cluster.raw.call("POST", maps, held)
    try:
        kube_cluster.raw.call("DELETE", f"/api/v1/namespaces/{kube_cluster.namespace}")
        exp = shared.new_experiment(name)
        unschedulable(exp, "worker").binds("web")
        with pytest.raises(
            LaunchFailed,
            match="because it is being terminated; wait until it is deleted, or choose",
        ):
            shared.launch(exp)
        assert managed_objects(kube_cluster) == {}
    finally:
        free = {"metadata": {"finalizers": None}}
        kube_cluster.raw.call("PATCH", f"{maps}/held", free, "application/merge-patch+json")


def test_stuck_namespace_is_reported_with_its_finalizer(
    kube_cluster, own_namespaces, name, monkeypatch
):
    monkeypatch.setattr("symphony_kube.lifecycle.delete.NAMESPACE_SECONDS", 1.0)
    exp = own_namespaces.new_experiment(name)
    unschedulable(exp, "worker")
    own_namespaces.launch(exp)
    held = {"metadata": {"name": "held", "finalizers": ["symphony.test/held"]}}
    path = f"/api/v1/namespaces/{name}/configmaps"
    kube_cluster.raw.call("POST", path, held)
    try:
        kube_cluster.raw.call("DELETE", f"/api/v1/namespaces/{name}")
        # Kubernetes sets the conditions after about five seconds.
        wait_until(
            lambda: "symphony.test/held" in json.dumps(find_namespace(kube_cluster, name)["status"])
        )
        with pytest.raises(LaunchFailed, match=rf"'{name}' is being deleted.*symphony\.test/held"):
            own_namespaces.launch(exp)
    finally:
        free = {"metadata": {"finalizers": None}}
        kube_cluster.raw.call("PATCH", f"{path}/held", free, "application/merge-patch+json")
    wait_until(lambda: find_namespace(kube_cluster, name) is None)


def test_rejected_objects_roll_the_launch_back(kube_cluster, shared, name, tmp_path):
    exp = with_all_kinds(shared, name, tmp_path)
    unschedulable(exp, "wrong").pod_yml = {"spec": {"restartPolicy": "Sometimes"}}
    with pytest.raises(
        LaunchFailed, match=r"cannot create pod '.*wrong' in namespace.*restartPolicy.*Sometimes"
    ) as caught:
        shared.launch(exp)
    assert "\n" not in str(caught.value)
    assert "swordfish" not in str(caught.value)
    assert managed_objects(kube_cluster) == {}
    assert find_namespace(kube_cluster, name) is None

    kube_cluster.quota("few", {"pods": "3", "count/jobs.batch": "2"})
    pods, jobs = shared.new_experiment(name), shared.new_experiment(name)
    for index in range(6):
        unschedulable(pods, f"worker-{index}").binds(f"service-{index}")
    for index in range(3):
        unschedulable(jobs, f"batch-{index}").job()
    for exp in (pods, jobs):
        with pytest.raises(
            LaunchFailed, match="exceeded quota: few.*delete objects that are no longer"
        ):
            shared.launch(exp)
        assert not managed_objects(kube_cluster).keys() & {"jobs", "services"}
        # The Pods of the Jobs are deleted by Kubernetes, a moment after the Jobs.
        wait_until(lambda: managed_objects(kube_cluster) == {})


def test_server_dry_run_checks_all_objects_and_creates_none(
    kube_cluster, own_namespaces, name, tmp_path, capsys
):
    """The server refuses all objects in a namespace that does not exist yet."""
    exp = with_all_kinds(own_namespaces, name, tmp_path)
    manifest = own_namespaces.launch(exp, dry_run="server")
    assert capsys.readouterr().out == str(manifest)
    assert managed_objects(kube_cluster) == {}
    assert find_namespace(kube_cluster, name) is None
    unschedulable(exp, "wrong").pod_yml = {"spec": {"restartPolicy": "Sometimes"}}
    with pytest.raises(
        LaunchFailed,
        match=r"cannot create pod '.*wrong'.*Pod \"(.*-)?wrong\" is invalid.*Sometimes",
    ):
        own_namespaces.launch(exp, dry_run="server")
