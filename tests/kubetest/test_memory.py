"""The API server in memory answers as a real one does where tests depend on it."""

import threading

import pytest

from kubetest.rawapi import MERGE_PATCH, ApiError

MAP = {"metadata": {"name": "m", "labels": {"a": "b"}}}


@pytest.fixture
def raw(memory_cluster):
    return memory_cluster.raw


@pytest.fixture
def maps(memory_cluster):
    return memory_cluster.path("configmaps")


def names(raw, path):
    return [item["metadata"]["name"] for item in raw.call("GET", path)["items"]]


def test_objects_are_stored_selected_changed_and_deleted(raw, maps):
    created = raw.call("POST", maps, MAP)
    raw.call("POST", maps, {"metadata": {"name": "other"}})
    assert raw.find(f"{maps}/m") == created
    raw.call("POST", f"{maps}?dryRun=All", {"metadata": {"name": "none"}})
    for query, expected in (
        ("labelSelector=a%3Db", ["m"]),
        ("labelSelector=a", ["m"]),
        ("labelSelector=!a", ["other"]),
        ("labelSelector=a!%3Db", ["other"]),
        ("fieldSelector=metadata.name%3Dother", ["other"]),
        ("fieldSelector=metadata.name!%3Dother", ["m"]),
        ("", ["m", "other"]),
    ):
        assert names(raw, f"{maps}?{query}") == expected
    patch = {"data": {"x": "y"}, "metadata": {"labels": {"a": None}}}
    changed = raw.call("PATCH", f"{maps}/m", patch, MERGE_PATCH)
    assert (changed["data"], changed["metadata"]["labels"]) == ({"x": "y"}, {})
    assert changed["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    raw.call("DELETE", maps)
    assert names(raw, maps) == []


def test_errors_have_the_codes_of_kubernetes(raw, maps):
    uid = raw.call("POST", maps, MAP)["metadata"]["uid"]
    other = {"preconditions": {"uid": "another"}}
    for method, path, body, code in (
        ("POST", maps, MAP, 409),
        ("GET", f"{maps}/none", None, 404),
        ("DELETE", f"{maps}/none", None, 404),
        ("DELETE", f"{maps}/m", other, 409),
    ):
        with pytest.raises(ApiError) as caught:
            raw.call(method, path, body)
        assert caught.value.status == code
    with pytest.raises(ApiError, match="has been modified"):
        raw.call("PATCH", f"{maps}/m", {"metadata": {"resourceVersion": "0"}}, MERGE_PATCH)
    raw.call("DELETE", f"{maps}/m", {"preconditions": {"uid": uid}})


def test_pods_are_pending_unschedulable_or_running(memory_cluster, running_memory_cluster):
    containers = [{"name": "c", "image": "i"}]
    for cluster, selector, phase in (
        (memory_cluster, {}, "Pending"),
        (memory_cluster, {"a": "b"}, "Pending"),
        (running_memory_cluster, {}, "Running"),
        (running_memory_cluster, {"a": "b"}, "Pending"),
    ):
        pod = {"metadata": {}, "spec": {"containers": containers, "nodeSelector": selector}}
        status = cluster.raw.call("POST", cluster.path("pods"), pod)["status"]
        assert status["phase"] == phase
        reasons = [item.get("reason") for item in status.get("conditions", [])]
        assert ("Unschedulable" in reasons) is bool(selector)


def test_an_object_with_a_finalizer_remains_until_it_is_released(raw, maps):
    raw.call("POST", maps, {"metadata": {"name": "held", "finalizers": ["x/y"]}})
    raw.call("DELETE", f"{maps}/held")
    assert "deletionTimestamp" in raw.find(f"{maps}/held")["metadata"]
    raw.call("PATCH", f"{maps}/held", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    assert raw.find(f"{maps}/held") is None


def test_a_namespace_is_deleted_with_its_objects(raw):
    path = "/api/v1/namespaces/another"
    raw.call("POST", "/api/v1/namespaces", {"metadata": {"name": "another"}})
    raw.call("POST", f"{path}/configmaps", MAP)
    assert names(raw, f"{path}/serviceaccounts") == ["default"]
    raw.call("DELETE", path)
    assert raw.find(path) is None
    assert names(raw, f"{path}/configmaps") == []


def test_watches_begin_with_the_objects_or_after_a_version(raw, maps):
    raw.call("POST", maps, MAP)
    version = raw.call("GET", maps)["metadata"]["resourceVersion"]
    later = threading.Timer(0, raw.call, ["POST", maps, {"metadata": {"name": "n"}}])
    later.start()
    for query, expected in (("", ["m", "n"]), (f"&resourceVersion={version}", ["n"])):
        events = raw.watch(f"{maps}?x={query}", seconds=20)
        found = [next(events)["object"]["metadata"]["name"] for _ in expected]
        events.close()
        assert found == expected
    events = raw.watch(f"{maps}?resourceVersion={version}0", seconds=1)
    assert list(events) == []
