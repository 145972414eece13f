"""Users with limited rights on a real server: what works, and messages about missing rights.

`test_missing_rights.py` tests with a server in memory what a client does without a right.
"""

import pytest

from symphony.errors import BackendError, LaunchFailed

from .conftest import find_namespace, managed_objects, python, unschedulable, wait_until

READ = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list", "watch"]}
JOBS = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "delete"]}


@pytest.fixture
def as_user(kube_cluster, open_cluster):
    """A function that opens a cluster as a user with some rights in the namespace of the test."""

    def new(*rules, **options):
        kubeconfig = str(kube_cluster.user("someone", list(rules)))
        return open_cluster(
            kubeconfig=kubeconfig, **{"namespace": kube_cluster.namespace, **options}
        )

    return new


def test_jobs_that_cannot_be_watched_are_followed_by_their_pods(kube_cluster, as_user, name):
    cluster = as_user(READ, {**JOBS, "verbs": ["create", "get", "list", "delete"]}, jobs_only=True)
    exp = cluster.new_experiment(name)
    python(exp, "one", "print('hello')")
    cluster.launch(exp)
    assert [line.text for line in cluster.iter_logs(name, follow=True)] == ["hello"]
    assert cluster.wait(name, timeout=60).exit_code == 0
    cluster.delete(name)


def test_missing_right_is_reported_and_launch_is_rolled_back(kube_cluster, as_user, name, tmp_path):
    (tmp_path / "file").write_text("swordfish")
    cluster = as_user(READ, JOBS, jobs_only=True)
    for what in ("services", "secrets"):
        secrets = {"token": str(tmp_path / "file")} if what == "secrets" else None
        exp = cluster.new_experiment(name, secrets=secrets)
        worker = unschedulable(exp, "worker")
        if what == "services":
            worker.binds("web")
        with pytest.raises(
            LaunchFailed, match=f"cannot create .*ask for the right to create {what} in namespace"
        ) as caught:
            cluster.launch(exp)
        assert "swordfish" not in str(caught.value)
        assert managed_objects(kube_cluster) == {}


def test_missing_right_to_create_pods_suggests_jobs_only(kube_cluster, as_user, name):
    cluster = as_user(READ, JOBS)
    exp = cluster.new_experiment(name)
    unschedulable(exp, "worker")
    with pytest.raises(LaunchFailed, match='cannot create resource "pods".*use jobs_only=True'):
        cluster.launch(exp)
    assert managed_objects(kube_cluster) == {}


def test_missing_right_to_create_namespaces_suggests_a_shared_one(kube_cluster, as_user, name):
    cluster = as_user(READ, JOBS, namespace=None)
    exp = cluster.new_experiment(name)
    unschedulable(exp, "worker")
    message = (
        f"cannot create namespace '{name}': .*cannot create resource \"namespaces\".*namespace="
    )
    with pytest.raises(LaunchFailed, match=message):
        cluster.launch(exp)
    assert find_namespace(kube_cluster, name) is None


def test_message_names_the_missing_verb_and_resource(as_user, name):
    cluster = as_user()
    exp = cluster.new_experiment(name)
    unschedulable(exp, "worker")
    for act in (lambda: cluster.launch(exp), lambda: cluster.delete(name)):
        with pytest.raises(
            BackendError, match='cannot list pods in namespace.*cannot list resource "pods"'
        ) as caught:
            act()
        assert "ask for the right to list pods" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_rollback_of_jobs_deletes_their_pods(kube_cluster, shared, name):
    kube_cluster.quota("few", {"count/jobs.batch": "2"})
    exp = shared.new_experiment(name)
    for index in range(3):
        unschedulable(exp, f"batch-{index}").job()
    with pytest.raises(LaunchFailed, match="exceeded quota: few"):
        shared.launch(exp)
    assert "jobs" not in managed_objects(kube_cluster)
    wait_until(lambda: managed_objects(kube_cluster) == {})
