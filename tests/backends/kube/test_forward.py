"""Ports: addresses from outside, forwarded ports, several at once, and what heals."""

import contextlib
import socket
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from symphony.errors import NotFound, SpecError
from symphony_kube.access import port_forward
from symphony_kube.api.labels import Scope

from .conftest import until
from .using import FOREVER, launched, python, through

ECHO = """
import os, socketserver
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            if data == b"die": os._exit(1)
            self.request.sendall(data)
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("0.0.0.0", 7000), Handler).serve_forever()
"""
WEB = (
    "import http.server; "
    "http.server.ThreadingHTTPServer(('0.0.0.0', 8000), http.server.SimpleHTTPRequestHandler).serve_forever()"
)


@pytest.fixture(scope="module")
def running(kube_session):
    def build(exp):
        echo = python(exp, "echo", ECHO).binds({"store": 7000}).restart_policy("Always")
        echo.ready(tcp="store")
        web = python(exp, "web", WEB).exposes({"board": 8000})
        web.ready(tcp="board")
        python(exp, "idle", FOREVER)

    with launched(kube_session, build) as (cluster, name):
        cluster.wait(name, timeout=60, until="ready")
        until(
            lambda: answers(cluster.external_url(name, "board"))
        )  # a node leads there when it has heard of it
        yield cluster, name


def answers(address):
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=20).close()
    except OSError:
        return False
    return True


def talk(address, data=b"hello", timeout=40):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=timeout) as connection:
        connection.sendall(data)
        got = b""
        while len(got) < len(data):
            piece = connection.recv(1 << 16)
            if not piece:
                break
            got += piece
        return got


def test_an_exposed_service_answers_at_its_address(running, monkeypatch):
    monkeypatch.setattr(port_forward, "EXTERNAL_TIMEOUT_SECONDS", 20.0)
    cluster, name = running
    address = cluster.external_url(name, "board")
    assert urllib.request.urlopen(f"http://{address}", timeout=20).status == 200
    with cluster.visit(name, "board") as route:
        assert (route.address, route.forwarded) == (address, False)


def test_what_has_no_address_outside(running):
    cluster, name = running
    with pytest.raises(NotFound, match="does not expose 'store' outside the cluster; .*symphony visit"):
        cluster.external_url(name, "store")
    with pytest.raises(NotFound, match="did you mean 'board'"):
        cluster.external_url(name, "bord")
    with pytest.raises(NotFound, match="no experiment"):
        cluster.external_url("symphony-test-none", "board")
    with cluster.visit(name, "store") as route:
        assert route.forwarded
        assert talk(route.address) == b"hello"


def test_several_connections_at_once_and_much_data(running):
    cluster, name = running
    with cluster.port_forward(name, "echo", 7000) as route:
        assert route.address.startswith("127.0.0.1:")
        with ThreadPoolExecutor(8) as pool:
            sent = [bytes([number]) * 1_000_000 for number in range(8)]
            assert list(pool.map(lambda data: _both_ways(route.address, data), sent)) == sent
    with pytest.raises(OSError, match="refused"):
        talk(route.address)
    assert [
        thread.name for thread in threading.enumerate() if thread.name.startswith("forward")
    ] == []


def _both_ways(address, data):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=40) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        got = b""
        while len(got) < len(data):
            piece = connection.recv(1 << 16)
            if not piece:
                break
            got += piece
        sender.join()
        return got


def test_ports_of_services_and_wrong_ones(running):
    cluster, name = running
    with cluster.port_forward(name, "store") as route:
        assert talk(route.address) == b"hello"
        taken = int(route.address.split(":")[1])
        with pytest.raises(SpecError, match=f"cannot listen on local port {taken}"):
            cluster.port_forward(name, "store", local_port=taken)
    for wrong, error, said in [
        (("echo",), SpecError, "process 'echo' requires a port"),
        (("store", 99), SpecError, "service 'store' has port 7000, not 99"),
        (("ecko", 1), NotFound, "did you mean 'echo'"),
        (("echo", 0), SpecError, "a port must be in the range 1 to 65535, not 0"),
    ]:
        with pytest.raises(error, match=said):
            cluster.port_forward(name, *wrong)


def test_it_heals_when_the_process_is_restarted(running):
    cluster, name = running
    with cluster.port_forward(name, "echo", 7000) as route:
        assert talk(route.address) == b"hello"
        restarts = cluster.describe_process(name, "echo").restarts
        with contextlib.suppress(ConnectionResetError):
            assert talk(route.address, b"die") == b""
        assert talk(route.address) == b"hello"
        until(
            lambda: cluster.describe_process(name, "echo").restarts == restarts + 1
        )  # told a moment later


def test_where_nothing_listens_the_connection_breaks_and_is_told(running, monkeypatch):
    monkeypatch.setattr(port_forward, "UNAVAILABLE_SECONDS", 0.5)
    cluster, name = running
    told = []
    with (
        cluster.port_forward(name, "idle", 9, on_error=told.append) as route,
        pytest.raises(ConnectionResetError),
    ):
        talk(route.address)
    assert len(told) == 1
    assert "idle, port 9: " in told[0]


def test_a_broken_api_connection_ends_the_connection_and_the_next_one_works(
    running, kube_faults, kube_session
):
    _, name = running
    cluster = through(kube_faults.kubeconfig, kube_session, name)
    with cluster.port_forward(name, "echo", 7000) as route:
        kube_faults.reset(path="/portforward", times=2)
        kube_faults.answer(500, path="/portforward", times=1)
        assert talk(route.address) == b"hello"
        until(lambda: kube_faults.count(path="/portforward") == 4)
    cluster.api.close()


def test_without_the_right_it_is_said(running, kube_cluster, kube_session, monkeypatch):
    _, name = running
    del name
    config = kube_cluster.user(
        "reader", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    )
    kube_cluster.raw.call("POST", kube_cluster.path("pods"), _pod(kube_cluster))
    kube_cluster.wait_for_pod("mine-alone")
    from symphony import Cluster

    cluster = Cluster.new("kube", kubeconfig=str(config), namespace=kube_cluster.namespace)
    told = []
    with (
        cluster.port_forward("mine", "alone", 1, on_error=told.append) as route,
        pytest.raises(ConnectionResetError),
    ):
        talk(route.address)
    assert "it requires the right to get and create pods/portforward" in told[0]
    cluster.api.close()


def _pod(kube):
    labels = {
        "app.kubernetes.io/managed-by": "symphony",
        "symphony/experiment": "mine",
        "symphony/unit": "alone",
    }
    container = {"name": "alone", "image": kube.image, "command": ["python3", "-c", FOREVER]}
    return {
        "metadata": {"name": "mine-alone", "labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


@pytest.mark.parametrize(
    ("status", "address"),
    [
        ({"ingress": [{"ip": "1.2.3.4"}]}, "1.2.3.4:80"),
        ({"ingress": [{"hostname": "lb.example"}]}, "lb.example:80"),
        ({"ingress": [{"ip": "2001:db8::1"}]}, "[2001:db8::1]:80"),
    ],
)
def test_a_load_balancer_by_address_or_name(monkeypatch, status, address):
    service = {
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        "status": {"loadBalancer": status},
    }
    monkeypatch.setattr(port_forward, "_list_services", lambda api, scope: {"web": service})
    assert port_forward.external_address(None, Scope(experiment="e", namespace="e"), "web") == address


def test_a_node_that_is_reached_from_outside_comes_first():
    nodes = [
        {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}},
        {"status": {"addresses": [{"type": "ExternalIP", "address": "5.6.7.8"}]}},
    ]

    class Api:
        def call(self, _method, path, query=None):
            return {"items": nodes if path.endswith("nodes") else [], "metadata": {}}



    service = {"spec": {"selector": {}}}
    assert port_forward._node_host(Api(), Scope(experiment="e", namespace="e"), service) == "5.6.7.8"
