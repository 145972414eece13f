"""Calls to a real API server: objects, watches, certificates, tokens and refused upgrades."""

import contextlib
import json
import socket

import pytest
from urllib3.connection import HTTPSConnection

from symphony.errors import SymphonyError, Unreachable
from symphony_kube.access.exec_stream import open_stream
from symphony_kube.api import connections
from symphony_kube.api.client import ACCEPT_METADATA_LIST, MERGE_PATCH, Api
from symphony_kube.api.errors import ApiError
from symphony_kube.api.retries import Timeouts
from tests.backends.kube.conftest import write_kubeconfig
from tests.backends.kube.test_bad_input import check_each_verb, kubeconfig

MAP = {"metadata": {"name": "m"}}


@pytest.fixture
def api(kube_cluster):
    with contextlib.closing(Api(kubeconfig=kube_cluster.kubeconfig)) as api:
        yield api


def test_every_verb_reports_an_untrusted_certificate(
    kube_cluster, open_cluster, tmp_path, name, pauses
):
    path = kubeconfig(kube_cluster, tmp_path)
    check_each_verb(
        open_cluster(kubeconfig=str(path)),
        name,
        SymphonyError,
        "certificate of .* is not trusted",
        pauses,
    )


def test_objects_and_refusals(kube_cluster, api, tmp_path):
    maps = kube_cluster.path("configmaps")
    assert api.find(f"{maps}/m") is None
    api.call("POST", maps, body=MAP)
    api.call("PATCH", f"{maps}/m", body=b'{"data": {"a": "b"}}', content_type=MERGE_PATCH)
    assert api.find(f"{maps}/m")["data"] == {"a": "b"}
    listed = api.call(
        "GET",
        maps,
        query={"fieldSelector": "metadata.name=m", "limit": None},
        accept=ACCEPT_METADATA_LIST,
    )
    assert ["data" in item for item in listed["items"]] == [False]
    with pytest.raises(ApiError, match='"m" already exists') as caught:
        api.call("POST", maps, body=MAP)
    assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")
    with pytest.raises(ApiError) as caught:
        open_stream(
            api, kube_cluster.path("pods/none/exec"), query=[("command", "true")], channels=[]
        )
    assert caught.value.status == 404
    with socket.create_server(("127.0.0.1", 0)) as listener:
        path = write_kubeconfig(tmp_path / "k", f"http://127.0.0.1:{listener.getsockname()[1]}")
        slow = Api(kubeconfig=path, timeouts=Timeouts(response=0.5))
        with pytest.raises(Unreachable, match="timed out"):
            open_stream(slow, "/x", query=[], channels=[])
    unknown = kube_cluster.kubeconfig_of("unknown", {"token": "nonsense"})
    with (
        contextlib.closing(Api(kubeconfig=unknown)) as other,
        pytest.raises(ApiError, match="does not accept these credentials.*expired.*log in again"),
    ):
        other.call("GET", "/api/v1/namespaces/default")


def test_server_that_is_near_does_not_compress_responses(
    kube_cluster, tmp_path, monkeypatch, capfd
):
    sent = []
    send = HTTPSConnection.request

    def request(connection, method, url, body, headers, **options):
        sent.append(headers.get("Accept-Encoding"))
        send(connection, method, url, body, headers, **options)

    monkeypatch.setattr(HTTPSConnection, "request", request)
    cluster = json.loads(kube_cluster.kubeconfig.read_text())
    server = cluster["clusters"][0]["cluster"]["server"]
    forced = {"disable-compression": False}
    for near_seconds, settings in ((60, {}), (0, {}), (60, forced)):
        monkeypatch.setattr(connections, "NEAR_SECONDS", near_seconds)
        settings = {"insecure-skip-tls-verify": True, **settings}
        path = write_kubeconfig(tmp_path / "k", server, cluster["users"][0]["user"], **settings)
        with contextlib.closing(Api(kubeconfig=path)) as api:
            assert api.call("GET", "/version")["major"]
    assert sent == [None, "gzip", "gzip"]
    # A certificate that is not verified causes no warnings.
    assert capfd.readouterr() == ("", "")
