"""Launching: what is created, how often the server is asked for it, and what becomes of a launch that fails."""

import json
import re
import signal
import subprocess
import sys
import threading

import pytest

from symphony.errors import AlreadyExists, LaunchFailed
from symphony_kube.api import labels as names

from .conftest import FOREVER, python, space, there, unplaced, until


def rich(cluster, name, tmp_path):
    """Something of every kind, on no node."""
    (tmp_path / "token").write_text("swordfish")
    exp = cluster.new_experiment(name, secrets={"token": str(tmp_path / "token")})
    db = unplaced(exp, "db")
    db.binds(["store", "index"])
    group = exp.new_process_group("team").node_selector("symphony.test/no-such-node", "true")
    python(group, "one", FOREVER).connects("store")
    python(group, "two", FOREVER)
    unplaced(exp, "batch").job(backoff_limit=0)
    return exp


def test_everything_is_created_and_marked_by_its_launch(kube_cluster, either, name, tmp_path):
    manifest = either.launch(rich(either, name, tmp_path))
    namespace = manifest.scope.namespace
    found = there(kube_cluster, namespace)
    prefix = "" if namespace == name else f"{name}-"
    assert {"db", "team"} <= {pod.removeprefix(prefix) for pod in found["pods"]}
    assert found["jobs"] == [f"{prefix}batch"]
    assert found["services"] == [f"{prefix}index", f"{prefix}store"]
    assert len(found["secrets"]) == 1
    runs = set()
    for group, kind in (
        ("api/v1", "services"),
        ("api/v1", "secrets"),
        ("apis/batch/v1", "jobs"),
        ("api/v1", "pods"),
    ):
        selector = f"labelSelector={names.EXPERIMENT}%3D{name}"
        for item in kube_cluster.raw.call(
            "GET", f"/{group}/namespaces/{namespace}/{kind}?{selector}"
        )["items"]:
            runs.add(item["metadata"]["labels"][names.RUN])
            template = item.get("spec", {}).get("template")
            if template:
                runs.add(template["metadata"]["labels"][names.RUN])
    assert len(runs) == 1
    assert re.fullmatch("[0-9a-f]{12}", runs.pop())
    either.delete(name)


def test_a_launch_asks_twice_and_then_once_for_each_object(
    kube_cluster, kube_faults, open_cluster, name, tmp_path
):
    through = {"kubeconfig": str(kube_faults.kubeconfig)}
    for options in ({"namespace": kube_cluster.namespace}, {}):
        cluster = open_cluster(**through, **options)
        before = kube_faults.count()
        manifest = cluster.launch(rich(cluster, name, tmp_path))
        assert kube_faults.count() - before == len(list(manifest)) + 2
        cluster.delete(name)


def test_the_manifest_is_not_changed_by_the_launch(shared, name, tmp_path):
    exp = rich(shared, name, tmp_path)
    before = str(shared.manifest(exp))
    assert str(shared.launch(exp)) == before
    assert names.RUN not in before
    shared.delete(name)


# --- names that are taken ---


def test_a_live_name_is_refused_and_left_alone(kube_cluster, either, name):
    exp = either.new_experiment(name)
    unplaced(exp, "worker")
    namespace = either.launch(exp).scope.namespace
    path = f"/api/v1/namespaces/{namespace}/pods"
    before = kube_cluster.raw.call("GET", path)["items"]
    with pytest.raises(AlreadyExists, match=f"{name}.*force"):
        either.launch(exp)
    assert [pod["metadata"]["uid"] for pod in kube_cluster.raw.call("GET", path)["items"]] == [
        pod["metadata"]["uid"] for pod in before
    ]
    either.delete(name)


def test_force_replaces_what_is_live_with_its_jobs(kube_cluster, shared, name):
    exp = shared.new_experiment(name)
    unplaced(exp, "old").job()
    unplaced(exp, "both").binds("old-service")
    shared.launch(exp)
    other = shared.new_experiment(name)
    unplaced(other, "new").job()
    unplaced(other, "both")
    shared.launch(other, force=True)
    found = until(
        lambda: len((now := there(kube_cluster))["pods"]) == 2 and now
    )  # with the one that the Job makes
    assert found["jobs"] == [f"{name}-new"]
    assert "services" not in found
    shared.delete(name)
    assert there(kube_cluster) == {}


def test_force_waits_for_a_namespace_that_goes_and_makes_it_anew(kube_cluster, spaces, name):
    exp = spaces.new_experiment(name)
    unplaced(exp, "worker")
    spaces.launch(exp)
    first = space(kube_cluster, name)["metadata"]["uid"]
    spaces.launch(exp, force=True)
    assert space(kube_cluster, name)["metadata"]["uid"] != first


def test_a_namespace_of_ours_that_is_going_is_waited_for(kube_cluster, spaces, name):
    exp = spaces.new_experiment(name)
    unplaced(exp, "worker")
    spaces.launch(exp)
    kube_cluster.raw.call("DELETE", f"/api/v1/namespaces/{name}")
    spaces.launch(exp)
    assert "deletionTimestamp" not in space(kube_cluster, name)["metadata"]


def test_a_namespace_that_does_not_go_is_told_with_what_holds_it(
    kube_cluster, spaces, name, monkeypatch
):
    monkeypatch.setattr("symphony_kube.lifecycle.delete.NAMESPACE_SECONDS", 1.0)
    exp = spaces.new_experiment(name)
    unplaced(exp, "worker")
    spaces.launch(exp)
    held = {"metadata": {"name": "held", "finalizers": ["symphony.test/held"]}}
    path = f"/api/v1/namespaces/{name}/configmaps"
    kube_cluster.raw.call("POST", path, held)
    try:
        kube_cluster.raw.call("DELETE", f"/api/v1/namespaces/{name}")
        # Kubernetes says why after some five seconds
        until(lambda: "symphony.test/held" in json.dumps(space(kube_cluster, name)["status"]))
        with pytest.raises(LaunchFailed, match=rf"'{name}' is being deleted.*symphony\.test/held"):
            spaces.launch(exp)
    finally:
        free = {"metadata": {"finalizers": None}}
        kube_cluster.raw.call("PATCH", f"{path}/held", free, "application/merge-patch+json")
    until(lambda: space(kube_cluster, name) is None)


def test_a_namespace_that_is_not_ours_is_left_alone(kube_cluster, spaces):
    exp = spaces.new_experiment(kube_cluster.namespace)
    unplaced(exp, "worker")
    for force in (False, True):
        with pytest.raises(
            LaunchFailed,
            match=f"'{kube_cluster.namespace}' is there and is not symphony's.*namespace=",
        ):
            spaces.launch(exp, force=force)
    assert "deletionTimestamp" not in space(kube_cluster, kube_cluster.namespace)["metadata"]


@pytest.mark.parametrize("labels", [{}, {names.MANAGED_BY: "someone"}, {names.EXPERIMENT: "other"}])
def test_an_object_that_is_not_ours_is_left_alone_and_all_is_taken_back(
    kube_cluster, shared, name, labels
):
    taken = {
        "metadata": {"name": f"{name}-web", "labels": labels},
        "spec": {"ports": [{"port": 80}]},
    }
    uid = kube_cluster.raw.call("POST", kube_cluster.path("services"), taken)["metadata"]["uid"]
    exp = shared.new_experiment(name)
    unplaced(exp, "worker").binds(["web", "other"])
    for force in (False, True):
        with pytest.raises(
            LaunchFailed, match=f"cannot create service '{name}-web'.*not symphony's"
        ):
            shared.launch(exp, force=force)
    assert there(kube_cluster) == {}
    assert (
        kube_cluster.raw.find(kube_cluster.path(f"services/{name}-web"))["metadata"]["uid"] == uid
    )


def of_kind(cluster, experiment, kind, rest, file):
    """An experiment of one process, with an object of a kind that is called so."""
    exp = cluster.new_experiment(experiment)
    process = unplaced(exp, rest if kind in ("pod", "job") else f"worker-{rest}")
    if kind == "job":
        process.job()
    elif kind == "service":
        process.binds(rest)
    elif kind == "secret":
        process.mount_secret(rest, "/m", files=[str(file)])
    elif kind == "config map":
        process.mount_config(rest, "/m", files=[str(file)])
    return exp


def test_of_two_experiments_whose_names_begin_alike_the_second_is_told_whose_a_name_is(
    kube_cluster, shared, name, tmp_path
):
    (tmp_path / "file").write_text("x")
    for kind in ("pod", "job", "service", "secret", "config map"):
        shared.launch(of_kind(shared, f"{name}-x", kind, "y", tmp_path / "file"))
        before = there(kube_cluster)
        said = f"cannot create {kind} '{name}-x-y'.* belongs to experiment '{name}-x'"
        with pytest.raises(LaunchFailed, match=said) as caught:
            shared.launch(of_kind(shared, name, kind, "x-y", tmp_path / "file"))
        assert (
            f"{name!r} and '{name}-x' begin alike; rename the experiment or what is in it"
            in str(caught.value)
        )
        assert "delete" not in str(caught.value)
        assert there(kube_cluster) == before
        shared.delete(f"{name}-x")


def test_of_a_name_whose_owner_may_not_be_read_nothing_is_claimed(
    kube_cluster, kube_faults, open_cluster, name
):
    taken = {"metadata": {"name": f"{name}-web"}, "spec": {"ports": [{"port": 80}]}}
    kube_cluster.raw.call("POST", kube_cluster.path("services"), taken)
    kube_faults.answer(403, method="GET", path=f"/services/{name}-web")
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    unplaced(exp, "worker").binds("web")
    with pytest.raises(LaunchFailed, match="whose it is may not be read; choose another name"):
        cluster.launch(exp)


def test_what_is_left_of_an_old_launch_without_its_pods_gives_way(
    kube_cluster, shared, name, monkeypatch
):
    exp = shared.new_experiment(name)
    unplaced(exp, "worker").binds("web")
    shared.launch(exp)
    kube_cluster.raw.call(
        "DELETE", kube_cluster.path(f"pods/{name}-worker"), {"gracePeriodSeconds": 0}
    )
    with pytest.raises(AlreadyExists):  # as young as it is, another launch may have just begun
        shared.launch(exp)
    monkeypatch.setattr("symphony_kube.lifecycle.launch.LAUNCH_IN_PROGRESS_SECONDS", 0.0)
    until(lambda: not there(kube_cluster).get("pods"))
    shared.launch(exp)
    assert there(kube_cluster)["pods"] == [f"{name}-worker"]
    shared.delete(name)


@pytest.mark.parametrize("same", [True, False])
def test_of_two_launches_at_the_same_time_one_wins_and_nothing_is_mixed(
    kube_cluster, open_cluster, name, same
):
    clusters = [open_cluster(namespace=kube_cluster.namespace) for _ in range(2)]
    both = threading.Barrier(2)
    ends = {}

    def launch(number):
        exp = clusters[number].new_experiment(name)
        for index in range(8):
            unplaced(exp, f"worker-{index if same else index + 8 * number}").binds(
                f"service-{index}-{number}"
            )
        clusters[number].api.find("/api/v1/namespaces/default")  # connected
        both.wait()
        try:
            clusters[number].launch(exp)
            ends[number] = "launched"
        except AlreadyExists:
            ends[number] = "refused"

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends.values()) == ["launched", "refused"]
    won = next(number for number, end in ends.items() if end == "launched")
    found = there(kube_cluster)
    assert found["services"] == [f"{name}-service-{index}-{won}" for index in range(8)]
    assert len(found["pods"]) == 8
    clusters[0].delete(name)


def test_of_two_launches_into_a_namespace_of_its_own_one_wins(
    kube_cluster, spaces, open_cluster, name
):
    clusters, both, ends = [spaces, open_cluster()], threading.Barrier(2), []

    def launch(cluster):
        exp = cluster.new_experiment(name)
        unplaced(exp, "worker")
        cluster.api.find("/api/v1/namespaces/default")
        both.wait()
        try:
            cluster.launch(exp)
            ends.append("launched")
        except AlreadyExists:
            ends.append("refused")

    threads = [threading.Thread(target=launch, args=(cluster,)) for cluster in clusters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == ["launched", "refused"]
    assert there(kube_cluster, name)["pods"] == ["worker"]


# --- what fails is taken back ---


def test_an_object_that_the_server_refuses_takes_everything_back(
    kube_cluster, either, name, tmp_path
):
    exp = rich(either, name, tmp_path)
    unplaced(exp, "wrong").pod_yml = {"spec": {"restartPolicy": "Sometimes"}}
    with pytest.raises(
        LaunchFailed, match=r"cannot create pod '.*wrong' in namespace.*restartPolicy.*Sometimes"
    ) as caught:
        either.launch(exp)
    assert "\n" not in str(caught.value)
    assert "swordfish" not in str(caught.value)
    assert there(kube_cluster) == {}
    assert space(kube_cluster, name) is None


def test_a_quota_is_told_and_everything_taken_back(kube_cluster, shared, name):
    kube_cluster.quota("few", {"pods": "3"})
    exp = shared.new_experiment(name)
    for index in range(6):
        unplaced(exp, f"worker-{index}").binds(f"service-{index}")
    with pytest.raises(LaunchFailed, match="exceeded quota: few.*delete what is no longer needed"):
        shared.launch(exp)
    assert there(kube_cluster) == {}


def test_ctrl_c_takes_a_launch_back_while_it_waits_for_others(kube_cluster, shared, name):
    exp = shared.new_experiment(name)
    unplaced(exp, "first").binds("web")
    unplaced(exp, "batch").job()
    unplaced(exp, "second").starts_after("first")
    program = (
        "import json, sys; from symphony import Cluster, Experiment;"
        "options, spec = map(json.loads, sys.argv[1:]);"
        "Cluster.new('kube', **options).launch(Experiment.load_dict(spec), on_change=lambda status: print('waits'))"
    )
    options = {"kubeconfig": str(kube_cluster.kubeconfig), "namespace": kube_cluster.namespace}
    options |= {"image": kube_cluster.image}
    given = [json.dumps(options), json.dumps(exp.dump_dict())]
    launcher = subprocess.Popen(
        [sys.executable, "-u", "-c", program, *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout.readline() == "waits\n"
    until(
        lambda: len(there(kube_cluster)["pods"]) == 2
    )  # with the one that Kubernetes makes for the Job
    launcher.send_signal(signal.SIGINT)
    _, errors = launcher.communicate(timeout=60)
    assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"
    assert there(kube_cluster) == {}


def test_what_cannot_be_taken_back_is_told(kube_cluster, kube_faults, open_cluster, name):
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    unplaced(exp, "worker").binds("web")
    kube_faults.answer(403, method="POST", path="/pods")
    kube_faults.answer(403, method="DELETE", path=f"/services/{name}-web")
    with pytest.raises(
        LaunchFailed,
        match=rf"pod '{name}-worker'.*there is left: service '{name}-web'.*delete '{name}'",
    ):
        cluster.launch(exp)
    kube_faults.clear()
    cluster.delete(name)
    assert there(kube_cluster) == {}


# --- the server's own check ---


def test_the_server_checks_everything_and_nothing_is_created(
    kube_cluster, either, name, tmp_path, capsys
):
    exp = rich(either, name, tmp_path)
    manifest = either.launch(exp, dry_run="server")
    assert capsys.readouterr().out == str(manifest)
    assert there(kube_cluster) == {}
    assert space(kube_cluster, name) is None
    unplaced(exp, "wrong").pod_yml = {"spec": {"restartPolicy": "Sometimes"}}
    with pytest.raises(
        LaunchFailed,
        match=r"cannot create pod '.*wrong'.*Pod \"(.*-)?wrong\" is invalid.*Sometimes",
    ):
        either.launch(exp, dry_run="server")
