"""Services, DNS and the image of the test cluster, with the official client.

The tests of the kube backend cover logs, exec, port-forward, Jobs and node ports.
"""

from __future__ import annotations

import pytest
from kubernetes import client

from kubetest.plugin import KubeCluster

from . import pods
from .streams import run_in_pod

# These tests examine the test cluster, and not symphony.
pytestmark = pytest.mark.long

ZMQ_SERVER = """
import zmq
with zmq.Context() as context:
    replies = context.socket(zmq.REP)
    replies.bind("tcp://0.0.0.0:7000")
    replies.send_string("hello " + replies.recv_string())
    replies.close(linger=60000)
"""
# A connection that is opened before its node knows the Service is lost. Only a new one succeeds.
ZMQ_CLIENT = """
import zmq
requests = zmq.Context().socket(zmq.REQ)
requests.connect_timeout = 1500
requests.connect("tcp://server:7000")
requests.send_string("agent")
print(requests.recv_string())
"""


@pytest.fixture
def core(kube_cluster: KubeCluster) -> client.CoreV1Api:
    return client.CoreV1Api(kube_cluster.client)


def test_pods_connect_through_a_service(kube_cluster, core):
    """The Pods run on two nodes if the cluster has two."""
    nodes = [n.metadata.name for n in core.list_node().items if not n.spec.taints]
    namespace, image = kube_cluster.namespace, kube_cluster.image
    core.create_namespaced_service(namespace, pods.service("server", 7000))
    server = pods.pod("server", pods.container(image, ZMQ_SERVER), nodeName=nodes[0])
    agent = pods.pod("agent", pods.container(image, ZMQ_CLIENT), nodeName=nodes[-1])
    core.create_namespaced_pod(namespace, server)
    core.create_namespaced_pod(namespace, agent)
    kube_cluster.wait_for_pod("agent", "Succeeded")
    assert core.read_namespaced_pod_log("agent", namespace) == "hello agent\n"


def test_new_service_resolves_at_once(kube_cluster, core):
    if kube_cluster.session.cluster.kind != "devcluster":
        pytest.skip("only the DNS of the devcluster is never late")
    namespace = kube_cluster.namespace
    core.create_namespaced_pod(
        namespace, pods.pod("asker", pods.container(kube_cluster.image, pods.FOREVER))
    )
    kube_cluster.wait_for_pod("asker")
    code = "import socket, sys; print(*[socket.gethostbyname(name) for name in sys.argv[1:]])"
    ask = ["python3", "-c", code]
    for number in range(5):
        name = f"service-{number}"
        created = core.create_namespaced_service(namespace, pods.service(name, 7000))
        names = [name, f"{name}.{namespace}", f"{name}.{namespace}.svc.cluster.local"]
        output, status = run_in_pod(kube_cluster.client, namespace, "asker", *ask, *names)
        assert (output.split(), status) == ([created.spec.cluster_ip] * 3, 0)
        # Before 1.24 the response is a Status, which the typed client cannot parse.
        core.delete_namespaced_service(name, namespace, _preload_content=False)
    output, status = run_in_pod(kube_cluster.client, namespace, "asker", *ask, "service-0")
    assert status == 1, f"a deleted Service still resolves: {output}"


def test_image_contains_symphony(kube_cluster, core):
    code = "import symphony, importlib.metadata as m; print(m.version('symphony-launcher'))"
    core.create_namespaced_pod(
        kube_cluster.namespace, pods.pod("user", pods.container(kube_cluster.image, code))
    )
    kube_cluster.wait_for_pod("user", "Succeeded")


def test_the_proxy_for_faults_passes_commands_on(kube_cluster, kube_faults):
    core = client.CoreV1Api(kube_cluster.client_of(kube_faults.kubeconfig))
    idle = pods.pod("idle", pods.container(kube_cluster.image, pods.FOREVER))
    core.create_namespaced_pod(kube_cluster.namespace, idle)
    kube_cluster.wait_for_pod("idle")
    command = ["sh", "-c", "read word; echo heard $word; exit 5"]
    output, code = run_in_pod(
        core.api_client, kube_cluster.namespace, "idle", *command, stdin="hello\n"
    )
    assert (output, code) == ("heard hello\n", 5)
    assert kube_faults.count(path="/exec") == 1
