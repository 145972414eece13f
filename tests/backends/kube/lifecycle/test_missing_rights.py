"""Test users who lack some rights, with an API server in memory behind a proxy that refuses calls.

`test_limited_rights.py` tests the refusals of a real server.
"""

import pytest

from symphony.errors import BackendError, LaunchFailed, NotFound
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.lifecycle.rights import ACCESS_REVIEWS
from symphony_kube.lifecycle.supervisor.detached import directory_of
from tests.backends.kube.conftest import managed_objects, unschedulable

# The answer to the question whether the user has a right.
NOT_ALLOWED = {"status": {"allowed": False}}


@pytest.fixture
def kube_cluster(running_memory_cluster):
    return running_memory_cluster


@pytest.fixture
def limited(kube_cluster, kube_faults, open_cluster):
    """A cluster that uses the namespace of the test, and whose calls the proxy can refuse."""
    return open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)


@pytest.mark.parametrize("may_read", [False, True])
def test_delete_without_the_right_to_list_secrets(
    kube_cluster, kube_faults, limited, name, tmp_path, may_read
):
    (tmp_path / "token").write_text("swordfish")
    exp = limited.new_experiment(name, secrets={"token": str(tmp_path / "token")})
    worker = unschedulable(exp, "worker")
    worker.mount_secret("certificates", "/certificates", files=[str(tmp_path / "token")])
    limited.launch(exp)
    before = managed_objects(kube_cluster)
    kube_faults.forbid(method="GET", path=r"/secrets\?" if may_read else "/secrets")
    if may_read:
        limited.delete(name)
        assert managed_objects(kube_cluster) == {}
        return
    with pytest.raises(BackendError, match="ask for the right to list secrets"):
        limited.delete(name)
    assert managed_objects(kube_cluster) == before


def test_rights_for_pods_only_are_sufficient(kube_cluster, kube_faults, limited, name):
    kube_faults.respond(NOT_ALLOWED, method="POST", path=ACCESS_REVIEWS)
    kube_faults.forbid(path="/namespaces/[^/]+/(?!pods)")
    exp = limited.new_experiment(name)
    unschedulable(exp, "worker")
    limited.launch(exp)
    assert managed_objects(kube_cluster) == {"pods": [f"{name}-worker"]}
    limited.delete(name)
    assert managed_objects(kube_cluster) == {}


def test_policies_require_the_right_to_stop_processes(kube_cluster, kube_faults, limited, name):
    kube_faults.respond(NOT_ALLOWED, method="POST", path=ACCESS_REVIEWS)
    exp = limited.new_experiment(name, deadline="6h")
    unschedulable(exp, "worker")
    with pytest.raises(LaunchFailed, match="deadline cannot be applied.*the right to patch pods"):
        limited.launch(exp)
    assert managed_objects(kube_cluster) == {}


def test_a_supervisor_that_cannot_run_in_the_cluster_runs_on_this_machine(
    kube_cluster, kube_faults, open_cluster, name
):
    kube_faults.forbid(method="POST", path="/secrets")
    cluster = open_cluster(
        kubeconfig=str(kube_faults.kubeconfig),
        namespace=kube_cluster.namespace,
        supervisor_image="none:1",
    )
    exp = cluster.new_experiment(name, deadline="6h")
    unschedulable(exp, "worker")
    (note,) = cluster.launch(exp).notes
    pid = directory_of(KubeExperiment(cluster.api, cluster.scope(name))).holder()
    assert note.startswith(
        f"the experiment is supervised by process {pid} on this machine; it cannot run in the "
        f"cluster: cannot create secret '{name}-symphony-supervisor'"
    )
    cluster.delete(name)


def test_the_topology_requires_the_right_to_list_services(kube_faults, limited, name):
    exp = limited.new_experiment(name)
    unschedulable(exp, "server").binds("db")
    limited.launch(exp)
    kube_faults.forbid(method="GET", path="/services")
    with pytest.raises(BackendError, match="it requires the right to list services in namespace"):
        limited.describe_topology(name)
    with pytest.raises(NotFound, match="no experiment 'nowhere'"):
        limited.describe_topology("nowhere")
