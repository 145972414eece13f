"""Deleting: all of it, nothing else, and only when it is gone is it done."""

import threading

import pytest

from symphony.errors import BackendError
from symphony_kube.api import labels as names

from .conftest import FOREVER, python, space, there, unplaced, until


@pytest.fixture
def experiment(kube_cluster, shared, name):
    """An experiment with something of every kind, launched into the shared namespace."""
    exp = shared.new_experiment(name)
    unplaced(exp, "db").binds(["store", "index"])
    unplaced(exp, "batch").job(backoff_limit=0)
    shared.launch(exp)
    # the Job's Pod is made by Kubernetes: perhaps only when the Job is being deleted
    until(lambda: len(there(kube_cluster)["pods"]) == 2)
    return exp


def test_it_is_complete_and_may_be_repeated(kube_cluster, shared, experiment, name):
    assert set(there(kube_cluster)) == {"pods", "jobs", "services"}
    shared.delete(name)
    assert there(kube_cluster) == {}
    shared.delete(name)


def test_a_namespace_of_its_own_is_gone_with_all_that_is_in_it(kube_cluster, spaces, name):
    exp = spaces.new_experiment(name)
    unplaced(exp, "db").binds("store")
    unplaced(exp, "batch").job()
    spaces.launch(exp)
    spaces.delete(name)
    assert space(kube_cluster, name) is None
    spaces.delete(name)


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {names.EXPERIMENT: "NAME"},
        {names.MANAGED_BY: "symphony"},
        {names.MANAGED_BY: "symphony", names.EXPERIMENT: "NAME-2"},
        {names.MANAGED_BY: "helm", names.EXPERIMENT: "NAME", names.UNIT: "db"},
    ],
)
def test_what_others_made_is_never_touched(kube_cluster, shared, experiment, name, labels):
    given = {key: value.replace("NAME", name) for key, value in labels.items()}
    meta = {"metadata": {"name": f"{name}-others", "labels": given}}
    bodies = {
        "configmaps": meta,
        "secrets": meta,
        "services": {**meta, "spec": {"ports": [{"port": 80}]}},
        "pods": {
            **meta,
            "spec": {
                "containers": [{"name": "a", "image": "none"}],
                "nodeSelector": {"no": "node"},
            },
        },
    }
    uids = {}
    for kind, body in bodies.items():
        uids[kind] = kube_cluster.raw.call("POST", kube_cluster.path(kind), body)["metadata"]["uid"]
    shared.delete(name)
    for kind, uid in uids.items():
        left = kube_cluster.raw.find(kube_cluster.path(f"{kind}/{name}-others"))
        assert left["metadata"]["uid"] == uid
        assert "deletionTimestamp" not in left["metadata"]


@pytest.mark.parametrize(
    "labels", [{}, {names.MANAGED_BY: "symphony"}, {names.EXPERIMENT: "other"}]
)
def test_a_namespace_that_is_not_ours_is_not_there(kube_cluster, spaces, name, labels):
    path = f"/api/v1/namespaces/{name}"
    kube_cluster.raw.call(
        "POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}}
    )
    spaces.delete(name)
    assert "deletionTimestamp" not in kube_cluster.raw.find(path)["metadata"]


def test_one_experiment_of_several_is_deleted(kube_cluster, shared, experiment, name):
    other = shared.new_experiment(f"{name}-b")
    unplaced(other, "db").binds("store")
    shared.launch(other)
    shared.delete(name)
    assert there(kube_cluster) == {"pods": [f"{name}-b-db"], "services": [f"{name}-b-store"]}


def test_a_process_gets_its_time_to_end(kube_cluster, shared, name):
    program = "import signal, time; signal.signal(15, lambda *_: (time.sleep(1.5), exit())); print('up'); time.sleep(99)"
    exp = shared.new_experiment(name)
    python(exp, "slow", program).termination_grace_period(20)
    shared.launch(exp)
    assert (
        next(shared.iter_logs(name, ["slow"], follow=True)).text == "up"
    )  # now it handles signals
    ended, watched = [], threading.Event()
    follower = threading.Thread(
        target=lambda: ended.append(_end_of(kube_cluster, f"{name}-slow", watched))
    )
    follower.start()
    assert watched.wait(30)
    shared.delete(name)
    assert there(kube_cluster) == {}
    follower.join(60)
    assert ended == [0]


def _end_of(kube, pod, watched):
    """The exit code of a Pod's container, seen at the latest when the Pod goes; ``watched`` is set when it looks."""
    code = None
    for event in kube.raw.watch(kube.path(f"pods?fieldSelector=metadata.name={pod}"), seconds=60):
        watched.set()
        for status in event["object"]["status"].get("containerStatuses", ()):
            code = status["state"].get("terminated", {}).get("exitCode", code)
        if event["type"] == "DELETED":
            return code
    return code


def test_a_job_goes_with_the_pods_that_it_made(kube_cluster, shared, name):
    exp = shared.new_experiment(name)
    python(exp, "batch", FOREVER).job()
    shared.launch(exp)
    until(lambda: there(kube_cluster).get("pods"))
    shared.delete(name)
    assert there(kube_cluster) == {}


def test_what_is_held_is_told_in_the_end(kube_cluster, shared, experiment, name, monkeypatch):
    monkeypatch.setattr("symphony_kube.lifecycle.wait_deleted.STUCK_SECONDS", 1.0)
    path = kube_cluster.path(f"services/{name}-store")
    held = {"metadata": {"finalizers": ["symphony.test/held"]}}
    kube_cluster.raw.call("PATCH", path, held, "application/merge-patch+json")
    try:
        said = rf"services are still there: '{name}-store' \(held by symphony.test/held\)"
        with pytest.raises(BackendError, match=said):
            shared.delete(name)
    finally:
        free = {"metadata": {"finalizers": None}}
        kube_cluster.raw.call("PATCH", path, free, "application/merge-patch+json")
    until(lambda: "services" not in there(kube_cluster))


def test_a_launch_that_goes_on_meanwhile_is_broken_off(kube_cluster, shared, name):
    exp = shared.new_experiment(name)
    unplaced(exp, "first")
    unplaced(exp, "second").starts_after("first")
    begun, ends = threading.Event(), []

    def launch():
        try:
            shared.launch(exp, on_change=lambda status: begun.set())
        except BackendError as exc:
            ends.append(str(exc))

    launcher = threading.Thread(target=launch)
    launcher.start()
    assert begun.wait(30)
    shared.delete(name)
    launcher.join(30)
    assert ends == [f"experiment '{name}' was deleted while it was being launched"]
    assert there(kube_cluster) == {}
