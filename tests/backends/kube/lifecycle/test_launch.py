"""Launches, with an API server in memory: created objects, requests, taken names, and rollback.

`test_launch_live.py` tests what a real server refuses.
"""

import json
import re
import signal
import subprocess
import sys
import threading

import pytest

from kubetest.rawapi import MERGE_PATCH
from symphony.errors import AlreadyExists, LaunchFailed
from symphony.status import State
from symphony_kube.api import labels as names
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.lifecycle import launch
from symphony_kube.lifecycle.description import DescriptionStore
from symphony_kube.lifecycle.supervisor.detached import directory_of
from symphony_kube.record.stored_record import read_stored_record
from symphony_kube.status.experiments import experiment_status
from symphony_kube.watch.observations import ObservationStream
from tests.backends.kube.conftest import (
    FOREVER,
    find_namespace,
    managed_objects,
    python,
    unschedulable,
    wait_until,
)


@pytest.fixture
def kube_cluster(memory_cluster):
    return memory_cluster


def with_all_kinds(cluster, name, tmp_path):
    """Return an experiment with an object of every kind. No node accepts its Pods."""
    (tmp_path / "token").write_text("swordfish")
    exp = cluster.new_experiment(name, secrets={"token": str(tmp_path / "token")})
    db = unschedulable(exp, "db")
    db.binds(["store", "index"])
    group = exp.new_process_group("team").node_selector("symphony.test/no-such-node", "true")
    python(group, "one", FOREVER).connects("store")
    python(group, "two", FOREVER)
    unschedulable(exp, "batch").job(backoff_limit=0)
    return exp


def test_launch_creates_all_objects_with_one_run_label(kube_cluster, any_cluster, name, tmp_path):
    exp = with_all_kinds(any_cluster, name, tmp_path)
    before = str(any_cluster.manifest(exp))
    manifest = any_cluster.launch(exp)
    assert str(manifest) == before
    assert names.RUN not in before
    namespace = manifest.scope.namespace
    found = managed_objects(kube_cluster, namespace)
    prefix = "" if namespace == name else f"{name}-"
    assert {"db", "team"} <= {pod.removeprefix(prefix) for pod in found["pods"]}
    assert found["jobs"] == [f"{prefix}batch"]
    assert found["services"] == [f"{prefix}index", f"{prefix}store"]
    assert f"{prefix}symphony-description" in found["secrets"]
    assert len(found["secrets"]) == 2
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
    any_cluster.delete(name)


@pytest.mark.namespaces
def test_number_of_requests_of_a_launch(kube_cluster, kube_faults, open_cluster, name, tmp_path):
    through = {"kubeconfig": str(kube_faults.kubeconfig)}
    for options in ({"namespace": kube_cluster.namespace}, {}):
        cluster = open_cluster(**through, **options)
        before = kube_faults.count()
        manifest = cluster.launch(with_all_kinds(cluster, name, tmp_path))
        # The description is created at the beginning and completed at the end. In a shared
        # namespace, the user may lack the right to create the ConfigMap with the script that stops
        # programs, which is requested first.
        expected = len(list(manifest)) + 4 + ("namespace" in options)
        assert kube_faults.count() - before == expected
        cluster.delete(name)


# --- name conflicts ---


def test_launch_refuses_the_name_of_a_running_experiment(kube_cluster, any_cluster, name):
    exp = any_cluster.new_experiment(name)
    unschedulable(exp, "worker")
    namespace = any_cluster.launch(exp).scope.namespace
    path = f"/api/v1/namespaces/{namespace}/pods"
    before = kube_cluster.raw.call("GET", path)["items"]
    with pytest.raises(AlreadyExists, match=f"{name}.*force"):
        any_cluster.launch(exp)
    assert [pod["metadata"]["uid"] for pod in kube_cluster.raw.call("GET", path)["items"]] == [
        pod["metadata"]["uid"] for pod in before
    ]
    any_cluster.delete(name)


def test_foreign_namespace_is_left_alone(kube_cluster, own_namespaces):
    exp = own_namespaces.new_experiment(kube_cluster.namespace)
    unschedulable(exp, "worker")
    for force in (False, True):
        with pytest.raises(
            LaunchFailed,
            match=f"'{kube_cluster.namespace}' exists and was not created by symphony.*namespace=",
        ):
            own_namespaces.launch(exp, force=force)
    assert (
        "deletionTimestamp" not in find_namespace(kube_cluster, kube_cluster.namespace)["metadata"]
    )


@pytest.mark.parametrize("labels", [{}, {names.MANAGED_BY: "someone"}, {names.EXPERIMENT: "other"}])
def test_foreign_object_is_left_alone_and_launch_is_rolled_back(kube_cluster, shared, name, labels):
    taken = {
        "metadata": {"name": f"{name}-web", "labels": labels},
        "spec": {"ports": [{"port": 80}]},
    }
    uid = kube_cluster.raw.call("POST", kube_cluster.path("services"), taken)["metadata"]["uid"]
    exp = shared.new_experiment(name)
    unschedulable(exp, "worker").binds(["web", "other"])
    for force in (False, True):
        with pytest.raises(
            LaunchFailed, match=f"cannot create service '{name}-web'.*not created by symphony"
        ):
            shared.launch(exp, force=force)
    assert managed_objects(kube_cluster) == {}
    assert (
        kube_cluster.raw.find(kube_cluster.path(f"services/{name}-web"))["metadata"]["uid"] == uid
    )


def test_name_conflict_without_the_right_to_read_the_owner(
    kube_cluster, kube_faults, open_cluster, name
):
    taken = {"metadata": {"name": f"{name}-web"}, "spec": {"ports": [{"port": 80}]}}
    kube_cluster.raw.call("POST", kube_cluster.path("services"), taken)
    kube_faults.answer(403, method="GET", path=f"/services/{name}-web")
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    unschedulable(exp, "worker").binds("web")
    with pytest.raises(LaunchFailed, match="the name is taken, and you may not read its owner"):
        cluster.launch(exp)


def test_leftovers_without_pods_are_replaced(kube_cluster, shared, name, monkeypatch):
    exp = shared.new_experiment(name)
    unschedulable(exp, "worker").binds("web")
    shared.launch(exp)
    kube_cluster.raw.call(
        "DELETE", kube_cluster.path(f"pods/{name}-worker"), {"gracePeriodSeconds": 0}
    )
    with pytest.raises(AlreadyExists):  # the objects may belong to a launch in progress
        shared.launch(exp)
    monkeypatch.setattr("symphony_kube.lifecycle.launch.LAUNCH_IN_PROGRESS_SECONDS", 0.0)
    wait_until(lambda: not managed_objects(kube_cluster).get("pods"))
    shared.launch(exp)
    assert managed_objects(kube_cluster)["pods"] == [f"{name}-worker"]
    shared.delete(name)


def of_kind(cluster, experiment, kind, rest, file):
    """Return an experiment of one process that has an object of this kind and name."""
    exp = cluster.new_experiment(experiment)
    process = unschedulable(exp, rest if kind in ("pod", "job") else f"worker-{rest}")
    if kind == "job":
        process.job()
    elif kind == "service":
        process.binds(rest)
    elif kind == "secret":
        process.mount_secret(rest, "/m", files=[str(file)])
    elif kind == "config map":
        process.mount_config(rest, "/m", files=[str(file)])
    return exp


def test_name_conflict_names_the_other_experiment(kube_cluster, shared, name, tmp_path):
    (tmp_path / "file").write_text("x")
    for kind in ("pod", "job", "service", "secret", "config map"):
        shared.launch(of_kind(shared, f"{name}-x", kind, "y", tmp_path / "file"))
        before = managed_objects(kube_cluster)
        message = f"cannot create {kind} '{name}-x-y'.* taken by experiment '{name}-x'"
        with pytest.raises(LaunchFailed, match=message) as caught:
            shared.launch(of_kind(shared, name, kind, "x-y", tmp_path / "file"))
        assert f"{name!r} and '{name}-x' begin alike; rename the" in str(caught.value)
        assert "delete" not in str(caught.value)
        assert managed_objects(kube_cluster) == before
        shared.delete(f"{name}-x")


def test_a_launch_that_another_has_overtaken_creates_nothing(
    kube_cluster, kube_faults, open_cluster, name
):
    """If it did, the other launch could fail because of that, and both would be refused."""
    labels = {names.MANAGED_BY: "symphony", names.EXPERIMENT: name, names.RUN: "other"}
    secret = {"metadata": {"name": f"{name}-symphony-description", "labels": labels}}
    kube_cluster.raw.call("POST", kube_cluster.path("secrets"), secret)
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    unschedulable(exp, "worker").binds("web")
    with pytest.raises(AlreadyExists):
        cluster.launch(exp)
    assert kube_faults.count(method="POST", path="/namespaces/") == 1


def test_one_of_two_concurrent_launches_in_a_shared_namespace_wins(
    kube_cluster, open_cluster, name
):
    clusters = [open_cluster(namespace=kube_cluster.namespace) for _ in range(2)]
    both = threading.Barrier(2)
    ends = {}

    def launch(number):
        exp = clusters[number].new_experiment(name)
        for index in range(8):
            unschedulable(exp, f"worker-{index}").binds(f"service-{index}-{number}")
        clusters[number].api.find("/api/v1/namespaces/default")  # opens the connection
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
    found = managed_objects(kube_cluster)
    assert found["services"] == [f"{name}-service-{index}-{won}" for index in range(8)]
    assert len(found["pods"]) == 8
    clusters[0].delete(name)


def test_one_of_two_concurrent_launches_with_own_namespaces_wins(
    kube_cluster, own_namespaces, open_cluster, name
):
    clusters, both, ends = [own_namespaces, open_cluster()], threading.Barrier(2), []

    def launch(cluster):
        exp = cluster.new_experiment(name)
        unschedulable(exp, "worker")
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
    assert managed_objects(kube_cluster, name)["pods"] == ["worker"]


def test_a_launch_that_completes_while_another_examines_it_is_not_replaced(
    kube_cluster, own_namespaces, open_cluster, name, monkeypatch
):
    """The other has listed no Pods, and then reads the roster of a complete experiment."""
    first, second = open_cluster(), own_namespaces
    has_listed = threading.Event()

    def launch_first():
        exp = first.new_experiment(name)
        unschedulable(exp, "worker")
        first.launch(exp)

    thread = threading.Thread(target=launch_first)

    def read_after_launch(experiment):
        has_listed.set()
        thread.join()
        return read_stored_record(experiment)

    monkeypatch.setattr(
        "symphony_kube.lifecycle.launch._wait_for_service_account",
        lambda *_: has_listed.wait(60),
    )
    monkeypatch.setattr("symphony_kube.status.experiments.read_stored_record", read_after_launch)
    thread.start()
    wait_until(lambda: find_namespace(kube_cluster, name))
    uid = find_namespace(kube_cluster, name)["metadata"]["uid"]
    exp = second.new_experiment(name)
    unschedulable(exp, "worker")
    with pytest.raises(AlreadyExists):
        second.launch(exp)
    assert find_namespace(kube_cluster, name)["metadata"]["uid"] == uid
    assert managed_objects(kube_cluster, name)["pods"] == ["worker"]


def finish_worker(kube, namespace, pod):
    """Report that the only process of a Pod, which is called worker, has succeeded."""
    ended = {"exitCode": 0, "reason": "Completed"}
    status = {"name": "worker", "restartCount": 0, "state": {"terminated": ended}}
    patch = {"status": {"phase": "Succeeded", "containerStatuses": [status]}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/status"
    kube.raw.call("PATCH", path, patch, MERGE_PATCH)


def pod_uids(kube, namespace):
    pods = kube.raw.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


@pytest.mark.parametrize("force", [False, True])
def test_a_launch_does_not_replace_what_another_has_launched_at_the_same_time(
    kube_cluster, any_cluster, name, monkeypatch, force
):
    """Both have seen the same experiment, and the other has replaced it."""
    exp = any_cluster.new_experiment(name)
    unschedulable(exp, "worker")
    scope = any_cluster.launch(exp).scope
    if not force:
        finish_worker(kube_cluster, scope.namespace, scope.object_name("worker"))
    supervised = any_cluster.new_experiment(name)
    unschedulable(supervised, "db").binds("store")
    unschedulable(supervised, "app", starts_after=["db"])
    directory = directory_of(KubeExperiment(any_cluster.api, scope))
    delete, pods, pids = launch.delete.delete, {}, []

    def delete_after_other_launch(*args, **options):
        monkeypatch.setattr(launch.delete, "delete", delete)
        any_cluster.launch(supervised, force=force)
        pods.update(pod_uids(kube_cluster, scope.namespace))
        pids.append(directory.holder())
        delete(*args, **options)

    monkeypatch.setattr(launch.delete, "delete", delete_after_other_launch)
    message = "at the same time" if force else "is running and was not changed"
    with pytest.raises(AlreadyExists, match=f"{name!r}.*{message}") as caught:
        any_cluster.launch(exp, force=force)
    assert "\n" not in str(caught.value)
    assert list(pods) == [scope.object_name("db")]
    assert pod_uids(kube_cluster, scope.namespace) == pods
    assert pids[0] is not None
    assert directory.holder() == pids[0]
    description = DescriptionStore(KubeExperiment(any_cluster.api, scope))
    assert description.read() is not None
    assert not description.is_deleting
    runs = [run for run in any_cluster.list_runs() if run.experiment == name]
    assert sorted(run.is_archived for run in runs) == [False, True]
    assert any_cluster.at_run(runs[0]).describe_experiment(name).processes
    any_cluster.delete(name)


def test_a_launch_that_fails_does_not_stop_the_supervisor_of_another(
    kube_cluster, any_cluster, name, monkeypatch
):
    """The other launch has created its objects when this one has found none."""
    exp = any_cluster.new_experiment(name)
    unschedulable(exp, "db").binds("store")
    unschedulable(exp, "app", starts_after=["db"])
    remove_previous = launch.remove_previous

    def launch_after_look(*args, **options):
        remove_previous(*args, **options)
        monkeypatch.setattr(launch, "remove_previous", remove_previous)
        any_cluster.launch(exp)

    monkeypatch.setattr(launch, "remove_previous", launch_after_look)
    with pytest.raises(AlreadyExists):
        any_cluster.launch(exp)
    assert (
        directory_of(KubeExperiment(any_cluster.api, any_cluster.scope(name))).holder() is not None
    )
    any_cluster.delete(name)


def test_a_launch_that_was_replaced_does_not_stop_the_supervisor_of_another(
    kube_cluster, any_cluster, name, monkeypatch
):
    exp = any_cluster.new_experiment(name)
    unschedulable(exp, "db").binds("store")
    unschedulable(exp, "app", starts_after=["db"])
    supervise = launch._supervise

    def replace_before_supervision(*args):
        monkeypatch.setattr(launch, "_supervise", supervise)
        any_cluster.launch(exp, force=True)
        return supervise(*args)

    monkeypatch.setattr(launch, "_supervise", replace_before_supervision)
    with pytest.raises(LaunchFailed, match="was deleted while it was being launched"):
        any_cluster.launch(exp)
    assert (
        directory_of(KubeExperiment(any_cluster.api, any_cluster.scope(name))).holder() is not None
    )
    any_cluster.delete(name)


@pytest.mark.parametrize("kind", ["pods", "jobs"])
@pytest.mark.parametrize("is_watched", [False, True])
def test_status_of_an_experiment_that_is_launched_while_it_is_read(
    shared, name, monkeypatch, kind, is_watched
):
    """No process was deleted: it was created after the objects had been listed."""
    exp = shared.new_experiment(name)
    worker = unschedulable(exp, "worker")
    if kind == "jobs":
        worker.job()

    def read_after_launch(experiment):
        monkeypatch.undo()
        shared.launch(exp)
        return read_stored_record(experiment)

    monkeypatch.setattr("symphony_kube.status.experiments.read_stored_record", read_after_launch)
    if is_watched:
        with ObservationStream(KubeExperiment(shared.api, shared.scope(name))) as stream:
            status = stream.first().status
    else:
        status = experiment_status(KubeExperiment(shared.api, shared.scope(name)))
    assert [process.state for process in status] == [State.PENDING]


# --- rollback ---


def test_ctrl_c_rolls_a_launch_back(kube_cluster, kube_faults, shared, name):
    exp = shared.new_experiment(name)
    unschedulable(exp, "first").binds("web")
    unschedulable(exp, "batch").job()
    kube_faults.delay(2, method="POST", path="/jobs", times=1)
    program = (
        "import json, sys; from symphony import Cluster, Experiment;"
        "options, spec = map(json.loads, sys.argv[1:]);"
        "Cluster.new('kube', **options).launch(Experiment.load_dict(spec))"
    )
    options = {"kubeconfig": str(kube_faults.kubeconfig), "namespace": kube_cluster.namespace}
    options |= {"image": kube_cluster.image}
    given = [json.dumps(options), json.dumps(exp.dump_dict())]
    launcher = subprocess.Popen(
        [sys.executable, "-u", "-c", program, *given],
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: kube_faults.count(method="POST", path="/jobs"))
    launcher.send_signal(signal.SIGINT)
    _, errors = launcher.communicate(timeout=60)
    assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"
    assert managed_objects(kube_cluster) == {}


def test_objects_that_remain_after_rollback_are_reported(
    kube_cluster, kube_faults, open_cluster, name
):
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    unschedulable(exp, "worker").binds("web")
    kube_faults.answer(403, method="POST", path="/pods")
    kube_faults.answer(403, method="DELETE", path=f"/services/{name}-web")
    with pytest.raises(
        LaunchFailed,
        match=rf"pod '{name}-worker'.*these remain: service '{name}-web'.*delete '{name}'",
    ):
        cluster.launch(exp)
    kube_faults.clear()
    cluster.delete(name)
    assert managed_objects(kube_cluster) == {}


def test_a_cluster_without_job_sets_refuses_them(kube_cluster, kube_faults, open_cluster, name):
    kube_faults.answer(404, path="^/apis/jobset")
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    for rank in exp.new_ranks("unit", 2, command=["true"]):
        rank.jobset()
    message = (
        r"the cluster has no JobSet controller \(jobset.x-k8s.io/v1alpha2\); install it, or remove "
        "jobset"
    )
    for attempt in (cluster.launch, lambda exp: cluster.check(cluster.manifest(exp))):
        with pytest.raises(LaunchFailed, match=f"^{message}$"):
            attempt(exp)
    assert managed_objects(kube_cluster) == {}
