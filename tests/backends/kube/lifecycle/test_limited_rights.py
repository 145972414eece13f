"""Users with limited rights on a real server: what works, and messages about missing rights.

`test_missing_rights.py` tests with a server in memory what a client does without a right.
"""

import re

import pytest

from symphony.errors import BackendError, LaunchFailed, NotFound
from symphony.kube import NodePoolDispatcher
from symphony.status import State
from tests.backends.kube.conftest import find_namespace, managed_objects, python, unschedulable

READ = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list", "watch"]}
JOBS = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "delete"]}


@pytest.fixture
def as_user(kube_cluster, open_cluster):
    """A function that opens a cluster as a user with some rights in the namespace of the test."""

    def new(*rules, user="someone", **options):
        kubeconfig = str(kube_cluster.user(user, list(rules)))
        return open_cluster(
            kubeconfig=kubeconfig, **{"namespace": kube_cluster.namespace, **options}
        )

    return new


def test_jobs_that_cannot_be_watched_or_listed_are_known_by_their_pods(as_user, name):
    user = as_user(READ, {**JOBS, "verbs": ["create", "get", "list", "delete"]}, jobs_only=True)
    reader = as_user(READ, user="reader", jobs_only=True)
    exp = user.new_experiment(name)
    first = python(exp, "first", "print('hello'); raise SystemExit(3)")
    python(exp, "second", "pass").starts_after(first, "succeeded")
    user.launch(exp)
    assert [line.text for line in user.iter_logs(name, follow=True)] == ["hello"]
    for cluster in (user, reader):
        status = cluster.wait(name, timeout=60)
        assert [(item.state, item.exit_code, item.reason) for item in status] == [
            (State.FAILED, 3, ""),
            (State.FAILED, None, "never started: first failed"),
        ]
    assert reader.list_experiments() == [name]
    with pytest.raises(NotFound, match=f"did you mean '{name}'"):
        reader.describe_experiment(f"{name}x")
    user.delete(name)


def test_a_launch_without_rights_names_the_right_or_an_alternative(
    kube_cluster, as_user, open_cluster, name, tmp_path
):
    (tmp_path / "file").write_text("swordfish")
    kubeconfig = str(kube_cluster.user("someone", [READ, JOBS]))

    def fails(*, binds=None, secrets=None, deadline=None, **options):
        """Return the error of a launch with these options of the cluster and the experiment."""
        cluster = open_cluster(kubeconfig=kubeconfig, **options)
        exp = cluster.new_experiment(name, secrets=secrets, deadline=deadline)
        worker = unschedulable(exp, "worker")
        if binds:
            worker.binds(binds)
        with pytest.raises(LaunchFailed) as caught:
            cluster.launch(exp)
        assert "swordfish" not in str(caught.value)
        assert managed_objects(kube_cluster) == {}
        return str(caught.value)

    shared = {"namespace": kube_cluster.namespace}
    jobs = {**shared, "jobs_only": True}
    secrets = {"token": str(tmp_path / "file")}
    assert "ask for the right to create services in namespace" in fails(**jobs, binds="web")
    assert "ask for the right to create secrets in namespace" in fails(**jobs, secrets=secrets)
    message = "deadline cannot be applied in namespace .*: ask for the right to patch pods"
    assert re.match(message, fails(**jobs, deadline="6h"))
    message = fails(**shared)
    assert 'cannot create resource "pods"' in message
    assert "use jobs_only=True" in message
    message = fails()
    assert message.startswith(f"cannot create namespace '{name}': ")
    assert 'cannot create resource "namespaces"' in message
    assert "namespace=" in message
    assert find_namespace(kube_cluster, name) is None


def test_messages_name_the_missing_verb_and_resource(as_user, name):
    cluster = as_user()
    exp = cluster.new_experiment(name)
    unschedulable(exp, "worker")
    pods = 'cannot list pods in namespace.*cannot list resource "pods".*ask for the right to list'
    for act, message in (
        (lambda: cluster.launch(exp), pods),
        (lambda: cluster.delete(name), pods),
        (lambda: list(cluster.iter_logs(name, follow=True)), "the right to list and watch [Pp]ods"),
        (cluster.node_gpus, "nodes"),
        (
            lambda: NodePoolDispatcher.from_cluster(cluster),
            'cannot list nodes: .*cannot list resource "nodes".*GKEDispatcher',
        ),
    ):
        with pytest.raises(BackendError, match=message) as caught:
            act()
        assert "\n" not in str(caught.value)
