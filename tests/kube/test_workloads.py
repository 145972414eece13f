"""Pods, logs, exec, port-forward, Jobs and Services, by the official client."""

from __future__ import annotations

import socket
import time

import pytest
from kubernetes import client

from kubetest.plugin import KubeCluster

from . import pods
from .streams import run_in_pod, talk_to_pod

ZMQ_SERVER = """
import zmq
with zmq.Context() as context:
    replies = context.socket(zmq.REP)
    replies.bind("tcp://0.0.0.0:7000")
    replies.send_string("hello " + replies.recv_string())
    replies.close(linger=60000)
"""
# What is sent to a Service before its node knows that is lost, and comes through on a new connection alone.
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


def test_two_pods_talk_zeromq_through_a_service_by_name(kube_cluster, core):
    namespace, image = kube_cluster.namespace, kube_cluster.image
    core.create_namespaced_service(namespace, pods.service("server", 7000))
    core.create_namespaced_pod(namespace, pods.pod("server", pods.container(image, ZMQ_SERVER)))
    core.create_namespaced_pod(namespace, pods.pod("agent", pods.container(image, ZMQ_CLIENT)))
    kube_cluster.wait_for_pod("agent", "Succeeded")
    kube_cluster.wait_for_pod("server", "Succeeded")
    assert core.read_namespaced_pod_log("agent", namespace) == "hello agent\n"


def test_pods_on_two_nodes_talk_zeromq(kube_cluster, core):
    nodes = [n.metadata.name for n in core.list_node().items if not n.spec.taints]
    if len(nodes) < 2:
        pytest.skip("this cluster has only one node that takes any Pod")
    namespace, image = kube_cluster.namespace, kube_cluster.image
    core.create_namespaced_service(namespace, pods.service("server", 7000))
    server = pods.pod("server", pods.container(image, ZMQ_SERVER), nodeName=nodes[0])
    agent = pods.pod("agent", pods.container(image, ZMQ_CLIENT), nodeName=nodes[1])
    core.create_namespaced_pod(namespace, server)
    core.create_namespaced_pod(namespace, agent)
    kube_cluster.wait_for_pod("agent", "Succeeded")
    assert core.read_namespaced_pod_log("agent", namespace) == "hello agent\n"


def test_a_service_resolves_the_moment_after_it_is_created(kube_cluster, core):
    if kube_cluster.session.cluster.kind != "devcluster":
        pytest.skip("only the devcluster's DNS is never late")
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
        # before 1.24 the answer is a Status, which the typed client takes for a broken Service
        core.delete_namespaced_service(name, namespace, _preload_content=False)
    output, status = run_in_pod(kube_cluster.client, namespace, "asker", *ask, "service-0")
    assert status == 1, f"a deleted Service still resolves: {output}"


def test_logs(kube_cluster, core):
    code = "import sys; print('out'); print('err', file=sys.stderr); print('ümlaut')"
    core.create_namespaced_pod(
        kube_cluster.namespace, pods.pod("talker", pods.container(kube_cluster.image, code))
    )
    kube_cluster.wait_for_pod("talker", "Succeeded")
    log = core.read_namespaced_pod_log("talker", kube_cluster.namespace)
    assert sorted(log.splitlines()) == ["err", "out", "ümlaut"]
    tail = core.read_namespaced_pod_log("talker", kube_cluster.namespace, tail_lines=1)
    assert tail.count("\n") == 1


def test_exec_gives_output_and_exit_code(kube_cluster, core):
    namespace = kube_cluster.namespace
    core.create_namespaced_pod(
        namespace, pods.pod("idle", pods.container(kube_cluster.image, pods.FOREVER))
    )
    kube_cluster.wait_for_pod("idle")
    output, code = run_in_pod(
        kube_cluster.client, namespace, "idle", "sh", "-c", "echo here; exit 7"
    )
    assert (output, code) == ("here\n", 7)


def test_port_forward(kube_cluster, core):
    namespace = kube_cluster.namespace
    core.create_namespaced_pod(namespace, pods.echo("echo", kube_cluster.image))
    kube_cluster.wait_for_pod("echo")
    answer = talk_to_pod(kube_cluster.client, namespace, "echo", port=7000, text=b"hello\n")
    assert answer == b"HELLO\n"


def test_a_job_runs_to_completion_and_a_failing_one_fails(kube_cluster):
    batch, namespace = client.BatchV1Api(kube_cluster.client), kube_cluster.namespace
    for name, code, condition in (
        ("good", "", "Complete"),
        ("bad", "raise SystemExit(3)", "Failed"),
    ):
        batch.create_namespaced_job(
            namespace, pods.job(name, pods.container(kube_cluster.image, code))
        )
        path = kube_cluster.path(f"jobs?fieldSelector=metadata.name={name}", group="apis/batch/v1")
        conditions = {
            entry["type"]
            for event in until_settled(kube_cluster, path)
            for entry in event["object"]["status"].get("conditions", [])
        }
        assert condition in conditions


def until_settled(kube_cluster: KubeCluster, path: str):
    for event in kube_cluster.raw.watch(path, seconds=60):
        yield event
        found = event["object"]["status"].get("conditions", [])
        if any(entry["type"] in ("Complete", "Failed") for entry in found):
            return


def test_the_image_has_the_project(kube_cluster, core):
    code = "import symphony, importlib.metadata as m; print(m.version('symphony-launcher'))"
    core.create_namespaced_pod(
        kube_cluster.namespace, pods.pod("user", pods.container(kube_cluster.image, code))
    )
    kube_cluster.wait_for_pod("user", "Succeeded")


def test_a_node_port_is_open_on_the_nodes(kube_cluster, core):
    if kube_cluster.session.cluster.kind != "devcluster":
        pytest.skip("only the devcluster's nodes are surely within reach of this machine")
    namespace = kube_cluster.namespace
    spec = pods.service("echo", 7000)
    spec["spec"]["type"] = "NodePort"
    port = core.create_namespaced_service(namespace, spec).spec.ports[0].node_port
    core.create_namespaced_pod(namespace, pods.echo("echo", kube_cluster.image))
    kube_cluster.wait_for_pod("echo")
    addresses = [node.status.addresses[0].address for node in core.list_node().items]
    for address in addresses:
        assert exchange(address, port, b"hello\n") == b"HELLO\n"


def exchange(address: str, port: int, text: bytes) -> bytes:
    """Send and receive, as soon as kube-proxy has heard of the Pod; nothing tells when that is.

    Until then the port refuses, or is held open by this kube-proxy itself, which accepts and never answers.
    """
    deadline = time.monotonic() + 40
    while True:
        try:
            with socket.create_connection((address, port), timeout=1) as connection:
                connection.sendall(text)
                return connection.recv(100)
        except (ConnectionRefusedError, TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
