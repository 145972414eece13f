"""The API server in memory answers as a real one does where tests depend on it."""

import json
import sys
import threading
import urllib.error
import urllib.request

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


SPEAKER = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print("a", end="\\nb\\n$(X)", flush=True)
if sys.argv[1:]: signal.pause()
"""


def pod_of(name, *arguments, **spec):
    container = {"name": "c", "image": "i", "command": [sys.executable, "-c", SPEAKER]}
    container |= {"args": list(arguments), "env": [{"name": "X", "value": "c"}]}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def state_of(cluster, name, *phases):
    """Return the phase of a Pod, and the exit code and the restarts of its container."""
    status = cluster.wait_for_pod(name, *phases)["status"]
    (container,) = status["containerStatuses"]
    ended = container["state"].get("terminated", {})
    return status["phase"], ended.get("exitCode"), container["restartCount"]


def read_log(cluster, pod, query=""):
    server = json.loads(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    with urllib.request.urlopen(f"{server}{cluster.path(f'pods/{pod}/log')}?{query}") as answer:
        return answer.read().decode()


def test_programs_of_pods_run_until_they_exit_or_are_stopped(local_pods_cluster):
    cluster = local_pods_cluster
    pods = cluster.path("pods")
    cluster.raw.call("POST", pods, pod_of("once", restartPolicy="Never"))
    cluster.raw.call("POST", pods, pod_of("again", restartPolicy="Always"))
    cluster.raw.call("POST", pods, pod_of("late", "pause", activeDeadlineSeconds=1))
    assert state_of(cluster, "once", "Succeeded") == ("Succeeded", 0, 0)
    assert state_of(cluster, "late", "Failed") == ("Failed", 3, 0)
    assert cluster.raw.find(f"{pods}/late")["status"]["reason"] == "DeadlineExceeded"
    while not state_of(cluster, "again", "Running")[2]:
        pass
    for query, expected in (
        ("", "a\nb\nc"),
        ("tailLines=1", "c"),
        ("follow=true", "a\nb\nc"),
        ("sinceTime=2999-01-01T00:00:00Z", ""),
    ):
        assert read_log(cluster, "once", query) == expected
    times = [line.split()[0] for line in read_log(cluster, "once", "timestamps=true").splitlines()]
    assert times == sorted(times)
    with pytest.raises(urllib.error.HTTPError, match="400"):
        read_log(cluster, "once", "previous=true")
    assert read_log(cluster, "again", "previous=true") == "a\nb\nc"


def test_a_pod_is_removed_when_its_programs_have_exited(local_pods_cluster):
    cluster = local_pods_cluster
    pods = cluster.path("pods")
    cluster.raw.call("POST", pods, pod_of("p", "pause"))
    cluster.wait_for_pod("p")
    events = cluster.raw.watch(f"{pods}?fieldSelector=metadata.name=p", seconds=20)
    assert "deletionTimestamp" not in next(events)["object"]["metadata"]
    cluster.raw.call("DELETE", f"{pods}/p")
    last = next(event for event in events if event["type"] == "DELETED")["object"]
    events.close()
    assert "deletionTimestamp" in last["metadata"]
    assert cluster.raw.find(f"{pods}/p") is None
