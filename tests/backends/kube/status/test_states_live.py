"""States and reasons of processes on a real Kubernetes."""

import re

import pytest

from kubetest.hollow import create_node, running_status
from kubetest.plugin import temporary_namespace
from kubetest.rawapi import MERGE_PATCH
from symphony import Cluster, Experiment
from symphony.status import State
from symphony.testing.contract import until
from tests.backends.kube.conftest import FOREVER, managed_objects, python, wait_until

PENDING, RUNNING, SUCCEEDED, FAILED, UNKNOWN = State

FAT = "open('/data/x', 'wb').write(bytes(10**7)); import signal; signal.pause()"
HOG = "data = [bytearray(10**7) for _ in range(1000)]"

# By process, its final state, exit code and reason.
EXPECTED = {
    "greedy": (PENDING, None, r"Unschedulable: 0/\d+ nodes fit: \d+ insufficient nvidia.com/gpu.*"),
    "no-image": (PENDING, None, r"(ErrImagePull|ImagePullBackOff): 127.0.0.1:1/none:1.*"),
    "no-secret": (PENDING, None, 'CreateContainerConfigError: secret "nope" not found'),
    "no-command": (FAILED, None, "cannot start 'nope': .*not found in.*"),
    "no-checkout": (FAILED, None, "init container 'prepare' failed with exit code 7"),
    "hog": (FAILED, 137, "OOMKilled: more than its memory limit of 48Mi"),
    "fat": (FAILED, 143, 'Evicted: Usage of EmptyDir volume .* exceeds the limit "1Mi".*'),
    "crash": (PENDING, 4, "CrashLoopBackOff, exit code 4"),
    "good": (SUCCEEDED, 0, ""),
    "bad": (FAILED, 5, ""),
    "on": (RUNNING, None, ""),
    "tries": (FAILED, 3, "BackoffLimitExceeded: failed 2 times"),
    "late": (FAILED, None, "DeadlineExceeded: ran longer than 2 s"),
}


@pytest.fixture(scope="module")
def lost(kube_session, tmp_path_factory):
    """A cluster, and the name of an experiment whose node was deleted while its process was
    running.

    It is None if the cluster was not made for tests, because no nodes are added to it then.
    """
    if not kube_session.cluster.disposable:
        yield None
        return
    with temporary_namespace(kube_session, tmp_path_factory.mktemp("lost")) as kube:
        name = kube.namespace
        label, node = f"symphony.test/{name}", f"lost-{name}"
        create_node(kube.raw, node, label, pods=1)
        try:
            cluster = Cluster.new("kube", kubeconfig=kube.kubeconfig, namespace=kube.namespace)
            experiment = cluster.new_experiment(name)
            process = python(experiment, "only", FOREVER, container_image=kube.image)
            process.node_selector(label, "true")
            process.add_toleration(key=label, operator="Exists")
            cluster.launch(experiment)
            pod = kube.path(f"pods/{cluster.scope(name).object_name('only')}")
            wait_until(lambda: "nodeName" in kube.raw.call("GET", pod)["spec"])
            run_without_kubelet(kube, pod)
            cluster.wait(name, until="started", timeout=60)
        finally:
            kube.raw.call("DELETE", f"/api/v1/nodes/{node}")
        yield cluster, name
        cluster.api.close()


def run_without_kubelet(kube_cluster, path):
    """Report a Pod as running."""
    pod = kube_cluster.raw.call("GET", path)
    status = {"status": running_status(pod, address="10.245.0.1")}
    kube_cluster.raw.call("PATCH", f"{path}/status", status, MERGE_PATCH)


def every_problem(name: str, image: str) -> Experiment:
    experiment = Experiment(name)
    python(experiment, "greedy", FOREVER).resource_limit(gpu=64)
    experiment.new_process("no-image", container_image="127.0.0.1:1/none:1")
    env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "nope", "key": "key"}}}]
    python(experiment, "no-secret", FOREVER).container_yml = {"env": env}
    experiment.new_process("no-command", command=["nope"])
    prepare = {
        "name": "prepare",
        "image": image,
        "command": ["python3", "-c", "raise SystemExit(7)"],
    }
    python(experiment, "no-checkout", FOREVER).pod_yml = {"spec": {"initContainers": [prepare]}}
    python(experiment, "hog", HOG).resource_limit(memory="48Mi")
    # A kubelet checks the size of volumes once a minute.
    python(experiment, "fat", FAT).mount_empty_dir("/data", size="1Mi")
    python(experiment, "crash", "raise SystemExit(4)").restart_policy("Always")
    team = experiment.new_process_group("team")
    python(team, "good", "pass")
    python(team, "bad", "raise SystemExit(5)")
    python(team, "on", FOREVER)
    python(experiment, "tries", "raise SystemExit(3)").job(backoff_limit=1)
    python(experiment, "late", FOREVER).job(active_deadline=2)
    return experiment


# The node is deleted now, because Kubernetes needs a minute to notice it.
@pytest.mark.usefixtures("lost")
@pytest.mark.timeout(240)
def test_every_problem_is_reported(kube_cluster, shared, name):
    """The final states appear while they are followed, and in one description afterwards."""
    shared.launch(every_problem(name, kube_cluster.image))
    seen = set()

    def all_reported(status):
        (tries,) = [item for item in status if item.name == "tries"]
        # The Job has no Pod and no condition between its attempts.
        assert tries.state is not FAILED or is_as_expected(tries), str(tries)
        seen.update(item.name for item in status if is_as_expected(item))
        return seen == EXPECTED.keys()

    try:
        until(shared, name, all_reported, timeout=180)
    except pytest.fail.Exception:
        last = {item.name: item for item in shared.describe_experiment(name)}
        pytest.fail("\n".join(str(last[missing]) for missing in EXPECTED.keys() - seen))
    final = shared.describe_experiment(name)
    # Processes that are retried change all the time.
    again = [item for item in final if item.state is PENDING or item.name == "crash"]
    assert [item for item in final if item not in again and not is_as_expected(item)] == []
    for item in final:
        assert (item.started is not None) or item.name in {
            "greedy",
            "no-image",
            "no-secret",
            "no-command",
            "no-checkout",
            "late",
            "fat",  # the kubelet resets its status
        }
    assert final.exit_code != 0


def is_as_expected(item) -> bool:
    state, code, reason = EXPECTED[item.name]
    is_not_running = item.name == "fat" and item.exit_code is None
    if item.name == "late" or is_not_running:
        # There is an exit code if the container was running when its Pod was stopped.
        code = item.exit_code
    if (item.state, item.exit_code) != (state, code):
        return False
    return re.fullmatch(reason, item.reason) is not None


def test_removed_jobs_keep_their_results(kube_cluster, shared, name):
    experiment = shared.new_experiment(name)
    python(experiment, "good", "pass").job(ttl=0)
    python(experiment, "bad", "raise SystemExit(3)").job(ttl=0)
    shared.launch(experiment)
    assert shared.wait(name, timeout=60).exit_code == 3
    # The TTL controller removes the Jobs and their Pods.
    wait_until(lambda: not {"pods", "jobs"} & managed_objects(kube_cluster).keys())
    results = [
        ("good", SUCCEEDED, ""),
        ("bad", FAILED, "BackoffLimitExceeded: Job has reached the specified backoff limit"),
    ]
    status = shared.wait(name, timeout=60)
    assert [(item.name, item.state, item.reason) for item in status] == results
    assert status.exit_code == 1
    shared.delete(name)
    run = next(run for run in shared.list_runs() if run.experiment == name)
    recorded = shared.at_run(run).describe_experiment(name)
    assert [(item.name, item.state, item.reason) for item in recorded] == results


# This test is the last one, because it waits for what began before the first one.
@pytest.mark.timeout(150)
def test_processes_on_a_deleted_node_are_lost(lost):
    if lost is None:
        pytest.skip("nodes are only added to a cluster that was made for tests")
    cluster, name = lost
    # The Pod garbage collector of Kubernetes deletes the Pods 40 to 60 s after their node. New
    # versions mark them as failed before that.
    status = cluster.wait(name, timeout=120)
    assert {item.state for item in status} <= {UNKNOWN, FAILED}
    assert status.exit_code == 1
    wait_until(
        lambda: "its Pod was deleted" in cluster.describe_experiment(name).processes[0].reason
    )
    status = cluster.wait(name, timeout=60)
    assert [(item.name, item.state, item.reason) for item in status] == [
        ("only", UNKNOWN, "exit status unknown: its Pod was deleted")
    ]
    assert status.exit_code == 1
    assert name in cluster.list_experiments()
