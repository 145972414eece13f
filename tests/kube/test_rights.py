"""Calls that the test cluster rejects: RBAC, quotas and limits."""

from __future__ import annotations

import json

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from . import pods

# These tests examine the test cluster, and not symphony.
pytestmark = pytest.mark.long

RESEARCHER = [
    {
        "apiGroups": ["batch"],
        "resources": ["jobs"],
        "verbs": ["create", "delete", "get", "list", "watch"],
    },
    {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list", "watch"]},
]


@pytest.fixture
def researcher(kube_cluster) -> client.ApiClient:
    return kube_cluster.client_of(kube_cluster.user("researcher", RESEARCHER))


def test_researcher_has_no_rights_beyond_jobs(kube_cluster, researcher):
    core, namespace = client.CoreV1Api(researcher), kube_cluster.namespace
    secret = {"metadata": {"name": "s"}, "stringData": {"k": "v"}}
    forbidden = {
        "namespaces": lambda: core.create_namespace({"metadata": {"name": "symphony-test-no"}}),
        "services": lambda: core.create_namespaced_service(namespace, pods.service("s", 7000)),
        "secrets": lambda: core.create_namespaced_secret(namespace, secret),
        "pods": lambda: core.list_namespaced_pod("kube-system"),
    }
    for resource, attempt in forbidden.items():
        with pytest.raises(ApiException) as caught:
            attempt()
        assert caught.value.status == 403
        assert f'resource "{resource}"' in json.loads(caught.value.body)["message"]


def test_wrong_token_is_rejected(kube_cluster):
    kubeconfig = kube_cluster.kubeconfig_of("unknown", {"token": "nonsense"})
    with pytest.raises(ApiException) as caught:
        client.CoreV1Api(kube_cluster.client_of(kubeconfig)).list_namespaced_pod("default")
    assert caught.value.status == 401


def test_users_of_the_devcluster(kube_cluster):
    users = kube_cluster.session.cluster.users
    if not users:
        pytest.skip("only the devcluster has its own users")
    team = "team-a"
    researcher = client.CoreV1Api(kube_cluster.client_of(users["researcher"]))
    stranger = client.CoreV1Api(kube_cluster.client_of(users["stranger"]))
    assert researcher.list_namespaced_pod(team).items == []
    for attempt in (
        lambda: researcher.list_namespaced_secret(team),
        lambda: researcher.create_namespaced_service(team, pods.service("s", 7000)),
        lambda: researcher.list_namespaced_pod("default"),
        lambda: researcher.create_namespace({"metadata": {"name": "symphony-test-no"}}),
        lambda: stranger.list_namespaced_pod(team),
    ):
        with pytest.raises(ApiException) as caught:
            attempt()
        assert caught.value.status == 403


def test_team_namespace_has_a_quota_and_default_limits(kube_cluster):
    if not kube_cluster.session.cluster.users:
        pytest.skip("only the devcluster has a namespace of a team")
    core = client.CoreV1Api(kube_cluster.client)
    small = pods.pod("small", pods.container(kube_cluster.image, pods.FOREVER))
    created = core.create_namespaced_pod("team-a", small, dry_run="All")
    assert created.spec.containers[0].resources.limits == {"cpu": "500m", "memory": "256Mi"}
    limits = {"limits": {"nvidia.com/gpu": "3"}}
    large = pods.pod("large", pods.container(kube_cluster.image, pods.FOREVER, resources=limits))
    with pytest.raises(ApiException) as caught:
        core.create_namespaced_pod("team-a", large, dry_run="All")
    assert "exceeded quota" in caught.value.body


def test_quota_limits_the_number_of_pods(kube_cluster):
    core, namespace = client.CoreV1Api(kube_cluster.client), kube_cluster.namespace
    kube_cluster.quota("one-pod", {"pods": "1"})
    container = pods.container(kube_cluster.image, pods.FOREVER)
    core.create_namespaced_pod(namespace, pods.pod("first", container))
    with pytest.raises(ApiException) as caught:
        core.create_namespaced_pod(namespace, pods.pod("second", container))
    assert caught.value.status == 403
    assert "exceeded quota: one-pod" in caught.value.body
