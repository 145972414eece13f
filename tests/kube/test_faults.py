"""The proxy injects the requested faults, and passes on all other calls."""

from __future__ import annotations

import time

import pytest
import urllib3
from kubernetes import client

from kubetest.rawapi import ApiError, RawApi, access

MAP = {"metadata": {"name": "m"}}


@pytest.fixture
def kube_cluster(memory_cluster):
    return memory_cluster


@pytest.fixture
def via_proxy(kube_faults) -> RawApi:
    """Return a client that calls the API server through the proxy and never retries."""
    return RawApi(access(kube_faults.kubeconfig))


def test_calls_without_a_fault_are_passed_on_and_counted(kube_cluster, kube_faults, via_proxy):
    maps = kube_cluster.path("configmaps")
    via_proxy.call("POST", maps, MAP)
    assert via_proxy.call("GET", f"{maps}/m")["metadata"]["name"] == "m"
    assert via_proxy.find(f"{maps}/none") is None
    assert kube_faults.count() == 3
    assert kube_faults.count(method="POST", path=r"/configmaps$") == 1
    assert [call.fault for call in kube_faults.calls()] == [None, None, None]


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_error_answers_are_limited_to_a_number(kube_cluster, kube_faults, via_proxy, status):
    kube_faults.answer(status, method="POST", path=r"/configmaps$", times=2, retry_after=1)
    maps = kube_cluster.path("configmaps")
    via_proxy.call("GET", maps)
    for _ in range(2):
        with pytest.raises(ApiError) as caught:
            via_proxy.call("POST", maps, MAP)
        assert caught.value.status == status
    assert kube_cluster.raw.find(f"{maps}/m") is None
    via_proxy.call("POST", maps, MAP)
    assert kube_faults.count(method="POST") == 3
    kube_faults.answer(500)
    kube_faults.clear()
    via_proxy.call("GET", maps)


def test_refusals_name_the_right(kube_cluster, kube_faults, via_proxy):
    kube_faults.forbid(path="/configmaps|/jobs")
    maps, jobs = kube_cluster.path("configmaps"), kube_cluster.path("jobs", group="apis/batch/v1")
    for method, path, right in (
        ("POST", maps, 'create resource "configmaps"'),
        ("GET", f"{maps}/m", 'get resource "configmaps"'),
        ("GET", f"{jobs}?limit=1", 'list resource "jobs.batch"'),
        ("GET", f"{jobs}?watch=true", 'watch resource "jobs.batch"'),
        ("PATCH", f"{jobs}/j/status", 'patch resource "jobs.batch/status"'),
    ):
        with pytest.raises(ApiError, match=f"cannot {right}") as caught:
            via_proxy.call(method, path, MAP)
        assert caught.value.status == 403
    via_proxy.call("GET", kube_cluster.path("pods"))


def test_delay(kube_cluster, kube_faults, via_proxy):
    kube_faults.delay(1.5, path="/configmaps", times=1)
    started = time.monotonic()
    via_proxy.call("GET", kube_cluster.path("configmaps"))
    assert time.monotonic() - started >= 1.5
    via_proxy.call("GET", kube_cluster.path("configmaps"))
    assert [call.fault for call in kube_faults.calls()] == ["delay", None]


@pytest.mark.parametrize("after", [False, True])
def test_reset_before_or_after_the_call(kube_cluster, kube_faults, via_proxy, after):
    kube_faults.reset(method="POST", times=1, after=after)
    maps = kube_cluster.path("configmaps")
    with pytest.raises(urllib3.exceptions.ProtocolError, match="reset"):
        via_proxy.call("POST", maps, MAP)
    assert (kube_cluster.raw.find(f"{maps}/m") is not None) is after


@pytest.mark.parametrize("after", [False, True])
def test_dropped_call_gets_no_answer(kube_cluster, kube_faults, after):
    kube_faults.drop(method="POST", times=1, after=after)
    core = client.CoreV1Api(kube_cluster.client_of(kube_faults.kubeconfig))
    with pytest.raises(urllib3.exceptions.HTTPError):
        core.create_namespaced_config_map(kube_cluster.namespace, MAP, _request_timeout=1)
    if after:  # the API server may handle the call later than the client gives up
        maps = kube_cluster.path("configmaps?fieldSelector=metadata.name=m")
        assert next(kube_cluster.raw.watch(maps, seconds=30))["type"] == "ADDED"
    else:
        assert kube_cluster.raw.find(kube_cluster.path("configmaps/m")) is None


def test_watch_is_passed_on(kube_cluster, via_proxy):
    maps = kube_cluster.path("configmaps")
    events = via_proxy.watch(f"{maps}?fieldSelector=metadata.name=m", seconds=60)
    kube_cluster.raw.call("POST", maps, MAP)
    assert next(events)["object"]["metadata"]["name"] == "m"
    kube_cluster.raw.call("DELETE", f"{maps}/m")
    # A proxy that buffers the response would never deliver this event.
    assert next(events)["type"] == "DELETED"
    events.close()


def test_official_client_retries_429_except_for_post(kube_cluster, kube_faults):
    kube_faults.answer(429, method="GET", path="/configmaps", retry_after=0, times=2)
    core = client.CoreV1Api(kube_cluster.client_of(kube_faults.kubeconfig))
    core.list_namespaced_config_map(kube_cluster.namespace)
    assert kube_faults.count(method="GET", path="/configmaps") == 3
