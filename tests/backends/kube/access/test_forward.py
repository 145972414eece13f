"""External addresses and forwarded ports."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from symphony.errors import NotFound, SpecError
from symphony_kube.access import external_services, port_forward
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import Scope
from tests.backends.kube.conftest import wait_until
from tests.backends.kube.module_experiment import FOREVER, launched, python, through

SCOPE = Scope(experiment="e", namespace="e")
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
WEB = """
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
ThreadingHTTPServer(("0.0.0.0", 8000), SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture(scope="module")
def tunnels(kube_session):
    def build(exp):
        echo = python(exp, "echo", ECHO).binds({"store": 7000}).restart_policy("Always")
        echo.ready(tcp="store")
        web = python(exp, "web", WEB).exposes({"board": 8000})
        web.ready(tcp="board")
        python(exp, "idle", FOREVER)

    with launched(kube_session, build) as (cluster, name):
        cluster.wait(name, timeout=60, until="ready")
        # A node forwards the port when its kube-proxy has received the Service.
        wait_until(lambda: answers(cluster.external_url(name, "board")))
        yield cluster, name


def answers(address):
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=20).close()
    except OSError:
        return False
    return True


def exchange(address, data=b"hello", timeout=40):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=timeout) as connection:

        def send():
            # The connection can be reset, which the reader notices, too.
            with contextlib.suppress(OSError):
                connection.sendall(data)

        sender = threading.Thread(target=send)
        sender.start()
        received = b""
        while len(received) < len(data):
            piece = connection.recv(1 << 16)
            if not piece:
                break
            received += piece
        sender.join()
        return received


def test_exposed_services_have_an_address_and_others_are_forwarded(tunnels, monkeypatch):
    monkeypatch.setattr(port_forward, "EXTERNAL_TIMEOUT_SECONDS", 20.0)
    cluster, name = tunnels
    address = cluster.external_url(name, "board")
    assert urllib.request.urlopen(f"http://{address}", timeout=20).status == 200
    with cluster.visit(name, "board") as tunnel:
        assert (tunnel.address, tunnel.forwarded) == (address, False)
    with pytest.raises(
        NotFound, match="does not expose 'store' outside the cluster; .*symphony visit"
    ):
        cluster.external_url(name, "store")
    with pytest.raises(NotFound, match="did you mean 'board'"):
        cluster.external_url(name, "bord")
    with pytest.raises(NotFound, match="no experiment"):
        cluster.external_url("symphony-test-none", "board")
    with cluster.visit(name, "store") as tunnel:
        assert tunnel.forwarded
        assert exchange(tunnel.address) == b"hello"


def test_concurrent_connections_with_much_data(tunnels):
    cluster, name = tunnels
    with cluster.port_forward(name, "echo", 7000) as tunnel:
        assert tunnel.address.startswith("127.0.0.1:")
        with ThreadPoolExecutor(8) as pool:
            sent = [bytes([number]) * 1_000_000 for number in range(8)]
            assert list(pool.map(lambda data: exchange(tunnel.address, data), sent)) == sent
    with pytest.raises(OSError, match="refused"):
        exchange(tunnel.address)
    assert [
        thread.name for thread in threading.enumerate() if thread.name.startswith("forward")
    ] == []


def test_invalid_ports_and_names(tunnels):
    cluster, name = tunnels
    with cluster.port_forward(name, "store") as tunnel:
        assert exchange(tunnel.address) == b"hello"
        taken = int(tunnel.address.split(":")[1])
        with pytest.raises(SpecError, match=f"cannot listen on local port {taken}"):
            cluster.port_forward(name, "store", local_port=taken)
    for wrong, error, message in [
        (("echo",), SpecError, "process 'echo' requires a port"),
        (("store", 99), SpecError, "service 'store' has port 7000, not 99"),
        (("ecko", 1), NotFound, "did you mean 'echo'"),
        (("echo", 0), SpecError, "a port must be in the range 1 to 65535, not 0"),
    ]:
        with pytest.raises(error, match=message):
            cluster.port_forward(name, *wrong)


def test_restarted_process_is_found_again(tunnels):
    cluster, name = tunnels
    with cluster.port_forward(name, "echo", 7000) as tunnel:
        assert exchange(tunnel.address) == b"hello"
        restarts = cluster.describe_process(name, "echo").restarts
        with contextlib.suppress(ConnectionResetError):
            assert exchange(tunnel.address, b"die") == b""
        assert exchange(tunnel.address) == b"hello"
        # Kubernetes reports the restart a moment later.
        wait_until(lambda: cluster.describe_process(name, "echo").restarts == restarts + 1)


def test_connection_is_reset_if_no_process_listens(tunnels, monkeypatch):
    monkeypatch.setattr(port_forward, "UNAVAILABLE_SECONDS", 0.5)
    cluster, name = tunnels
    errors = []
    with (
        cluster.port_forward(name, "idle", 9, on_error=errors.append) as tunnel,
        pytest.raises(ConnectionResetError),
    ):
        exchange(tunnel.address)
    assert len(errors) == 1
    assert "idle, port 9: " in errors[0]


def test_connection_is_retried_after_api_errors(tunnels, kube_faults, kube_session):
    _, name = tunnels
    cluster = through(kube_faults.kubeconfig, kube_session, name)
    errors = []
    with cluster.port_forward(name, "echo", 7000, on_error=errors.append) as tunnel:
        kube_faults.reset(path="/portforward", times=2)
        kube_faults.answer(500, path="/portforward", times=1)
        assert exchange(tunnel.address) == b"hello"
        wait_until(lambda: kube_faults.count(path="/portforward") == 4)
        assert errors == []
        kube_faults.forbid(path="/portforward")
        with pytest.raises(ConnectionResetError):
            exchange(tunnel.address)
    assert "it requires the right to get and create pods/portforward" in errors[0]
    cluster.api.close()


@pytest.mark.parametrize("words", [["visit", "store"], ["forward", "echo", "7000"]])
def test_port_is_forwarded_until_a_signal(tunnels, kube_session, words):
    _, name = tunnels
    verb, *rest = words
    where = ["--kubeconfig", str(kube_session.cluster.kubeconfig), "--namespace", name]
    command = [sys.executable, "-m", "symphony", verb, "-b", "kube", *where, name, *rest]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as run:
        address = run.stdout.readline().strip().removeprefix("http://")
        assert address.startswith("127.0.0.1:")
        assert exchange(address) == b"hello"
        run.send_signal(signal.SIGTERM)
        assert run.communicate(timeout=20) == ("", "forwarding; press Ctrl-C to stop\n")
    assert run.returncode == 130


@pytest.mark.parametrize(
    ("status", "address"),
    [
        ({"ingress": [{"ip": "1.2.3.4"}]}, "1.2.3.4:80"),
        ({"ingress": [{"hostname": "lb.example"}]}, "lb.example:80"),
        ({"ingress": [{"ip": "2001:db8::1"}]}, "[2001:db8::1]:80"),
    ],
)
def test_load_balancer_address(monkeypatch, status, address):
    service = {
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        "status": {"loadBalancer": status},
    }
    monkeypatch.setattr(external_services, "list_services", lambda experiment: {"web": service})
    assert (
        external_services.external_address(
            KubeExperiment(None, Scope(experiment="e", namespace="e")), "web"
        )
        == address
    )


def test_external_address_of_a_node_is_preferred():
    nodes = [
        {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}},
        {"status": {"addresses": [{"type": "ExternalIP", "address": "5.6.7.8"}]}},
    ]

    class Api:
        def call(self, _method, path, **_options):
            return {"items": nodes if path.endswith("nodes") else [], "metadata": {}}

    service = {"spec": {"selector": {}}}
    assert external_services._node_host(KubeExperiment(Api(), SCOPE), service) == "5.6.7.8"
