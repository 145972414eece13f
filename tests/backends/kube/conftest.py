"""Fixtures and helpers of the kube tests: clusters with shared and own namespaces."""

import json
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kubetest.namespaces import remove_namespace
from kubetest.plugin import PREFIX
from symphony import Cluster
from symphony.archive.archive import Run
from symphony.usage import ExperimentUsage
from symphony_kube.lifecycle.supervisor.detached import SupervisorDirectory

HERE = Path(__file__).parent
FOREVER = "import signal; signal.pause()"
KINDS = {
    "pods": "api/v1",
    "services": "api/v1",
    "secrets": "api/v1",
    "configmaps": "api/v1",
    "jobs": "apis/batch/v1",
}
MANAGED_SELECTOR = "labelSelector=app.kubernetes.io/managed-by%3Dsymphony"


def pytest_collection_modifyitems(items):
    """Mark the tests that see all namespaces of symphony in the cluster."""
    for item in items:
        if item.path.is_relative_to(HERE):
            is_live = "kube_session" in item.fixturenames
            if is_live and "own_namespaces" in item.fixturenames and "[shared" not in item.name:
                item.add_marker(pytest.mark.namespaces)


@pytest.fixture(scope="package", autouse=True)
def _state_directory(tmp_path_factory):
    """Supervisors that run on this machine must not use the state directory of the user.

    Tests of other directories do not find the runs that these tests leave.
    """
    previous = os.environ.get("SYMPHONY_STATE_DIR")
    os.environ["SYMPHONY_STATE_DIR"] = str(tmp_path_factory.mktemp("state"))
    yield
    del os.environ["SYMPHONY_STATE_DIR"]
    if previous is not None:
        os.environ["SYMPHONY_STATE_DIR"] = previous


@pytest.fixture
def kube_cluster(kube_cluster):
    """The cluster with an empty namespace.

    No other test uses the namespace later if a detached supervisor can still create Pods in it.
    """
    yield kube_cluster
    for path in Path(os.environ["SYMPHONY_STATE_DIR"]).glob("kube/*"):
        if SupervisorDirectory(path).holder() is not None:
            kube_cluster.is_discarded.set()


@pytest.fixture
def name():
    """A unique name for an experiment, which can become a namespace."""
    return f"{PREFIX}{secrets.token_hex(3)}"


@pytest.fixture
def open_cluster(kube_cluster):
    """A function that creates a `KubeCluster`. The connections are closed after the test."""
    opened = []

    def new(**options):
        given = {
            "kubeconfig": str(kube_cluster.kubeconfig),
            "image": kube_cluster.image,
            "expose": "none",
        }
        cluster = Cluster.new("kube", **{**given, **options})
        opened.append(cluster)
        return cluster

    yield new
    for cluster in opened:
        if "api" in vars(cluster):
            cluster.api.close()


@pytest.fixture
def shared(kube_cluster, open_cluster):
    """A cluster that uses the namespace of the test."""
    return open_cluster(namespace=kube_cluster.namespace)


@pytest.fixture
def own_namespaces(kube_cluster, open_cluster, name):
    """A cluster with a namespace for each experiment. The namespace ``name`` is deleted at the end.

    A namespace that is still terminating would be listed as an experiment in the next test.
    """
    yield open_cluster()
    remove_namespace(kube_cluster.raw, name)
    wait_until(lambda: kube_cluster.raw.find(f"/api/v1/namespaces/{name}") is None)


@pytest.fixture(params=["shared", "own"])
def any_cluster(request, shared, own_namespaces):
    """Both kinds of clusters, one after the other."""
    return shared if request.param == "shared" else own_namespaces


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between the tries of a call, in seconds."""
    waited, sleep = [], time.sleep

    def note(seconds):
        waited.append(seconds)
        sleep(seconds)

    monkeypatch.setattr("symphony_kube.api.client.time.sleep", note)
    return waited


def write_kubeconfig(path, server="http://127.0.0.1:1", user=None, **cluster):
    """Write a kubeconfig with the context ``here``."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "current-context": "here",
    }
    path.write_text(json.dumps(content))
    return path


def python(to, name, program, *args, **options):
    """Add a process that runs a Python program, with unbuffered output and a short grace period."""
    process = to.new_process(
        name, command=["python3", "-u", "-c", program], args=list(args), **options
    )
    grace = to if hasattr(to, "termination_grace_period") else process
    grace.termination_grace_period(1)
    return process


def unschedulable(to, name, **options):
    """Add a process whose Pod no node accepts, which saves the time to start it."""
    return python(to, name, FOREVER, **options).node_selector("symphony.test/no-such-node", "true")


def managed_objects(kube, namespace=None, selector=MANAGED_SELECTOR):
    """Return the sorted names of all objects of symphony in a namespace, by kind.

    This does not use the code under test.
    """
    namespace = namespace or kube.namespace
    found = {}
    for kind, group in KINDS.items():
        items = kube.raw.call("GET", f"/{group}/namespaces/{namespace}/{kind}?{selector}")["items"]
        if items:
            found[kind] = sorted(item["metadata"]["name"] for item in items)
    return found


def find_namespace(kube, name):
    """Return a namespace, or None."""
    return kube.raw.find(f"/api/v1/namespaces/{name}")


def wait_until(holds, seconds=60):
    """Call a function, with growing pauses, until it returns a true value, and return it."""
    deadline = time.monotonic() + seconds
    pause_seconds = 0.05
    while not (found := holds()):
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 1.5, 0.5)
    return found


# --- resource use ---


def metrics(**containers: tuple[str, str]) -> dict[str, object]:
    """The metrics of one Pod with these containers, each with its CPU and its memory."""
    usages = [
        {"name": name.replace("_", "-"), "usage": {"cpu": cpu, "memory": memory}}
        for name, (cpu, memory) in containers.items()
    ]
    return {"metadata": {"name": "pod"}, "timestamp": "2026-11-26T19:00:00Z", "containers": usages}


def served(*pods: dict[str, object], second: int = 0) -> dict[str, object]:
    """The answer of a metrics server that has measured Pods at a second of a certain minute."""
    at = f"2026-11-26T19:00:{second:02}Z"
    return {"items": [{**pod, "timestamp": at} for pod in pods]}


def cpu_of(samples: Sequence[ExperimentUsage]) -> list[float | None]:
    """The use of the CPU by the first process in each sample."""
    return [sample.processes[0].cpu for sample in samples]


def run_of(cluster: Cluster, name: str) -> Run:
    (run,) = [run for run in cluster.list_runs() if run.experiment == name]
    return run


def running_pods(kube, name):
    """Return the running Pods of an experiment by UID."""
    path = kube.path(f"pods?labelSelector=symphony/experiment%3D{name}")
    items = kube.raw.call("GET", path)["items"]
    return {
        item["metadata"]["uid"]: item["metadata"]["name"]
        for item in items
        if "deletionTimestamp" not in item["metadata"] and item["status"]["phase"] == "Running"
    }
